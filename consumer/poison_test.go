package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestEntriesThatCannotBeReadAreDeadLettersAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	const at = "1700000000000"
	grant := func(lines string) []any { return testkit.Entry("grant", "rain", 90, 1, at, lines) }
	good := func() []any { return grant("1 5 ann - -") }
	many := grant("1 5 ann -")
	for i := range 5_000 {
		many = append(many, fmt.Sprintf("x%d", i), i)
	}
	bad := [][]any{
		{"3", "grant rain 90 1"}, // words are missing
		many,                     // a word is missing, and far too many fields
		grant("1 1e9 ann - -"),   // not plain digits
		grant("1 -5 ann - -"),    // negative
		grant("1 5 ann - - -"),   // one word too many
		grant(""),                // no grants
		grant("1 5 ann - -\n"),   // an empty line
		testkit.Entry("grant", "rain", 0, 1, at, "1 5 ann - -"),                  // seq 0
		testkit.Entry("grant", "rain", "9007199254740993", 1, at, "1 5 ann - -"), // above 2^53
		testkit.Entry("gift", "rain", 90, 1, at, "1 5 ann - -"),                  // no such kind
		testkit.Entry("grant", "{x}", 90, 1, at, "1 5 ann - -"),                  // no campaign id
		{"0", good()[1]},   // no such version
		{"1", good()[1]},   // no version of grants
		{"3.0", good()[1]}, // not a number
		testkit.Entry("epoch", "-", 90, 1, at, "89 89"),                              // it skips nothing
		{"\xff\x00", "\r\n$-1\r\n"},                                                  // anything at all
		testkit.Entry("grant", "rain", 90, 1, "99999999999999999999", "1 5 ann - -"), // a time out of range
	}
	for _, values := range bad {
		b.raw(t, values...)
	}
	b.add(t, 0, 2)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	dead := b.dead(t)
	require.Len(t, dead, len(bad))
	require.EqualValues(t, len(bad), w.Stats().Dead)
	for i := range dead {
		require.Equal(t, "permanent", dead[i]["class"])
		require.Equal(t, "1", dead[i]["attempts"])
		require.Contains(t, dead[i]["reason"], "can't be read")
	}
	require.Equal(t, "grant rain 90 1 "+at+" -\n1 1e9 ann - -", dead[2]["entry.3"], "with its fields")
	require.Contains(t, fmt.Sprint(dead[1]), "x4999")
}

func TestEntryOfANewerBuildBreaksTheShardAndIsNotSkipped(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	id := b.raw(t, "4", "something else")
	b.add(t, 0, 2)
	for _, name := range []string{"w1", "w2"} {
		w := start(t, b.config(t, name, newSink(nil)))
		w.awaitHealth(0, ShardBroken)
		err := w.stop()
		require.ErrorIs(t, err, stream.ErrNewerEntry)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
		holder, count := b.holder(t, id)
		require.Equal(t, "_retry/0", holder)
		require.Zero(t, count)
	}
	require.Empty(t, b.dead(t))
}

func TestCloseEntriesAreAcked(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	b.reached(t, 3, 1)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Campaign("rain"), "state", "closed", "close_seq", 3).Err())
	b.raw(t, testkit.Entry("close", "rain", 3, 1, 1700000000000, "2 203 0 0")...)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 2)
	require.Equal(t, []int64{1, 2, 3}, b.doneBits(t, 3), "the close's done bit is set when its entry is acked")
	require.Empty(t, b.dead(t))
}

func TestEntriesDeletedWhilePendingAreAnIncident(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 2, 2)
	b.vanish(t, "gone", 3)
	require.NoError(t, b.rdb.XDel(t.Context(), b.keys().Keys.Events(), ids[0]).Err())
	require.NoError(t, b.rdb.XTrimMinID(t.Context(), b.keys().Keys.Events(), ids[2]).Err())
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 2)
	require.EqualValues(t, 2, w.Stats().Vanished)
	require.Equal(t, 1, w.logged("INCIDENT"))
}

func TestEntryDeletedUnderTheHandlerIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 2)
	in, out := make(chan struct{}), make(chan struct{})
	s := newSink(func(context.Context, hongbao.Batch) []error { close(in); <-out; return nil })
	cfg := b.config(t, "w", s)
	cfg.Lease = keptLease
	w := start(t, cfg)
	<-in
	require.NoError(t, b.rdb.XDel(t.Context(), b.keys().Keys.Events(), ids[0]).Err())
	testkit.Eventually(t, soon, func() bool { return w.Stats().Vanished > 0 }, "noticed")
	begin := time.Now()
	testkit.Eventually(t, soon, func() bool { return time.Since(begin) > keptLease }, "more renewals")
	close(out)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	require.EqualValues(t, 1, w.Stats().Vanished)
	require.Zero(t, w.Stats().LeasesLost)
}

// An entry is deleted before it is parked. XCLAIM, which parks it, silently drops deleted entries from the pending
// list; the worker must count it all the same.
func TestEntryDeletedBeforeItIsParkedIsNotDroppedSilently(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2)
	tries := 0
	s := newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		if tries++; tries == 1 {
			_ = b.rdb.XDel(context.Background(), b.keys().Keys.Events(), ids[0])
		}
		return failGrants(func() error { return hongbao.Errorf(hongbao.ClassTransient, "not now") })(grants)
	})
	cfg := b.config(t, "w", s)
	cfg.Lease = keptLease
	w := start(t, cfg)
	b.pending(t, 1)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Vanished == 1 }, "counted")
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Zero(t, w.Stats().Parked)
	require.Equal(t, 1, w.logged("INCIDENT"))
}

func TestManyAbandonedEntriesAreTaken(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(1, 9_000)...)
	b.vanish(t, "gone", 9_000)
	_, err := b.keys().Group(group).Create(t.Context())
	require.NoError(t, err)
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Lease, cfg.MaxEntries, cfg.BatchGrants = 100*time.Millisecond, 10_000, 100_000
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return s.size() == 9_000 || closed(w.done) }, "all taken")
	require.NoError(t, w.stop())
	require.Equal(t, 9_000, s.size())
}
