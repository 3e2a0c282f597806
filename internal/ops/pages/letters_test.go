package pages

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Pages name the campaigns that the ledger has, and group the dead letters that Redis has. The campaigns of a group are
// those of its letters, and its part selects them.
func TestPagesGroupLettersOfNamedCampaigns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "")
	ctx := t.Context()
	require.NoError(t, a.Store().Initialize(ctx, store.InitializeCall{Deployment: "test"}))
	apptest.Creates(t, a, "rain")
	apptest.Loads(t, a, "rain", hongbao.DurabilityFast, 1)
	s := NewSource(a)
	require.Empty(t, s.Titles(ctx, nil))
	titles := s.Titles(ctx, []string{"rain", "none", "rai_"})
	require.Len(t, titles, 1)
	require.NotEmpty(t, titles["rain"].Zone)

	for _, user := range []string{"u1", "u2"} {
		apptest.GrantsOn(t, a, a.Store().Shard(0), user)
	}
	k := a.Store().Shard(0)
	_, err := k.Group("balance").Create(ctx)
	require.NoError(t, err)
	_, err = k.Group("balance").ReadNew(ctx, "digger", 1000, 0)
	require.NoError(t, err)
	entries, err := k.Entries(ctx, "-", "+")
	require.NoError(t, err)
	for _, e := range entries {
		for i := range e.Grants {
			g := &e.Grants[i]
			_, err := k.DeadLetter(ctx, store.Letter{Group: "balance", Consumer: "digger", EntryID: e.ID, Grant: g, Last: i == len(e.Grants)-1,
				Class: hongbao.ClassPermanent, Reason: "the account of " + g.User + " is closed", Attempts: 3})
			require.NoError(t, err)
		}
	}
	found, err := s.LetterGroups(ctx, model.LetterFilter{Sink: "balance"})
	require.NoError(t, err)
	require.Len(t, found.Groups, 1)
	g := found.Groups[0]
	require.EqualValues(t, 2, g.Letters)
	require.Equal(t, []string{"rain"}, g.Campaigns)
	require.Zero(t, g.Unvalued)
	require.WithinDuration(t, time.Now(), g.Last, time.Minute)
	again, err := s.LetterGroups(ctx, model.LetterFilter{Sink: g.Sink, Class: g.Class, Reason: g.Part})
	require.NoError(t, err)
	require.Equal(t, found, again)
	held, err := s.Withheld(ctx)
	require.NoError(t, err)
	require.Empty(t, held)
}
