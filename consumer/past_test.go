package consumer

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

// past are the fields of a forged entry whose seqs the shard has come to.
func past(kind, campaign string, seq int64, g string) []any {
	return []any{"v", "1", "k", kind, "c", campaign, "q", seq, "e", "1", "t", "1700000000000", "g", g}
}

// A forged entry takes the seq of a real event that waits for its retry. Whatever it says, it has no effect, and
// the real event is delivered.
func TestForgedEntryTakesNoEventsPlace(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]any{
		"a close of its campaign":                 past("close", "rain", 2, "2 203 0 0"),
		"a close of a campaign that nobody knows": past("close", "nobody-knows", 2, "2 203 0 0"),
		"a grant of another packet":               past("grant", "rain", 2, "77 9 thief - -"),
		"the packet, for another user":            past("grant", "rain", 2, "2 102 thief - -"),
		"another user's grant":                    past("grant", "rain", 2, "1 101 u1 - -"),
		"its user, with another amount":           past("grant", "rain", 2, "2 900000 u2 - -"),
		"a part of an entry":                      past("grant", "rain", 1, "1 101 u1 - -\n2 102 thief - -"),
		"a grant of a campaign that nobody knows": past("grant", "nobody-knows", 2, "2 102 thief - -"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			b.add(t, 0, 3)
			var stolen, came atomic.Int64
			var open atomic.Bool
			s := newSink(func(ctx context.Context, grants []hongbao.Grant) []error {
				_ = thefts(&stolen)(ctx, grants)
				errs := make([]error, len(grants))
				for i := range grants {
					if grants[i].User == "u2" && !open.Load() {
						came.Add(1)
						errs[i] = hongbao.Errorf(hongbao.Transient, "not now")
					}
				}
				return errs
			})
			cfg := b.config(t, "w", s)
			cfg.MaxAttempts = 1000
			w := start(t, cfg)
			testkit.Eventually(t, soon, func() bool { return came.Load() > 0 }, "the real one came")
			id := b.raw(t, values...)
			b.pending(t, 1) // the forged one is dealt with
			testkit.Eventually(t, soon, func() bool { holder, _ := b.holder(t, id); return holder == "" && w.Stats().Parked > 1 }, "it is acked")
			before := came.Load()
			testkit.Eventually(t, soon, func() bool { return came.Load() > before }, "the real one comes again")
			open.Store(true)
			b.idle(t, 0)
			require.NoError(t, w.stop())
			require.Zero(t, stolen.Load(), "nothing of the forged entry reached the sink")
			s.onceEach(t, 3)
			require.Equal(t, []int64{1, 2, 3}, b.doneBits(t, 10))
			require.Len(t, b.dead(t), 1, "it is not dropped silently")
			require.EqualValues(t, 1, w.Stats().Forged)
		})
	}
}

// A forged entry with a seq whose event is done is told of too.
func TestForgedEntryOfWhatIsDone(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 3)
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	b.raw(t, past("grant", "rain", 2, "77 9 thief - -")...)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Zero(t, stolen.Load())
	s.onceEach(t, 3)
	require.Len(t, b.dead(t), 1)
}

// A copy of an event that was finished long ago, whose done bit is gone with the stream's past, is not brought to the sink again.
func TestCopyOfWhatLeftTheStream(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	w := start(t, b.config(t, "w", s))
	b.add(t, 0, repeat(1, 300)...)
	b.idle(t, 0)
	b.jump(t, lua.ChunkEvents)
	b.add(t, 0, repeat(1, 300)...)
	b.idle(t, 0)
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "1", b.chunks(t))
	b.raw(t, fields(7, 1)...)
	b.raw(t, past("grant", "nobody-knows", 8, "8 101 thief - -")...)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 600)
	require.Zero(t, stolen.Load())
	require.Len(t, b.dead(t), 2)
	require.Equal(t, "1", b.chunks(t))
}

// A forged entry that is the first one left in the stream does not have done bits deleted that are still needed.
func TestForgedEntryDoesNotMoveTheDoneBits(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 10)
	id := b.raw(t, past("grant", "rain", 2*lua.ChunkEvents+5, "77 9 thief - -")...)
	b.add(t, 0, 10)
	b.jump(t, 2*lua.ChunkEvents)
	b.add(t, 0, 10)
	s := newSink(failing(func(seq int64) error {
		if seq == 15 {
			return hongbao.Errorf(hongbao.Transient, "not now")
		}
		return nil
	}))
	cfg := b.config(t, "w", s)
	cfg.MaxAttempts = 1000
	w := start(t, cfg)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 29 && w.Stats().Forged == 1 }, "all but one are done")
	require.NoError(t, w.stop())
	require.NoError(t, b.rdb.XTrimMinID(t.Context(), b.keys().Events(), id).Err())
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "0 2", b.chunks(t), "the entry of events 11 to 20 is pending")
}

// A forged entry stands before the real event of its seq: somebody wrote it ahead of the grab. Both are in the stream when
// they are read, together or apart.
func TestForgedEntryAheadOfItsEvent(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		forged [][]any
		most   int // entries at once
	}{
		"together":                         {[][]any{past("grant", "rain", 3, "77 9 thief - -")}, 1000},
		"one by one":                       {[][]any{past("grant", "rain", 3, "77 9 thief - -")}, 1},
		"the whole of the real one":        {[][]any{past("grant", "rain", 3, "77 9 thief - -\n78 9 thief - -")}, 1000},
		"it fits, and so does one more":    {[][]any{past("grant", "rain", 3, "77 9 thief - -"), past("grant", "rain", 4, "78 9 thief - -")}, 3},
		"of a campaign that nobody knows":  {[][]any{past("grant", "nobody-knows", 3, "77 9 thief - -")}, 1000},
		"of nobody's campaign, one by one": {[][]any{past("grant", "nobody-knows", 3, "77 9 thief - -")}, 1},
		"a close":                          {[][]any{past("close", "rain", 3, "2 203 0 0")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			b.add(t, 0, 2)
			for _, values := range at.forged {
				b.raw(t, values...)
			}
			b.add(t, 0, 2, 1)
			var stolen atomic.Int64
			s := newSink(thefts(&stolen))
			cfg := b.config(t, "w", s)
			cfg.MaxEntries = at.most
			w := start(t, cfg)
			b.idle(t, 0)
			require.NoError(t, w.stop())
			require.Zero(t, stolen.Load())
			s.onceEach(t, 5)
			require.Equal(t, []int64{1, 2, 3, 4, 5}, b.doneBits(t, 10))
			require.Len(t, b.dead(t), len(at.forged), "nothing is dropped silently")
			require.EqualValues(t, len(at.forged), w.Stats().Forged)
		})
	}
}
