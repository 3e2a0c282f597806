package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

func testJournal(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	begin := time.Date(2026, 2, 17, 20, 0, 0, 0, time.UTC)
	var all []access.Entry
	for i := range 25 {
		e := access.NewEntry(access.As(ctx, access.Actor{Who: fmt.Sprintf("key:k%d", i%2), RequestID: "r1"}), access.PauseCampaign)
		e.Time = begin.Add(time.Duration(i/3) * time.Second) // three entries at each time
		e.Campaign, e.Sink = fmt.Sprintf("rain%d", i%3), "balance"
		e.Details = map[string]any{"why": "it 🧧 \"rains\"\n", "n": float64(i)}
		e.End(nil)
		all = append(all, e)
	}
	require.NoError(t, l.Record(ctx, all...))
	changed := all[0]
	changed.Who = "mallory"
	require.NoError(t, l.Record(ctx, changed, all[1]), "an entry is written once")

	read := func(q access.JournalQuery) (list []access.Entry) {
		for {
			p, err := l.Journal(ctx, q)
			require.NoError(t, err)
			require.LessOrEqual(t, len(p.Entries), q.Limit)
			list = append(list, p.Entries...)
			if q.After = string(p.Next); p.Next == "" {
				return list
			}
		}
	}
	for _, limit := range []int{1, 7, 25, 1000} {
		list := read(access.JournalQuery{Limit: limit})
		require.ElementsMatch(t, all, list)
		for i := range list[1:] {
			a, b := &list[i], &list[i+1]
			require.True(t, a.Time.After(b.Time) || a.Time.Equal(b.Time) && a.ID > b.ID)
		}
	}
	for _, e := range read(access.JournalQuery{Limit: 4, Campaign: "rain1", Who: "key:k1", Since: begin.Add(2 * time.Second)}) {
		require.Equal(t, []string{"rain1", "key:k1"}, []string{e.Campaign, e.Who})
		require.False(t, e.Time.Before(begin.Add(2*time.Second)))
	}
	require.Len(t, read(access.JournalQuery{Limit: 100, Campaign: "rain1"}), 8)
	require.Len(t, read(access.JournalQuery{Limit: 100, Since: begin.Add(8 * time.Second)}), 1)
	require.Empty(t, read(access.JournalQuery{Limit: 100, Who: "nobody"}))
	for _, bad := range []access.JournalQuery{{}, {Limit: 1001}, {Limit: 1, After: "x"}, {Limit: 1, After: "7-"}, {Limit: 1,
		After: "x-y"}} {
		_, err := l.Journal(ctx, bad)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%+v", bad)
	}

	long := access.NewEntry(ctx, access.Replay)
	long.Details = map[string]any{"list": strings.Repeat("x", maxDetails)}
	long.End(nil)
	require.NoError(t, l.Record(ctx, long))
	require.Equal(t, map[string]any{"left_out": "too long"}, read(access.JournalQuery{Limit: 1})[0].Details)
}

// testJournalTogether writes an entry in the transaction of the change that it describes: both exist or neither does.
// AfterCommit calls its function only after a commit.
func testJournalTogether(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	apart := f.Database.Dialect().Name != sqlite.Name
	exists := func() bool {
		t.Helper()
		_, found, err := f.Ledger.Campaign(ctx, "rain")
		require.NoError(t, err)
		return found
	}
	try := func(fails error) (called bool, err error) {
		err = f.Tables().Together(ctx, func(ctx context.Context) error {
			c := ledger.Campaign(ledgertest.Canonical(t, ledgertest.Spec("rain", 3)))
			if _, err := f.Ledger.CreateCampaign(ctx, c); err != nil {
				return err
			}
			require.NoError(t, tables.AfterCommit(ctx, func(ctx context.Context) error {
				called = true
				require.True(t, exists(), "the campaign is committed")
				return l.Record(ctx) // this write is outside the transaction
			}))
			require.False(t, called)
			if err := l.Record(ctx, access.NewEntry(ctx, access.CreateCampaign)); err != nil {
				return err
			}
			if apart { // on SQLite this second writer would wait for the first one
				require.NoError(t, l.Record(tables.WithoutTogether(ctx), access.NewEntry(ctx, access.LoadCampaign)))
			}
			return fails
		})
		return called, err
	}
	actions := func() (list []access.Action) {
		p, err := l.Journal(ctx, access.JournalQuery{Limit: 100})
		require.NoError(t, err)
		for _, e := range p.Entries {
			list = append(list, e.Action)
		}
		return list
	}
	no := errors.New("no")
	called, err := try(no)
	require.ErrorIs(t, err, no)
	require.False(t, called)
	require.False(t, exists())
	if apart {
		require.Equal(t, []access.Action{access.LoadCampaign}, actions())
	} else {
		require.Empty(t, actions())
	}
	called, err = try(nil)
	require.NoError(t, err)
	require.True(t, called)
	require.Contains(t, actions(), access.CreateCampaign)
}
