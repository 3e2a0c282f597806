package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// rain is a specification.
const rain = `id: rain
name: Spring <rain>
kind: red_packet
currency: CNY
total: 2000
packets: 20
split: {mode: random, min: 1, max: 500}
window: {from: 2026-02-17T12:00:00Z, to: 2026-02-17T13:00:00Z}
sponsor: acme
`

const coupons = `id: tea
name: Tea
kind: coupon
packets: 20
split: {mode: even}
window: {from: 2026-02-17T12:00:00Z, to: 2026-02-17T13:00:00Z}
sponsor: acme
`

// What is checked is told in major units, and nothing is created.
func TestACampaignIsChecked(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Equal(t, http.StatusForbidden, f.ask(t, "operator", "/create", nil).Code)
	require.Contains(t, f.ask(t, "treasurer", "/create", nil).Body.String(), `id="check"`)
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {rain}, "check": {"1"}})
	require.Equal(t, http.StatusOK, w.Code)
	for _, part := range []string{"Spring &lt;rain&gt;</h2>", "<dd>20</dd>", "20.00 CNY, from acme",
		"2026-02-17 13:00:00 UTC", "Nothing is created yet", "\nname: Spring &lt;rain&gt;\n"} {
		require.Contains(t, w.Body.String(), part)
	}
	other := strings.ReplaceAll(rain, "rain", "other")
	w = f.ask(t, "treasurer", "/create", url.Values{"spec": {other}, "check": {"1"}})
	require.Contains(t, w.Body.String(), "has this campaign already")
	require.Empty(t, f.did)
}

// A specification that is wrong, or that the ledger refuses, stands in the form still, beside the reason.
func TestAWrongSpecificationStays(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	stays := func(spec string, status int, why string) {
		t.Helper()
		for _, check := range []string{"", "1"} {
			w := f.ask(t, "treasurer", "/create", url.Values{"spec": {spec}, "check": {check}})
			require.Equal(t, status, w.Code, why)
			require.Contains(t, w.Body.String(), why)
			require.Contains(t, w.Body.String(), "sponsor: acme")
			require.Contains(t, w.Body.String(), `aria-invalid="true"`)
		}
	}
	stays(strings.Replace(rain, "total: 2000", "total: 20.5", 1), http.StatusBadRequest, "total: amount_not_integer")
	stays(rain+"codes: {file: /etc/passwd}\n", http.StatusBadRequest, "codes")
	stays(coupons+"codes: {file: codes.csv}\n", http.StatusBadRequest, "give codes.pattern")
	f.refuses = hongbao.Errorf(hongbao.ClassConflict, "there is another")
	stays(rain, http.StatusConflict, "There is another")
	f.refuses = hongbao.Outagef(hongbao.ClassTransient, "the ledger is away")
	stays(rain, http.StatusServiceUnavailable, "The ledger is away")
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {strings.Repeat("#", 2*maxForm)}})
	require.Contains(t, w.Body.String(), "above 65536 bytes")
	require.Empty(t, f.did)
}

// The same specification again leads to the same page; codes are stored as a job, as many as there may be.
func TestACampaignIsCreatedTwice(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for range 2 {
		w := f.ask(t, "treasurer", "/create", url.Values{"spec": {rain}})
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "/campaigns/rain?done=created", w.Header().Get("Location"))
		require.Contains(t, f.ask(t, "treasurer", w.Header().Get("Location"), nil).Body.String(), "The ledger has the campaign")
	}
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {coupons + "codes: {pattern: TEA-########}\n"}})
	require.Equal(t, "/jobs/1", w.Header().Get("Location"))
	require.Contains(t, f.ask(t, "treasurer", "/jobs/1", nil).Body.String(), `href="/campaigns/tea"`)
	f.jobs.wg.Wait()
	require.Equal(t, []string{"key-treasurer create rain of 2000", "key-treasurer create rain of 2000",
		"key-treasurer create tea of 0", " codes of tea"}, f.did)
}
