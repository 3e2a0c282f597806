package deliveries

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// The status has what each configured sink does not owe: the events before it was added, and those between its removal
// and its return. It has nothing of a sink that owes every event, or that is not configured now.
func TestStatusNamesWhatASinkDoesNotOwe(t *testing.T) {
	t.Parallel()
	cfg := configstest.Config(t, "HONGBAO_LEDGER_DSN="+filepath.Join(t.TempDir(), "ledger.db"))
	cfg.Deployment.Sinks = []string{"balance", "kafka"}
	_, err := ledger.Migrate(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	a := apptest.Opened(t, cfg)
	a.SetLedger(l)
	owe := func(sink string, shard int, first int64) { require.NoError(t, l.Owe(t.Context(), sink, shard, first)) }
	var s Status
	Of(a).AddNotOwed(t.Context(), &s)
	require.Equal(t, []NotOwed{}, s.NotOwed)

	owe("balance", 0, 1)
	owe("kafka", 0, 101)
	owe("kafka", 1, 11)
	owe("gone", 0, 7)
	gone := func(context.Context) (bool, error) { return true, nil }
	require.NoError(t, l.EndOwing(t.Context(), "kafka", 1, 20, gone))
	owe("kafka", 1, 31)
	Of(a).AddNotOwed(t.Context(), &s)
	require.Len(t, s.NotOwed, 3)
	for i, want := range []NotOwed{
		{Sink: "kafka", First: 1, Last: 100},
		{Sink: "kafka", Shard: 1, First: 1, Last: 10},
		{Sink: "kafka", Shard: 1, First: 21, Last: 30},
	} {
		got := s.NotOwed[i]
		require.Equal(t, i < 2, got.Removed.IsZero())
		require.WithinDuration(t, time.Now(), got.Added, time.Minute)
		got.Added, got.Removed = time.Time{}, time.Time{}
		require.Equal(t, want, got)
	}
}

// One line sums up what a sink does not owe since it was added. Each later range has a line with its remedy.
func TestNotOwedText(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 2, 18, hour, 0, 0, 0, time.UTC) }
	require.Empty(t, NotOwedText([]NotOwed{}))
	require.Equal(t, []string{
		"sink kafka was added at 2026-02-18T09:00:00Z: it does not owe the 110 events before, on 2 shards; --json has " +
			"their seqs",
		"sink kafka does not owe events 21 to 30 of shard 1: it was removed at 2026-02-18T10:00:00Z, and added again at " +
			"2026-02-18T11:00:00Z; `hongbao replay NAME --to kafka --missing --shard 1 --seq 21-30` delivers them",
	}, NotOwedText([]NotOwed{
		{Sink: "kafka", First: 1, Last: 100, Added: at(8)},
		{Sink: "kafka", Shard: 1, First: 1, Last: 10, Added: at(9)},
		{Sink: "kafka", Shard: 1, First: 21, Last: 30, Removed: at(10), Added: at(11)},
	}))
}
