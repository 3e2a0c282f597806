package replay_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A replay of what a sink lacks leaves out what the sink does not owe, such as the history before it was added. A person
// who names these seqs gets them delivered.
func TestWhatASinkDoesNotOweIsLeftOut(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 50)
	owed := make([]stream.Owed, deadlettertest.Shards)
	for shard := range owed {
		w.trim(t, shard, 30)
		// Below the done floor the bits of an added sink count as set, too.
		_, err := w.Store.Shard(shard).Group("kafka").Ack(t.Context(),
			stream.OfCampaign("", stream.SeqRange{First: 1, Last: 50}), nil)
		require.NoError(t, err)
		owed[shard] = store.GroupBegin{First: 31}.Owed(nil)
	}
	missing := func(name string, filter replay.Filter) {
		lost, err := replay.FindLost(t.Context(), w.Store, "kafka")
		require.NoError(t, err)
		for shard := range owed {
			for seq := int64(31); seq <= 50; seq++ {
				if g := deadlettertest.Grant(shard, seq); seq != 40 {
					lost.Has(&g)
				}
			}
		}
		cfg := w.config(name)
		cfg.Owed, cfg.Only = owed, lost.Picks
		w.run(t, cfg, replay.Options{Filter: filter})
	}
	missing("lacks", replay.Filter{})
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Seq == 40 }), w.Target.Copies)

	shard := 0
	missing("gap", replay.Filter{Shard: &shard, Seqs: stream.SeqRange{First: 11, Last: 20}})
	require.Equal(t, w.events(func(g *hongbao.Grant) bool {
		return g.Seq == 40 || g.Shard == 0 && g.Seq >= 11 && g.Seq <= 20
	}), w.Target.Copies)
}
