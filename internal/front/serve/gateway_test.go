package serve

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// forUser turns a request into a gateway's request for a user.
func forUser(user, facts string) tweak {
	return func(r *http.Request) {
		as(gatewayText)(r)
		header("Hongbao-User", user)(r)
		if facts != "" {
			header("Hongbao-Facts", facts)(r)
		}
	}
}

const (
	grabPath = "/v1/campaigns/granted/grabs"
	minePath = "/v1/campaigns/granted/grabs/me"
)

// A gateway grabs for the user and with the facts that it names. It reads the user's receipts with their coupon codes.
func TestGatewayGrabsForAUser(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for range 2 {
		r := s.call(t, "POST", grabPath, good, forUser("u7", "dev=d1 shop=s1"))
		require.Equal(t, http.StatusOK, r.Status, r.Text)
	}
	for _, g := range s.grabbed() {
		require.Equal(t, "u7", g.User)
		require.Equal(t, "r1", g.RequestID)
		require.Equal(t, map[string]string{"device": "d1", "shop": "s1"}, g.Facts)
	}
	require.Len(t, s.grabbed(), 2)
	r := s.call(t, "GET", minePath, "", forUser("u7", ""))
	require.Equal(t, "u7", r.Body["user"])
	require.Contains(t, r.Text, "SECRET", "the gateway passes the code on to the user")
	listed := s.call(t, "GET", grabPath+"?user=u7", "", as(gatewayText))
	require.Equal(t, http.StatusOK, listed.Status)
	require.NotContains(t, listed.Text, "SECRET")
}

// A gateway that names no user, an invalid user or invalid facts is refused, and nothing is grabbed.
func TestGatewayNonsense(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for name, c := range map[string]struct {
		path, body, code string
		tweaks           []tweak
	}{
		"no user":   {grabPath, good, "user_invalid", []tweak{as(gatewayText)}},
		"two users": {grabPath, good, "user_invalid", []tweak{forUser("u1", ""), func(r *http.Request) { r.Header.Add("Hongbao-User", "u2") }}},
		"two facts": {grabPath, good, "facts_invalid", []tweak{forUser("u1", "dev=d1"),
			func(r *http.Request) { r.Header.Add("Hongbao-Facts", "dev=d2") }}},
		"empty user":      {grabPath, good, "user_invalid", []tweak{forUser("", "")}},
		"user with space": {grabPath, good, "user_invalid", []tweak{forUser("u 1", "")}},
		"user in Chinese": {grabPath, good, "user_invalid", []tweak{forUser("红包", "")}},
		"long user":       {grabPath, good, "user_invalid", []tweak{forUser(strings.Repeat("u", 129), "")}},
		"unknown fact":    {grabPath, good, "facts_invalid", []tweak{forUser("u1", "ip=1")}},
		"a fact's name":   {grabPath, good, "facts_invalid", []tweak{forUser("u1", "device=d1")}},
		"fact twice":      {grabPath, good, "facts_invalid", []tweak{forUser("u1", "dev=d1 dev=d2")}},
		"no value":        {grabPath, good, "facts_invalid", []tweak{forUser("u1", "dev=")}},
		"two blanks":      {grabPath, good, "facts_invalid", []tweak{forUser("u1", "dev=d1  dev=d1")}},
		"no request id":   {grabPath, "{}", "request_id_required", []tweak{forUser("u1", "")}},
		"no body":         {grabPath, "", "body_required", []tweak{forUser("u1", "")}},
		"a user inside":   {grabPath, `{"request_id":"r1","user":"u2"}`, "unknown_field", []tweak{forUser("u1", "")}},
		"a query":         {grabPath + "?x=1", good, "invalid_parameter", []tweak{forUser("u1", "")}},
		"odd campaign":    {"/v1/campaigns/%2e%2e/grabs", good, "campaign_invalid", []tweak{forUser("u1", "")}},
		"another scope":   {"/v1/campaigns/other/grabs", good, "unknown_campaign", []tweak{forUser("u1", "")}},
		"another role":    {grabPath, good, "forbidden", []tweak{forUser("u1", ""), as(viewerText)}},
		"unknown key":     {grabPath, good, "unauthorized", []tweak{forUser("u1", ""), as(gatewayText[:len(gatewayText)-1])}},
	} {
		s.call(t, "POST", c.path, c.body, c.tweaks...).Refused(t, c.code, name)
	}
	for _, other := range []string{viewerText, clientText, accountText} {
		s.call(t, "GET", minePath, "", forUser("u1", ""), as(other)).Refused(t, "forbidden", "the answer has codes")
	}
	s.call(t, "POST", grabPath, good, header("Hongbao-User", "u2")).Refused(t, "user_invalid", "beside a user's token")
	s.call(t, "POST", grabPath, good, header("Hongbao-Facts", "dev=d2")).Refused(t, "facts_invalid", "beside a user's token")
	require.Empty(t, s.grabbed())
}
