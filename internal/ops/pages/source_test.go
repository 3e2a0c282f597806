package pages

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A load of a campaign was interrupted before Redis had anything of it: the campaign can't be cancelled any more.
func TestPageOfACampaignSaysThatALoadHasBegun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	apptest.Creates(t, a, "rain")
	for _, begun := range []bool{false, true} {
		if begun {
			require.NoError(t, a.Ledger().BeginLoad(t.Context(), "rain"))
		}
		live, err := NewSource(a).Campaign(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, "created", live.Status)
		require.Equal(t, begun, live.LoadBegun)
	}
}

// A top-up is ordered and not dealt. The API's list counts its packets, as the ledger does; the pages count what users can
// win now, and what is being added.
func TestListWhileATopUpIsNotDealt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "", "HONGBAO_DEPLOYMENT_SINKS=balance")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	of, now := campaigns.Of(a), time.Now().Truncate(time.Second)
	_, err := of.Create(t.Context(), campaign.Complete(hongbao.Campaign{ID: "rain", Name: "Rain", Kind: hongbao.KindRedPacket,
		Sponsor: "acme", Currency: "CNY", Packets: 4, Total: 400, Split: hongbao.Split{Mode: hongbao.SplitEven},
		From: now, To: now.Add(time.Hour), TimeZone: "UTC"}), nil)
	require.NoError(t, err)
	_, err = of.Load(t.Context(), "rain")
	require.NoError(t, err)
	_, err = of.OrderTopUp(t.Context(), ledger.TopUp{Campaign: "rain", ID: "more", Packets: 2, Total: 200, Expect: 400,
		Decision: stream.Decision{By: "ann", Why: "test"}})
	require.NoError(t, err)

	page, err := of.ListCampaigns(t.Context(), "", 10, nil)
	require.NoError(t, err)
	of.AddStatus(t.Context(), page.Campaigns)
	text, err := json.Marshal(page)
	require.NoError(t, err)
	at := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	require.JSONEq(t, `{"campaigns": [{"id": "rain", "name": "Rain", "kind": "red_packet", "packets": 6, "granted": 0, "currency": "CNY",
		"funded_amount": 600, "granted_amount": 0, "refunded_amount": 0, "state": "funded", "status": "open",
		"from": "`+at(now)+`", "to": "`+at(now.Add(time.Hour))+`", "time_zone": "UTC", "codes": null}], "next": null}`, string(text))
	live, err := NewSource(a).Campaign(t.Context(), "rain")
	require.NoError(t, err)
	live.Samples = page.Campaigns[0].Samples
	require.Equal(t, page.Campaigns[0], live.Campaign, "the list and the page have the same campaign")
	require.EqualValues(t, 4, live.Dealt)
	require.EqualValues(t, 4, live.Left)
	require.EqualValues(t, 2, live.Adding())
}

// While Redis is full, a page shows what Redis has, and that it is full.
func TestRedisIsFull(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	require.NoError(t, s.Redis().ConfigSet(t.Context(), "maxmemory", "1").Err())
	live, err := s.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, live.Full)
	require.Equal(t, "open", live.Status, "%v", live.Note)
	require.True(t, live.InRedis)
}

// While Redis does not answer, a page says it once, and still shows who did what.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	s := sampled(t)
	_, err := campaigns.Of(s.App).Pause(t.Context(), "rain", stream.Decision{By: "wei", Why: "a typo"})
	require.NoError(t, err)
	s.Redis().ShutdownNoSave(t.Context())
	live, err := s.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, model.Unread, live.Status)
	require.Len(t, live.Notes, 1, "%v", live.Notes)
	require.EqualValues(t, "a typo", live.Spans[len(live.Spans)-1].Why)
}
