package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

func TestHoles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.Int64Range(0, 3000).Draw(t, "last")
		added := map[int64]bool{}
		var s, ranges seqs
		for _, r := range rapid.SliceOfN(rapid.Custom(func(t *rapid.T) stream.SeqRange {
			first := rapid.Int64Range(1, 3200).Draw(t, "first")
			return stream.SeqRange{First: first, Last: first + rapid.Int64Range(0, 300).Draw(t, "len")}
		}), 0, 12).Draw(t, "runs") {
			for seq := r.First; seq <= r.Last; seq++ {
				require.Equal(t, !added[seq], s.add(seq))
				added[seq] = true
			}
			ranges.addAll([]stream.SeqRange{r})
		}
		var want []stream.SeqRange
		for seq := int64(1); seq <= last; seq++ {
			require.Equal(t, added[seq], s.has(seq))
			if added[seq] {
				continue
			}
			if n := len(want); n > 0 && want[n-1].Last == seq-1 {
				want[n-1].Last = seq
				continue
			}
			want = append(want, stream.SeqRange{First: seq, Last: seq})
		}
		require.Equal(t, want, s.holes(last))
		require.Equal(t, want, ranges.holes(last))
	})
}

// A forged seq allocates one page. Neither memory nor time grows with the seq.
func TestHolesFarAway(t *testing.T) {
	t.Parallel()
	var s seqs
	far := int64(hongbao.MaxAmount)
	s.add(1)
	s.add(far)
	require.Equal(t, []stream.SeqRange{{First: 2, Last: far - 1}}, s.holes(far))
	require.Len(t, s.words.pages, 2)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Config{Topic: noTopic{}, TopicGroup: "Kafka", MaxListed: 0}, Options{})
	require.ErrorContains(t, err, "Store is required")
	require.ErrorContains(t, err, `TopicGroup "Kafka"`)
	require.ErrorContains(t, err, "MaxListed is 0")
	require.NotContains(t, err.Error(), "LedgerGroup")
	_, err = Run(t.Context(), Config{}, Options{Wait: -1, Campaigns: []string{"../x"}})
	require.ErrorContains(t, err, "Wait is -1ns")
	require.ErrorContains(t, err, `campaign "../x"`)
}

type noTopic struct{ Topic }

// A place's snapshot is two generations older than the newest one: it does not say how much of the generation in
// between is dealt. settled returns 0 then.
func TestSettledWhileTwoTopUpsCome(t *testing.T) {
	t.Parallel()
	place := func(generation, base, share int64) *snapshot {
		return &snapshot{state: store.StateOpen, places: 2, packets: 2 * share, generation: generation, dealt: generation,
			base: base, share: share}
	}
	for generation, want := range map[int64]int64{1: 0, 2: 80} {
		behind := place(generation, 25*(generation-1), 25+15*(generation-1))
		c := &campaign{on: map[int]*snapshot{0: behind, 1: place(3, 40, 50)}}
		packets, steady := c.settled()
		require.False(t, steady)
		require.Equal(t, want, packets, "generation %d", generation)
	}
}
