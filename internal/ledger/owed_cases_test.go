package ledger

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
)

func isGone(context.Context) (bool, error) { return true, nil }

// owes returns what the ledger has of a sink on shard 0.
func (f *fixture) owes(t *testing.T, sink string) stream.Owed {
	t.Helper()
	all, err := f.ledger.Owed(t.Context(), 0)
	require.NoError(t, err)
	return all[sink]
}

// The first value wins until the sink is removed. A sink that is added again owes a second range, from its own beginning.
// The highest seq counts what lies before the ranges.
func testOwed(t *testing.T, f *fixture) {
	highest := func(want int64) {
		t.Helper()
		seq, err := f.ledger.HighestSeq(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, want, seq)
	}
	owe := func(first int64) { require.NoError(t, f.ledger.Owe(t.Context(), "kafka", 0, first)) }
	end := func(last int64) { require.NoError(t, f.ledger.EndOwing(t.Context(), "kafka", 0, last, isGone)) }
	require.Nil(t, f.owes(t, "kafka"))
	highest(0)
	owe(433)
	owe(900)
	owe(1)
	require.Equal(t, stream.Owed{{First: 433, Last: stream.Forever}}, f.owes(t, "kafka"))
	require.NoError(t, f.ledger.Owe(t.Context(), "kafka", 1, 2_000))
	require.NoError(t, f.ledger.Owe(t.Context(), "balance", 0, 1))
	highest(432)

	end(600)
	end(700)
	require.Equal(t, stream.Owed{{First: 433, Last: 600}}, f.owes(t, "kafka"), "the first end wins, too")
	highest(600)
	owe(813)
	require.Equal(t, stream.Owed{{First: 433, Last: 600}, {First: 813, Last: stream.Forever}}, f.owes(t, "kafka"))
	highest(812)
	end(812)
	require.Equal(t, stream.Owed{{First: 433, Last: 600}}, f.owes(t, "kafka"), "it was removed before it owed anything")
	owe(550)
	require.Equal(t, stream.Owed{{First: 433, Last: stream.Forever}}, f.owes(t, "kafka"), "its ranges meet")
	require.Equal(t, stream.Owed{{First: 1, Last: stream.Forever}}, f.owes(t, "balance"))

	rows, err := f.ledger.OwedRows(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 4)
	require.Equal(t, stream.SeqRange{First: 601, Last: stream.Forever}, rows[2].SeqRange)
	require.WithinDuration(t, time.Now(), rows[1].Ended, time.Minute)
	require.Zero(t, rows[2].Ended)
	require.Equal(t, stream.Owed{{First: 2_000, Last: stream.Forever}}, OwedBy(rows, "kafka", 1))
	require.ErrorContains(t, f.ledger.Owe(t.Context(), "kafka", 0, 0), "below 1")

	for _, seqs := range []struct{ first, last, want int64 }{{1_500, 2_500, 1_999}, {1_500, 1_999, 0}, {2_000, 2_500, 0}} {
		seq, err := f.ledger.HighestSeqIn(t.Context(), 1, stream.SeqRange{First: seqs.first, Last: seqs.last}, 9)
		require.NoError(t, err)
		require.Equal(t, seqs.want, seq, "%v", seqs)
	}
}

// Many workers add a sink again while many trimmers record that it was removed. A last Owe leaves one open range.
func testOwedAgain(t *testing.T, f *fixture) {
	var g errgroup.Group
	for i := range int64(8) {
		g.Go(func() error { return f.ledger.Owe(t.Context(), "kafka", 0, 10*i+1) })
		g.Go(func() error { return f.ledger.EndOwing(t.Context(), "kafka", 0, 10*i+5, isGone) })
	}
	require.NoError(t, g.Wait())
	require.NoError(t, f.ledger.Owe(t.Context(), "kafka", 0, 100))
	rows, err := f.ledger.OwedRows(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(stream.Forever), rows[len(rows)-1].Last)
	for i := range rows[1:] {
		require.Greater(t, rows[i+1].First, rows[i].Last, "%v", rows)
	}
}

// A worker creates the group while a trimmer records that its sink was removed. The trimmer then sees the group and
// changes nothing, or the worker waits and records a new range: the group is never there without an open range.
func testOwedBack(t *testing.T, f *fixture) {
	require.NoError(t, f.ledger.Owe(t.Context(), "kafka", 0, 1))
	back := func(context.Context) (bool, error) { return false, nil }
	require.NoError(t, f.ledger.EndOwing(t.Context(), "kafka", 0, 50, back))
	require.Equal(t, stream.Owed{{First: 1, Last: stream.Forever}}, f.owes(t, "kafka"))

	failed := func(context.Context) (bool, error) { return false, context.DeadlineExceeded }
	require.ErrorIs(t, f.ledger.EndOwing(t.Context(), "kafka", 0, 50, failed), context.DeadlineExceeded)
	require.Equal(t, stream.Owed{{First: 1, Last: stream.Forever}}, f.owes(t, "kafka"))

	var g errgroup.Group
	asked, inner := make(chan struct{}, 1), f.ledger.tables.Store
	f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Query: func(_ context.Context, sql string, _ int) {
		if strings.HasPrefix(sql, "SELECT first_seq FROM owed") {
			asked <- struct{}{}
		}
	}}
	created := func(context.Context) (bool, error) { // right after the trimmer has asked
		g.Go(func() error { return f.ledger.Owe(t.Context(), "kafka", 0, 60) })
		select {
		case <-asked:
		case <-time.After(time.Second / 5): // SQLite begins no other transaction
		}
		return true, nil
	}
	require.NoError(t, f.ledger.EndOwing(t.Context(), "kafka", 0, 50, created))
	require.NoError(t, g.Wait())
	f.ledger.tables.Store = inner
	require.Equal(t, stream.Owed{{First: 1, Last: 50}, {First: 60, Last: stream.Forever}}, f.owes(t, "kafka"))
}
