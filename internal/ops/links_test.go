package ops_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A link ends an hour after the window of its campaign. The journal says who made it and why, who ended it, and never what
// opens it.
func TestLinks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	now := time.Now().Truncate(time.Second)
	creates := func(id string, from time.Time) {
		_, err := campaigns.Of(a).Create(t.Context(), campaign.Complete(hongbao.Campaign{ID: id, Name: "Rain", Kind: hongbao.KindRedPacket,
			Sponsor: "acme", Currency: "CNY", Packets: 4, Total: 400, Split: hongbao.Split{Mode: hongbao.SplitEven},
			From: from, To: from.Add(time.Minute), TimeZone: "UTC"}), nil)
		require.NoError(t, err)
	}
	creates("rain", now)
	k, _ := access.NewKey(access.RoleOperator, nil)
	k, err := a.Access().AddKey(t.Context(), k)
	require.NoError(t, err)
	who := access.Caller{Key: k.ID, Role: k.Role}
	l := &ops.Local{App: a, Caller: &who}
	ctx := access.As(t.Context(), who.Actor(""))

	_, _, err = l.ShareCampaign(ctx, ops.Share{Campaign: "rain"})
	require.True(t, ops.IsInput(err), "it needs a reason: %v", err)
	_, _, err = l.ShareCampaign(ctx, ops.Share{Campaign: "snow", Why: "growth"})
	require.ErrorContains(t, err, "the campaign is not in the ledger")
	text, link, err := l.ShareCampaign(ctx, ops.Share{Campaign: "rain", Money: true, Why: "growth"})
	require.NoError(t, err)
	require.True(t, now.Add(time.Minute+time.Hour).Equal(link.Expires), link.Expires)
	reader, err := a.Authority().Link(t.Context(), text)
	require.NoError(t, err)
	require.True(t, reader.Link.Money)
	links, err := l.Links(ctx, "rain")
	require.NoError(t, err)
	require.Len(t, links, 1)

	require.ErrorIs(t, l.EndLink(ctx, "snow", link.ID()), model.ErrNotFound, "it is a link to another campaign")
	require.NoError(t, l.EndLink(ctx, "rain", link.ID()))
	_, err = a.Authority().Link(t.Context(), text)
	require.ErrorIs(t, err, access.ErrUnauthorized)
	page, err := l.ListJournal(ctx, access.JournalQuery{Campaign: "rain", Limit: 10})
	require.NoError(t, err)
	details := map[access.Action]map[string]any{} // entries of one millisecond have no order
	for _, e := range page.Entries {
		details[e.Action] = e.Details
		require.True(t, e.Who == "key:"+k.ID || e.Action == access.CreateCampaign, "%v", e)
	}
	require.Equal(t, map[string]any{"link": link.ID()}, details[access.EndLink])
	require.Equal(t, map[string]any{"why": "growth", "money": true, "ends": link.Expires.UTC().Format(time.RFC3339), "link": link.ID()},
		details[access.ShareCampaign])
}
