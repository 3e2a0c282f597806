package control

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
)

// Every random request gets a documented status below 500, and changes nothing in the ledger or in Redis.
func TestFuzzedRequests(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.grab("rain", "u1")
	d.buried("the account is closed")
	before := d.get("viewer", "/v1/campaigns/rain").Text
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	path := strings.NewReplacer("{id}", "rain", "{sink}", "balance", "{shard}", "0", "{entry}", "1-1", "{number}", "7",
		"{name}", "repair")
	spec := strings.Replace(specOf(t, campaignOf("rain", 10, 1_000)), `"name":"Rain"`, `"name":"Rain","odd":1`, 1)
	bodies := []string{
		`{"odd":1}`, `{"amount":1.5}`, `{"amount":"100","missing":-1}`, `{"early":"yes"}`, `{"why":"x","letter":"a/0/1-1"}`,
		`{"why":"","all":1}`, `{"why":"x","decision":"burn"}`, `{"to":"kafka","missing":1}`, `{"amount":1,"amount":2}`, spec,
		`{"to":"topic:","rate":-1}`, `{"why":{"a":[1]}}`, "\xff", "[]", "null", "",
	}
	queries := []string{"", "limit=7", "after=rain", "user=u1", "packet=1", "class=permanent", "all=true", "reason=%00"}
	answers := map[int]int{}
	all := operations()
	for range 10_000 {
		o := &all[r.IntN(len(all))]
		at := path.Replace(o.path)
		if r.IntN(3) == 0 {
			at = "/" + webtest.Garble(r, at[1:])
		}
		req := d.request(pick("viewer", "operator", "treasurer", "treasurer/rain*", "gateway", "nobody"), o.method, "/",
			webtest.Garble(r, pick(bodies...)))
		req.URL = &url.URL{Path: at}
		if r.IntN(8) == 0 {
			req.Method = pick("PUT", "HEAD", "post")
		}
		if o.body == nil || r.IntN(8) == 0 {
			req.URL.RawQuery = webtest.Garble(r, pick(queries...))
		}
		if r.IntN(8) == 0 {
			req.Header["Authorization"] = []string{webtest.Garble(r, req.Header.Get("Authorization"))}
		}
		if r.IntN(8) == 0 {
			req.Header["Idempotency-Key"] = []string{webtest.Garble(r, pick("", "k", strings.Repeat("k", 255)))}
		}
		if r.IntN(8) == 0 {
			req.Header["Content-Type"] = []string{webtest.Garble(r, "application/json")}
		}
		got := d.send(req)
		answers[got.Status]++
		require.Less(t, got.Status, http.StatusInternalServerError, "%s %q: %s", req.Method, at, got.Text)
		if got.Status >= 300 {
			require.NotEmpty(t, got.Code(), got.Text)
		}
	}
	for _, status := range []int{200, 400, 401, 403, 404, 405, 415} {
		require.Positive(t, answers[status], "%d: %v", status, answers)
	}
	require.Equal(t, before, d.get("viewer", "/v1/campaigns/rain").Text)
	require.Len(t, d.ledgerCampaigns(), 1)
}
