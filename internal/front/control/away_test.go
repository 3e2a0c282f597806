package control

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// setupBehind returns a desk with campaign rain, and the proxy between it and the ledger. The desk has already
// cached the API keys.
func setupBehind(t *testing.T) (*desk, *proxy.Proxy) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dsn, err := url.Parse(testkit.Postgres(t))
	require.NoError(t, err)
	p := testkit.NewProxy(t, dsn.Host)
	dsn.Host = p.Addr
	d := setup(t, options{dsn: dsn.String()})
	d.campaign("rain", 10, 1_000)
	d.get("treasurer", "/v1/campaigns/rain").OK(t, http.StatusOK, nil)
	return d, p
}

// While the ledger is down, campaigns and sinks can be paused and resumed. An operation that needs the ledger is
// refused without effect, and the same request succeeds once the ledger is back.
func TestLedgerAway(t *testing.T) {
	t.Parallel()
	d, p := setupBehind(t)
	p.Refuse(true)
	p.CutAll()
	var state ops.CampaignState
	d.post("operator", "/v1/campaigns/rain/pause", "{}").OK(t, http.StatusOK, &state)
	require.Equal(t, "paused", state.State)
	d.post("operator", "/v1/sinks/balance/pause", `{"why":"the ledger is down"}`).OK(t, http.StatusOK, nil)
	again := func(r *http.Request) { r.Header.Set(keyHeader, "k1") }
	d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, again).Refused(t, "unavailable")
	d.get("viewer", "/v1/campaigns/rain").Refused(t, "unavailable")
	var sinks deliveries.Status
	d.get("viewer", "/v1/sinks").OK(t, http.StatusOK, &sinks)
	require.True(t, sinks.Sinks[0].Pause.Paused)
	p.Refuse(false)
	testkit.EventuallyOK(t, 30*time.Second, func() error {
		r := d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`, again)
		if r.Status != http.StatusOK {
			return errors.New("not yet")
		}
		return nil
	}, "the ledger is back")
	var page access.JournalPage
	testkit.Eventually(t, 30*time.Second, func() bool {
		d.get("viewer", "/v1/journal?campaign=rain").OK(t, http.StatusOK, &page)
		return len(page.Entries) >= 4
	}, "what was done during the outage is recorded")
	actions := map[access.Action]int{}
	for _, e := range page.Entries {
		actions[e.Action]++
	}
	require.Equal(t, 1, actions[access.PauseCampaign], "%v", actions)
	var shown campaigns.Shown
	d.get("viewer", "/v1/campaigns/rain").OK(t, http.StatusOK, &shown)
	require.Equal(t, "closed", shown.Redis.State)
}

// A ledger that accepts connections but never answers counts as down, so a pause does not wait for it.
func TestLedgerMute(t *testing.T) {
	t.Parallel()
	d, p := setupBehind(t)
	p.Delay(time.Hour)
	var state ops.CampaignState
	begun := time.Now()
	d.post("operator", "/v1/campaigns/rain/pause", "{}").OK(t, http.StatusOK, &state)
	require.Equal(t, "paused", state.State)
	require.Less(t, time.Since(begun), 2*ledgerWait+8*time.Second)
	p.Delay(0)
	p.CutAll()
	var shown campaigns.Shown
	testkit.Eventually(t, 30*time.Second, func() bool {
		r := d.get("viewer", "/v1/campaigns/rain")
		if r.Status != http.StatusOK {
			return false
		}
		r.OK(t, http.StatusOK, &shown)
		return true
	}, "the ledger answers again")
	require.Equal(t, "paused", shown.Redis.State)
}
