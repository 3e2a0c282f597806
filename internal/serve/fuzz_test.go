package serve

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/flatjson"
	"github.com/hongbao-project/hongbao/internal/web"
	"github.com/hongbao-project/hongbao/internal/web/webtest"
)

// Each of 10,000 odd requests gets an answer below 500, a refusal is a problem with a code of the table, and nothing is
// grabbed but what was answered 200.
func TestFuzzedRequests(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	h, r := s.public, rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	tokens := []string{hs().sign(t, "u1"), hs().sign(t, "u2")}
	for _, bad := range badTokens(t) {
		tokens = append(tokens, bad)
	}
	bodies := []string{good, "{}"}
	for name, c := range badBodies {
		if name != "50 MB" {
			bodies = append(bodies, c.body)
		}
	}
	answers := map[int]int{}
	for range 10_000 {
		path := pick("/v1/campaigns/granted/grabs", "/v1/campaigns/granted/grabs", "/v1/campaigns/granted/grabs/me",
			"/v1/campaigns/granted", "/openapi.json")
		if r.IntN(4) == 0 {
			path = "/" + webtest.Garble(r, path[1:])
		}
		req, err := http.NewRequestWithContext(t.Context(), pick("POST", "POST", "POST", "GET", "PUT", "post", "HEAD"),
			"http://x/", strings.NewReader(webtest.Garble(r, pick(bodies...))))
		require.NoError(t, err)
		req.URL = &url.URL{Path: path, RawQuery: webtest.Garble(r, "user=u2")}
		token := tokens[0]
		if r.IntN(3) == 0 {
			token = webtest.Garble(r, pick(tokens...))
		}
		req.Header["Authorization"] = []string{webtest.Garble(r, "Bearer ") + token}
		req.Header["Content-Type"] = []string{webtest.Garble(r, "application/json")}
		w, before := httptest.NewRecorder(), len(s.grabbed())
		h.ServeHTTP(w, req)
		answers[w.Code]++
		require.Less(t, w.Code, http.StatusInternalServerError, "%s %q", req.Method, path)
		if w.Code == http.StatusOK {
			continue
		}
		var p web.Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Equal(t, web.CodeOf(p.Code).Status, w.Code, "%q", p.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Len(t, s.grabbed(), before, "a refusal grabs nothing")
	}
	for _, status := range []int{200, 400, 401, 404, 405, 415} {
		require.Positive(t, answers[status], "%d: %v", status, answers)
	}
	for _, g := range s.grabbed() {
		require.Contains(t, []string{"u1", "u2"}, g.User)
	}
}

// A body that is read the short way says what it says when it is parsed.
func TestPlainGrab(t *testing.T) {
	t.Parallel()
	bodies, plain := []string{good, `{"request_id":"a:,{}"}`}, 0
	for name, c := range badBodies {
		if name != "50 MB" {
			bodies = append(bodies, c.body)
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 50_000 {
		body := []byte(webtest.Garble(r, bodies[r.IntN(len(bodies))]))
		id, ok := plainGrab(body)
		if !ok {
			continue
		}
		plain++
		o, err := flatjson.Parse(body, "", 0)
		require.NoError(t, err)
		require.Equal(t, flatjson.Object{"request_id": id}, o)
	}
	require.Positive(t, plain)
}
