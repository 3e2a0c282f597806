package subscriber

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Random events are added to a position and to a map, and both must agree. Sometimes the position is marshaled and
// parsed in between.
func TestPositionIsASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, model := position{}, map[int64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			seq := rapid.Int64Range(1, 120).Draw(t, "seq")
			want := sightFresh
			if model[seq] {
				want = sightSeen
			}
			require.Equal(t, want, p.Look(seq))
			p.Add(seq)
			model[seq] = true
			b, err := p.MarshalBinary()
			require.NoError(t, err)
			p = position{}
			require.NoError(t, p.UnmarshalBinary(b))
		}
		for seq := range int64(121) {
			require.Equal(t, model[seq], p.Look(seq) == sightSeen && seq > 0)
		}
		var last int64
		for i, r := range p.runs {
			require.True(t, r.First <= r.Last && (i == 0 || r.First > last+1), "runs ascend with holes between them: %v", p.runs)
			last = r.Last
		}
	})
}

// A parked event arrives long after later events. The position must not count it as seen, as a plain high-water mark
// would.
func TestPositionKnowsHoles(t *testing.T) {
	t.Parallel()
	var p position
	for seq := int64(1); seq <= 1_000_000; seq++ {
		if seq != 17 {
			p.Add(seq)
		}
	}
	require.Equal(t, sightFresh, p.Look(17))
	require.Equal(t, sightSeen, p.Look(16))
	b, err := p.MarshalBinary()
	require.NoError(t, err)
	require.Less(t, len(b), 16)
	p.Add(17)
	require.Equal(t, []stream.SeqRange{{First: 1, Last: 1_000_000}}, p.runs)
}

// A position with too many runs forgets its lowest events. It must then return sightTooOld for them.
func TestPositionBound(t *testing.T) {
	t.Parallel()
	var p position
	for i := range int64(maxRuns) {
		p.Add(10 + 3*i)
	}
	require.Zero(t, p.floor)
	require.Equal(t, sightFresh, p.Look(5))
	p.Add(10 + 3*maxRuns)
	require.EqualValues(t, 12, p.floor)
	require.Len(t, p.runs, maxRuns)
	for _, seq := range []int64{5, 10, 11, 12} {
		require.Equal(t, sightTooOld, p.Look(seq), seq)
		p.Add(seq)
	}
	require.Equal(t, sightSeen, p.Look(13))
	require.Equal(t, sightFresh, p.Look(14))
	require.Len(t, p.runs, maxRuns, "an event that is too old is not added")
	b, err := p.MarshalBinary()
	require.NoError(t, err)
	require.LessOrEqual(t, len(b), 16<<10)
	var q position
	require.NoError(t, q.UnmarshalBinary(b))
	require.Equal(t, p, q)
}

func TestPositionRefusesOtherBytes(t *testing.T) {
	t.Parallel()
	var good position
	good.Add(3)
	good.Add(7)
	whole, err := good.MarshalBinary()
	require.NoError(t, err)
	for name, b := range map[string][]byte{
		"cut": whole[:len(whole)-1], "longer": append(append([]byte{}, whole...), 0), "version": {2, 0, 0},
		"runs that touch": {1, 0, 2, 0, 0, 0, 0},
		"too many runs":   {1, 0, 0x81, 0x20}, "beyond 2^53": {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
		"no varint": {0x80}, "text": []byte("hello"),
	} {
		p := good
		require.Error(t, p.UnmarshalBinary(b), name)
		require.Equal(t, good, p, name)
	}
	require.NoError(t, good.UnmarshalBinary(nil))
	require.Empty(t, good.runs)
}

func FuzzPosition(f *testing.F) {
	var p position
	for _, seq := range []int64{1, 2, 9, 300, int64(hongbao.MaxAmount)} {
		p.Add(seq)
		b, err := p.MarshalBinary()
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p position
		if p.UnmarshalBinary(b) != nil {
			return
		}
		out, err := p.MarshalBinary()
		require.NoError(t, err)
		var q position
		require.NoError(t, q.UnmarshalBinary(out))
		require.Equal(t, p, q)
		for _, r := range p.runs {
			require.Equal(t, sightSeen, p.Look(r.Last))
			require.Equal(t, sightFresh, p.Look(r.Last+1))
		}
	})
}
