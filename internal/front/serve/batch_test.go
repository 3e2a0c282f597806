package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

const batchPath = "/v1/campaigns/granted/grabs:batch"

// results returns each result of a batch as text: the answer's outcome or the problem's code.
func results(t *testing.T, r *reply) (all []string) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.Status, r.Text)
	var out BatchAnswer
	require.NoError(t, json.Unmarshal([]byte(r.Text), &out))
	for _, one := range out.Results {
		switch {
		case one.Answer != nil && one.Problem == nil:
			all = append(all, one.Answer.Outcome+" "+one.Answer.RequestID)
		case one.Answer == nil && one.Problem != nil:
			require.Equal(t, r.Head.Get("X-Request-Id"), one.Problem.Instance)
			all = append(all, fmt.Sprintf("%s %d", one.Problem.Code, one.RetryAfter))
		default:
			t.Errorf("want an answer or a problem: %s", r.Text)
		}
	}
	return all
}

// Each grab of a batch has its own result, in order, even if others are invalid.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	body := `{"grabs":[{"user":"u1","request_id":"r1","facts":"dev=d1 shop=s1"},{"user":"u 2","request_id":"r2"},
		{"user":"u3"},{"user":"u4","request_id":"r4","dev":"d4"},{"user":"u5","request_id":"r5","facts":"ip=1"},
		{"request_id":"r6"},{"user":"u7","request_id":""},{"user":"u8","request_id":"r8","facts":7},{"user":8,"request_id":"r9"},
		{},{"user":"红包","request_id":"r1"},{"user":"u9","request_id":"r1"}]}`
	r := s.call(t, "POST", batchPath, body, as(gatewayText))
	require.Equal(t, []string{"granted r1", "user_invalid 0", "request_id_required 0", "unknown_field 0", "facts_invalid 0",
		"user_invalid 0", "request_id_invalid 0", "facts_invalid 0", "user_invalid 0", "user_invalid 0", "user_invalid 0",
		"granted r1"}, results(t, r))
	all := s.grabbed()
	require.Len(t, all, 2)
	if all[0].User != "u1" {
		all[0], all[1] = all[1], all[0]
	}
	require.Equal(t, []hongbao.Grab{
		{Campaign: "granted", User: "u1", RequestID: "r1", Facts: map[string]string{"device": "d1", "shop": "s1"}},
		{Campaign: "granted", User: "u9", RequestID: "r1"},
	}, all)
	one := `{"grabs":[{"user":"u1","request_id":"r1"}]}`
	for campaign, want := range map[string]string{"counts": "fact_missing 0", "transient": "unavailable 1"} {
		r := s.call(t, "POST", "/v1/campaigns/"+campaign+"/grabs:batch", one, as(gatewayText))
		require.Equal(t, []string{want}, results(t, r))
	}
	r = s.call(t, "POST", "/v1/campaigns/unknown_campaign/grabs:batch", one, as(gatewayText))
	require.Equal(t, []string{"unknown_campaign 0"}, results(t, r))
}

// A panic while a grab is decided reaches no other request: its caller gets a problem, and the log has the stack.
func TestPanickingGrab(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	one := `{"grabs":[{"user":"u1","request_id":"r1"}]}`
	r := s.call(t, "POST", "/v1/campaigns/panics/grabs:batch", one, as(gatewayText))
	require.Equal(t, []string{"internal_error 0"}, results(t, r))
	s.call(t, "POST", "/v1/campaigns/panics/grabs", good).Refused(t, "internal_error", "a grab")
	lines := s.logs.FilterMessage("a handler panicked").All()
	require.Len(t, lines, 2)
	for _, line := range lines {
		require.Equal(t, "handler_panicked", line.ContextMap()["code"])
		require.Contains(t, line.ContextMap()["stack"], "fake).Grab")
	}
}

// All grabs of a batch go to the producer concurrently, so that one call to Redis can decide them. Each user has a
// separate rate.
func TestBatchIsOneCrowd(t *testing.T) {
	t.Parallel()
	f := &fake{hold: make(chan struct{}), began: make(chan struct{}, maxBatch)}
	s := setup(t, options{fake: f, cfg: func(c *Config) { c.Rate, c.Burst = 1, 2 }})
	var grabs []string
	for i := range maxBatch - 3 {
		grabs = append(grabs, fmt.Sprintf(`{"user":"u%d","request_id":"r%d"}`, i, i))
	}
	for i := range 3 {
		grabs = append(grabs, fmt.Sprintf(`{"user":"often","request_id":"r%d"}`, i))
	}
	answer := make(chan *reply, 1)
	go func() {
		answer <- s.call(t, "POST", batchPath, `{"grabs":[`+strings.Join(grabs, ",")+`]}`, as(gatewayText))
	}()
	for range maxBatch - 1 {
		<-f.began
	}
	close(f.hold)
	got := results(t, <-answer)
	require.Len(t, got, maxBatch)
	for i, text := range got[:maxBatch-3] {
		require.Equal(t, fmt.Sprintf("granted r%d", i), text)
	}
	limited := 0
	for _, text := range got[maxBatch-3:] {
		if text == "rate_limited 1" {
			limited++
		}
	}
	require.Equal(t, 1, limited)
}

// If the batch itself is invalid, nothing is grabbed.
func TestBadBatches(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	one := `{"user":"u1","request_id":"r1"}`
	for body, code := range map[string]string{
		"":                                    "body_required",
		"{}":                                  "grabs_invalid",
		`{"grabs":[]}`:                        "grabs_invalid",
		`{"grabs":null}`:                      "unknown_field",
		`{"grabs":7}`:                         "grabs_invalid",
		`{"grabs":{}}`:                        "nested_value",
		`{"grabs":[7]}`:                       "nested_value",
		`{"grabs":[` + one + `],"user":"u"}`:  "unknown_field",
		`{"grabs":[` + one + `],"grabs":[]}`:  "duplicate_field",
		`{"grabs":[{"user":"u","user":"v"}]}`: "duplicate_field",
		`{"grabs":[{"user":"u","facts":{"dev":"d"}}]}`:                 "nested_value",
		`{"grabs":[` + strings.Repeat(one+",", maxBatch) + one + `]}`:  "grabs_invalid",
		`{"grabs":[` + one + `]}` + strings.Repeat(" ", maxBatchBytes): "body_too_large",
		strings.Repeat(" ", 50<<20):                                    "body_too_large",
		strings.Repeat("[", 50_000):                                    "invalid_json",
		`{"grabs":[` + one + `,]}`:                                     "invalid_json",
	} {
		r := s.call(t, "POST", batchPath, body, as(gatewayText))
		r.Refused(t, code, "%.80s", body)
	}
	require.Empty(t, s.grabbed())
}

// An API key works only for its role and its campaigns. The answer to an invalid key does not reveal what is wrong
// with it.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	batch := `{"grabs":[{"user":"u1","request_id":"r1"}]}`
	list := "/v1/campaigns/granted/grabs?user=u1"
	_, unknown := access.NewKey(access.RoleGateway, nil)
	for name, key := range map[string]string{
		"none": "", "unknown": unknown, "cut": gatewayText[:len(gatewayText)-1], "a token": hs().sign(t, "u1"),
	} {
		s.call(t, "POST", batchPath, batch, as(key)).Refused(t, "unauthorized", name)
		s.call(t, "GET", list, "", as(key)).Refused(t, "unauthorized", name)
	}
	twice := func(r *http.Request) { r.Header.Add("Authorization", "Bearer "+viewerText) }
	s.call(t, "POST", batchPath, batch, as(gatewayText), twice).Refused(t, "unauthorized", "two keys, one valid")
	expired, expiredText := access.NewKey(access.RoleGateway, nil)
	expired.Expires = time.Now().Add(-time.Second)
	revoked, revokedText := access.NewKey(access.RoleGateway, nil)
	revoked.Revoked = time.Now().Add(-time.Second)
	old := setup(t, options{apiKeys: access.NewAuthority(keyList{keys: []access.Key{expired, revoked}})})
	for _, text := range []string{expiredText, revokedText} {
		old.call(t, "POST", batchPath, batch, as(text)).Refused(t, "unauthorized")
		old.call(t, "GET", list, "", as(text)).Refused(t, "unauthorized")
	}
	require.Empty(t, old.grabbed())
	for _, other := range []string{viewerText, clientText, accountText} {
		s.call(t, "POST", batchPath, batch, as(other)).Refused(t, "forbidden")
		s.call(t, "GET", list, "", as(other)).Refused(t, "forbidden", "this listener is for gateways")
	}
	s.call(t, "POST", "/v1/campaigns/other/grabs:batch", batch, as(gatewayText)).Refused(t, "unknown_campaign")
	require.EqualValues(t, 7, s.fake.denied.Load(), "each is recorded")
	s.call(t, "POST", "/v1/campaigns/Other/grabs:batch", batch, as(gatewayText)).Refused(t, "campaign_invalid")
	require.Empty(t, s.grabbed())

	unreachable := setup(t, options{apiKeys: access.NewAuthority(keyList{err: io.ErrUnexpectedEOF})})
	unreachable.call(t, "POST", batchPath, batch, as(gatewayText)).Refused(t, "unavailable")
}

// An API key that exceeds its rate must wait. A request that the key has no right to make counts towards the rate, too.
// Other keys are not affected.
func TestKeyRate(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.KeyRate, c.KeyBurst = 1, 128 }})
	list := "/v1/campaigns/granted/grabs?user=u1"
	limited := func(r *reply) {
		r.Refused(t, "rate_limited")
		wait, err := strconv.Atoi(r.Head.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, wait)
	}
	require.Equal(t, http.StatusOK, s.call(t, "POST", batchPath, batchOf(120), as(gatewayText)).Status)
	limited(s.call(t, "POST", batchPath, batchOf(120), as(gatewayText)))
	require.Len(t, s.grabbed(), 120, "a batch of n grabs counts n times, and is accepted or refused as a whole")
	refused := 0
	for i := range 60 {
		var r *reply
		switch i % 3 {
		case 0:
			r = s.call(t, "POST", batchPath, batchOf(1), as(gatewayText))
		case 1:
			r = s.call(t, "GET", list, "", as(gatewayText))
		default:
			r = s.call(t, "POST", "/v1/campaigns/other/grabs:batch", batchOf(1), as(gatewayText))
		}
		if r.Code() == "rate_limited" {
			limited(r)
			refused++
		}
	}
	require.Greater(t, refused, 60-20)
	require.LessOrEqual(t, int(s.fake.denied.Load()), 60-refused, "a rate-limited request is not recorded")
	require.Equal(t, http.StatusOK, s.call(t, "GET", list, "", as(wholeText)).Status)
	require.Equal(t, http.StatusOK, s.call(t, "POST", "/v1/campaigns/granted/grabs", good).Status, "a user is no key")

	full := setup(t, options{cfg: func(c *Config) { c.KeyRate, c.KeyBurst = 1, 128 }})
	require.Equal(t, http.StatusOK, full.call(t, "POST", batchPath, batchOf(128), as(gatewayText)).Status,
		"the smallest permitted burst allows a full batch")
}

// Grabs that an outage refuses do not count for the key's rate. Otherwise the retries after the outage would be refused.
func TestRefusedInAnOutageCostsNoRate(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.KeyRate, c.KeyBurst = 1, 128 }})
	for range 3 {
		for _, campaign := range []string{"transient", "broken"} {
			r := s.call(t, "POST", "/v1/campaigns/"+campaign+"/grabs:batch", batchOf(120), as(wholeText))
			require.Equal(t, http.StatusOK, r.Status, "%s", r.Body)
		}
	}
	granted := "/v1/campaigns/granted/grabs:batch"
	require.Equal(t, http.StatusOK, s.call(t, "POST", granted, batchOf(120), as(wholeText)).Status)
	s.call(t, "POST", granted, batchOf(120), as(wholeText)).Refused(t, "rate_limited")
}

func batchOf(n int) string {
	grabs := make([]string, n)
	for i := range grabs {
		grabs[i] = fmt.Sprintf(`{"user":"u%d","request_id":"r1"}`, i)
	}
	return `{"grabs":[` + strings.Join(grabs, ",") + `]}`
}

// An API key reads a user's receipts, but without coupon codes, which only the user may see.
func TestUserReceipts(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for _, key := range []string{gatewayText, wholeText} {
		r := s.call(t, "GET", "/v1/campaigns/granted/grabs?user=u1", "", as(key))
		require.Equal(t, http.StatusOK, r.Status)
		require.Equal(t, "u1", r.Body["user"])
		require.NotContains(t, r.Text, "SECRET")
	}
	own := s.call(t, "GET", "/v1/campaigns/granted/grabs/me", "")
	require.Contains(t, own.Text, "SECRET", "the fake has one")
	for _, query := range []string{"", "?user=", "?user=a&user=b", "?user=a%20b", "?user=u1&x=1", "?User=u1", "?user=%00", "?user=-",
		"?user=%e7%ba%a2", "?user=" + strings.Repeat("u", 129)} {
		s.call(t, "GET", "/v1/campaigns/granted/grabs"+query, "", as(wholeText)).Refused(t, "user_invalid", query)
	}
	s.call(t, "GET", "/v1/campaigns/absent/grabs?user=u1", "", as(wholeText)).Refused(t, "unknown_campaign")
	s.call(t, "GET", "/v1/campaigns/granted/grabs?user=u1", "").Refused(t, "unauthorized", "a user's token is no API key")
	broken := setup(t, options{fake: &fake{err: io.ErrUnexpectedEOF}})
	broken.call(t, "GET", "/v1/campaigns/granted/grabs?user=u1", "", as(wholeText)).Refused(t, "unavailable")
}
