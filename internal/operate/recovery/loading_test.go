package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// Redis loses the opening of a loaded campaign, and its first grants. The restore puts the grants back, which opens the
// campaign again. If Redis also lacks packets of the campaign, the shard stays frozen.
func TestLostOpeningOfACampaign(t *testing.T) {
	t.Parallel()
	for name, lacks := range map[string]bool{"all packets are loaded": false, "packets are missing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			campaign := w.shard().Keys.Campaign(id)
			loaded := w.rdb.HGet(t.Context(), campaign, "loaded").Val()
			require.NoError(t, w.rdb.HSet(t.Context(), campaign, "state", store.StateLoading).Err())
			if lacks {
				require.NoError(t, w.rdb.HIncrBy(t.Context(), campaign, "loaded", -1).Err())
			}
			old := w.older(t)
			require.NoError(t, w.rdb.HSet(t.Context(), campaign, "state", store.StateOpen, "loaded", loaded).Err())
			p := w.process(t)
			p.watch(t)
			won := p.wins(t, 10)
			w.restart(t, old)
			require.Equal(t, store.StateLoading, w.rdb.HGet(t.Context(), campaign, "state").Val(), "the fault fired")
			if lacks {
				w.staysFrozen(t)
				return
			}
			w.restores(t, w.guarded(), won)
			require.Equal(t, store.StateOpen, w.rdb.HGet(t.Context(), campaign, "state").Val())
			w.adds(t)
			require.EqualValues(t, 10, w.settles(t))
			p.wins(t, 5)
		})
	}
}
