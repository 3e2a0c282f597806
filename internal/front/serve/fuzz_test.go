package serve

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
)

// Every random request gets a status below 500, and every refusal is a problem with a documented code. Only requests
// that were answered with 200 grab anything.
func TestFuzzedRequests(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	h, r := s.public, rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	own := "Bearer " + hs().sign(t, "u1")
	credentials := []string{"Bearer " + hs().sign(t, "u2"), "Bearer " + viewerText}
	bad := badTokens(t)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		credentials = append(credentials, "Bearer "+bad[name])
	}
	const batch = `{"grabs":[{"user":"u3","request_id":"r1","facts":"dev=d1"}]}`
	bodies := []string{good, "{}", batch}
	for _, name := range slices.Sorted(maps.Keys(badBodies)) { // sorted, so that each run makes the same requests
		if name != "50 MB" {
			bodies = append(bodies, badBodies[name].body)
		}
	}
	answers, taken := map[int]int{}, map[string]bool{} // by status; the kinds of requests with answer 200
	for range 10_000 {
		path := pick("/v1/campaigns/granted/grabs", "/v1/campaigns/granted/grabs", "/v1/campaigns/granted/grabs/me",
			"/v1/campaigns/granted", "/openapi.json", "/v1/campaigns/granted/grabs:batch")
		if r.IntN(4) == 0 {
			path = "/" + webtest.Garble(r, path[1:])
		}
		req, err := http.NewRequestWithContext(t.Context(), pick("POST", "POST", "POST", "GET", "PUT", "post", "HEAD"),
			"http://x/", strings.NewReader(pick(good, batch, pick(bodies...), webtest.Garble(r, pick(bodies...)))))
		require.NoError(t, err)
		req.URL = &url.URL{Path: path, RawQuery: pick("", "", "", "user=u2", webtest.Garble(r, "user=u2"))}
		req.RequestURI = path
		with := pick(own, "Bearer "+gatewayText)
		if r.IntN(3) == 0 {
			with = pick(credentials...)
		}
		req.Header["Authorization"] = []string{pick(with, webtest.Garble(r, with))}
		if with != own || r.IntN(4) == 0 {
			req.Header["Hongbao-User"] = []string{pick("u1", webtest.Garble(r, "u1"))}
			req.Header["Hongbao-Facts"] = []string{pick("dev=d1", webtest.Garble(r, "dev=d1"))}
		}
		req.Header["Content-Type"] = []string{webtest.Garble(r, "application/json")}
		w, before := httptest.NewRecorder(), len(s.grabbed())
		h.ServeHTTP(w, req)
		answers[w.Code]++
		require.Less(t, w.Code, http.StatusInternalServerError, "%s %q", req.Method, path)
		if w.Code == http.StatusOK {
			who := "user"
			if with == "Bearer "+gatewayText {
				who = "gateway"
			}
			taken[req.Method+" "+who+" "+path] = true
			for _, g := range s.grabbed()[before:] {
				require.True(t, g.User == "u1" || g.User == "u2" || who == "gateway", "%s for %s", path, g.User)
			}
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
	for _, way := range []string{
		"POST user " + grabPath, "POST gateway " + grabPath, "POST gateway " + batchPath, "GET gateway " + grabPath,
		"GET user " + minePath, "GET gateway " + minePath, "GET user /v1/campaigns/granted",
	} {
		require.True(t, taken[way], "none came through: %s", way)
	}
}

// plainGrab, the fast path, returns the same request id as the complete parser.
func TestPlainGrab(t *testing.T) {
	t.Parallel()
	bodies, plain := []string{good, `{"request_id":"a:,{}"}`}, 0
	for _, name := range slices.Sorted(maps.Keys(badBodies)) { // sorted, so that each run makes the same requests
		if name != "50 MB" {
			bodies = append(bodies, badBodies[name].body)
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
