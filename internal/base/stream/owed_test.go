package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A group owes exactly the events in its ranges, and Not has exactly the others.
func TestOwed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var ranges []SeqRange
		for range rapid.IntRange(1, 4).Draw(rt, "ranges") {
			first := rapid.Int64Range(1, 30).Draw(rt, "first")
			last := rapid.OneOf(rapid.Int64Range(first, 40), rapid.Just(int64(Forever))).Draw(rt, "last")
			ranges = append(ranges, SeqRange{First: first, Last: last})
		}
		o := NewOwed(ranges)
		for _, seq := range []int64{1, 2, 5, 10, 20, 29, 30, 31, 39, 40, 41, Forever - 1} {
			in := func(list []SeqRange) (n int) {
				for _, r := range list {
					if r.Has(seq) {
						n++
					}
				}
				return n
			}
			require.Equal(rt, in(ranges) > 0, o.Owes(seq), "%v: %d", ranges, seq)
			require.Equal(rt, 1, in(o)+in(o.Not()), "%v: %d", ranges, seq)
		}
		require.Equal(rt, o.Owes(Forever-1), o.Now())
	})
}

func TestAGroupWithoutRecordOwesEverything(t *testing.T) {
	t.Parallel()
	o := NewOwed(nil)
	require.True(t, o.Owes(1) && o.Now())
	require.Empty(t, o.Not())
}
