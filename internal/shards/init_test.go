package shards_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

func TestInitRefusesAnotherDeployment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, shards.Init(t.Context(), b.rdb, b.space, "test"))
	before := b.dump(t)
	require.ErrorContains(t, shards.Init(t.Context(), b.rdb, b.space, "other"), `deployment is "test"`)
	more, err := lua.NewSpace(b.prefix, 2)
	require.NoError(t, err)
	same := more.Shard(0).Meta() == b.k.Meta()
	require.True(t, same, "shard 0 has the same tag whatever the number of shards")
	require.ErrorContains(t, shards.Init(t.Context(), b.rdb, more, "test"), `shards is "1"`)
	require.Equal(t, before, b.dump(t))
}

// The names of the shards' keys depend on their number: another number would find an empty deployment, and load every campaign
// again.
func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	rdb := testkit.Redis(t).Client(t)
	for _, from := range []int{1, 2, 4, 16, 64} {
		for _, to := range []int{1, 2, 3, 4, 8, 16, 32, 64} {
			if from == to {
				continue
			}
			prefix := testkit.Prefix(t)
			first, err := lua.NewSpace(prefix, from)
			require.NoError(t, err)
			second, err := lua.NewSpace(prefix, to)
			require.NoError(t, err)
			require.NoError(t, shards.Init(t.Context(), rdb, first, "d"))
			require.ErrorContains(t, shards.Init(t.Context(), rdb, second, "d"), "belongs to something else", "%d, then %d shards", from, to)
		}
	}
}
