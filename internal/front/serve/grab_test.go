package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// A decided grab is answered with 200, an unknown campaign with 404, and an undecided grab with 503.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for _, outcome := range hongbao.Outcomes() {
		r := s.call(t, "POST", "/v1/campaigns/"+string(outcome)+"/grabs", good)
		switch {
		case outcome == hongbao.OutcomeUnknownCampaign:
			r.Refused(t, "unknown_campaign")
			require.Empty(t, r.Head.Get("Retry-After"))
		case !outcome.Final():
			r.Refused(t, string(outcome))
			require.Equal(t, "1", r.Head.Get("Retry-After"))
		default:
			require.Equal(t, http.StatusOK, r.Status, outcome)
			require.Equal(t, string(outcome), r.Body["outcome"])
			require.Equal(t, "2023-11-14T22:13:20.123Z", r.Body["time"])
			require.Equal(t, "r1", r.Body["request_id"])
		}
	}
	r := s.call(t, "POST", "/v1/campaigns/granted/grabs", good)
	require.Equal(t, "CNY", r.Body["currency"])
	require.JSONEq(t, `[{"packet":7,"amount":185,"event":"1-9","time":"2023-11-14T22:13:20.123Z","request_id":"r1"}]`,
		string(must(json.Marshal(r.Body["receipts"]))))
	r = s.call(t, "POST", "/v1/campaigns/limit_reached/grabs", good)
	require.JSONEq(t, `{"by":"device","per":"day","max":2,"resets":"2023-11-14T22:13:20.123Z"}`,
		string(must(json.Marshal(r.Body["limit"]))))
	require.Equal(t, "2023-11-14T23:13:20.123Z", s.call(t, "POST", "/v1/campaigns/not_started/grabs", good).Body["starts"])
}

// If the producer could not decide a grab, the error code shows whether the grab may have happened.
func TestGrabErrors(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for id, code := range map[string]string{
		"counts": "fact_missing", "transient": "unavailable", "broken": "unavailable", "unknown": "outcome_unknown",
	} {
		r := s.call(t, "POST", "/v1/campaigns/"+id+"/grabs", "{}")
		r.Refused(t, code, id)
		require.Equal(t, code != "fact_missing", r.Head.Get("Retry-After") == "1", id)
	}
	s.call(t, "POST", "/v1/campaigns/several/grabs", "{}").Refused(t, "request_id_required")
	require.Equal(t, 3, s.logs.FilterMessage("a request failed").Len())
}

// badBody is an invalid body or header (name and value), and the error code that refuses it.
type badBody struct {
	body, code string
	head       []string
}

func (b *badBody) tweaks() []tweak {
	if b.head == nil {
		return nil
	}
	return []tweak{header(b.head[0], b.head[1])}
}

// badBodies are the requests whose body or header is invalid for a grab.
var badBodies = map[string]badBody{
	"empty":               {"", "body_required", nil},
	"blank":               {" \n", "body_required", nil},
	"too large":           {`{"request_id":"` + strings.Repeat("r", 4<<10) + `"}`, "body_too_large", nil},
	"50 MB":               {strings.Repeat(" ", 50<<20), "body_too_large", nil},
	"no JSON":             {"request_id=r1", "invalid_json", nil},
	"half":                {`{"request_id":`, "invalid_json", nil},
	"two":                 {good + good, "invalid_json", nil},
	"a list":              {"[" + good + "]", "invalid_json", nil},
	"a text":              {`"r1"`, "invalid_json", nil},
	"null":                {"null", "invalid_json", nil},
	"not UTF-8":           {"{\"request_id\":\"\xff\"}", "invalid_json", nil},
	"deep":                {strings.Repeat("[", 2_000) + strings.Repeat("]", 2_000), "invalid_json", nil},
	"twice":               {`{"request_id":"r1","request_id":"r2"}`, "duplicate_field", nil},
	"twice, escaped":      {`{"request_id":"r1","request\u005fid":"r2"}`, "duplicate_field", nil},
	"an object inside":    {`{"request_id":{}}`, "nested_value", nil},
	"a list inside":       {`{"request_id":["r1"]}`, "nested_value", nil},
	"another's user":      {`{"user":"u2","request_id":"r1"}`, "unknown_field", nil},
	"another's user_id":   {`{"user_id":"u2"}`, "unknown_field", nil},
	"facts":               {`{"device":"d2"}`, "unknown_field", nil},
	"another case":        {`{"Request_ID":"r1"}`, "unknown_field", nil},
	"id is a number":      {`{"request_id":7}`, "request_id_invalid", nil},
	"id is null":          {`{"request_id":null}`, "request_id_invalid", nil},
	"id is empty":         {`{"request_id":""}`, "request_id_invalid", nil},
	"id is -":             {`{"request_id":"-"}`, "request_id_invalid", nil},
	"id with a space":     {`{"request_id":"r 1"}`, "request_id_invalid", nil},
	"id with a break":     {`{"request_id":"r\n1"}`, "request_id_invalid", nil},
	"id with a NUL":       {`{"request_id":"r\u00001"}`, "request_id_invalid", nil},
	"id in Chinese":       {`{"request_id":"红包"}`, "request_id_invalid", nil},
	"id of 129":           {`{"request_id":"` + strings.Repeat("r", 129) + `"}`, "request_id_invalid", nil},
	"no type":             {good, "content_type", []string{"Content-Type", ""}},
	"another type":        {good, "content_type", []string{"Content-Type", "text/plain"}},
	"another charset":     {good, "content_type", []string{"Content-Type", "application/json; charset=latin1"}},
	"type with a bad tag": {good, "content_type", []string{"Content-Type", "application/json; ="}},
	"gzip":                {good, "content_encoding", []string{"Content-Encoding", "gzip"}},
	"identity":            {good, "content_encoding", []string{"Content-Encoding", "identity"}},
}

// A grab with an invalid body is refused, and nothing is grabbed.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for name, c := range badBodies {
		r := s.call(t, "POST", "/v1/campaigns/granted/grabs", c.body, c.tweaks()...)
		r.Refused(t, c.code, name)
		require.NotContains(t, r.Text, "u2", "the answer quotes nothing from the body")
		require.Equal(t, c.code == "body_too_large", r.Closed, name)
	}
	require.Empty(t, s.grabbed())
	for name, body := range map[string]string{"with a charset": good, "no id": "{}", "blanks": " { } "} {
		r := s.call(t, "POST", "/v1/campaigns/granted/grabs", body,
			header("Content-Type", "application/json; charset=UTF-8"))
		require.Equal(t, http.StatusOK, r.Status, name)
	}
}

// Unknown paths and methods are refused. They are never redirected, and nothing is grabbed.
func TestBadPaths(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for _, path := range []string{
		"/", "/v1", "/v1/campaigns", "/v1/campaigns/", "/v1/campaigns/granted/", "/v1/campaigns/granted/grabs/",
		"/v1/campaigns/granted/grabs/you", "//v1/campaigns/granted/grabs", "/v1/campaigns/granted//grabs",
		"/v1/campaigns/x/../granted/grabs", "/v1/campaigns/./granted/grabs", "/V1/campaigns/granted/grabs",
		"/v1/campaigns/granted/grabs/me/", "/v1/campaigns/granted%2fgrabs/x", "/openapi.json/", "/livez", "/readyz", "/metrics",
		"/debug/pprof/",
	} {
		for _, method := range []string{"GET", "POST"} {
			s.call(t, method, path, good).Refused(t, "not_found", "%s %s", method, path)
		}
	}
	for _, id := range []string{
		"0", "-1", "Granted", "1%20or%201=1", "..%2fx", "%7b1%7d", "*", "granted%00", "granted%2fgrabs", "a%3ab",
		"%e7%ba%a2%e5%8c%85", strings.Repeat("a", 65), "%2e%2e", "gr%C3%A4nted",
	} {
		for method, path := range map[string]string{
			"POST": "/v1/campaigns/" + id + "/grabs", "GET": "/v1/campaigns/" + id + "/grabs/me",
			"get": "/v1/campaigns/" + id,
		} {
			s.call(t, strings.ToUpper(method), path, good).Refused(t, "campaign_invalid", path)
		}
	}
	methods := map[string][]string{}
	for _, e := range s.endpoints() {
		methods[e.Path] = append(methods[e.Path], e.Method)
		if e.Method == http.MethodGet {
			methods[e.Path] = append(methods[e.Path], http.MethodHead)
		}
	}
	for path, has := range methods {
		path = strings.Replace(path, "{id}", "granted", 1)
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW"} {
			if !slices.Contains(has, method) {
				r := s.call(t, method, path, good)
				r.Refused(t, "method_not_allowed", "%s %s", method, path)
				require.Equal(t, strings.Join(has, ", "), r.Head.Get("Allow"))
			}
		}
		head := s.call(t, "HEAD", path, "")
		require.Empty(t, head.Text)
		if !slices.Contains(has, "HEAD") {
			require.Equal(t, http.StatusMethodNotAllowed, head.Status)
			continue
		}
		get := s.call(t, "GET", path, "")
		require.Equal(t, get.Status, head.Status, path)
		require.Equal(t, get.Head.Get("Content-Type"), head.Head.Get("Content-Type"), path)
	}
	require.Empty(t, s.grabbed())
}

// An unknown query parameter is refused, because a caller who writes dry_run expects that nothing is granted.
func TestNoUnknownParameter(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	for _, query := range []string{"?dry_run=true", "?", "?x"} {
		s.call(t, "POST", "/v1/campaigns/granted/grabs"+query, good).Refused(t, "invalid_parameter", query)
		s.call(t, "POST", batchPath+query, batchOf(1), as(gatewayText)).Refused(t, "invalid_parameter", query)
		s.call(t, "GET", "/v1/campaigns/granted/grabs/me"+query, "").Refused(t, "invalid_parameter", query)
		s.call(t, "GET", "/v1/campaigns/granted"+query, "").Refused(t, "invalid_parameter", query)
	}
	require.Empty(t, s.grabbed())
}

// The server closes the connection after a request with Transfer-Encoding. Otherwise a proxy that obeys
// Content-Length instead could take the rest for another request (request smuggling).
func TestTransferEncodingEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	next := "GET /v1/campaigns/c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	head := "POST /v1/campaigns/granted/grabs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		"Authorization: Bearer " + hs().sign(t, "u1") + "\r\n"
	chunks := "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good)
	for name, c := range map[string]struct {
		request string
		answers int
	}{
		"with a length":    {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(good), good), 2},
		"chunked":          {head + chunks, 1},
		"both":             {head + "Content-Length: 4\r\n" + chunks, 1},
		"a path not there": {strings.Replace(head, "/grabs", "/none", 1) + chunks, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.answers, strings.Count(s.raw(t, c.request+next), "HTTP/1.1 "))
		})
	}
}

// Text from a request can't add lines to the log.
func TestLogTakesNoLines(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	s.call(t, "POST", "/v1/campaigns/x%0a%7b%22level%22:%22error%22%7d/grabs", good).Refused(t, "campaign_invalid")
	for _, l := range s.logs.All() {
		require.NotContains(t, l.Message, "\n")
	}
}
