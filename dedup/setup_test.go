package dedup_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type bundle struct {
	rdb    *redis.Client
	layout *shards.Layout
}

func setup(t *testing.T) *bundle {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	layout, err := shards.NewLayout(hongbao.Space{Prefix: testkit.Prefix(t), Shards: 4})
	require.NoError(t, err)
	b := &bundle{rdb: testkit.Redis(t).Client(t), layout: layout}
	require.NoError(t, shards.Found(t.Context(), b.rdb, layout, shards.FoundCall{Deployment: "test"}))
	for i := range layout.Len() { // as if they had come a long way
		require.NoError(t, b.rdb.HSet(t.Context(), layout.Shard(i).Meta(), "seq", 1<<40).Err())
	}
	return b
}

func (b *bundle) once(t *testing.T, lease, keep time.Duration) *dedup.Once {
	t.Helper()
	o, err := dedup.NewOnce(dedup.OnceConfig{Redis: b.rdb, Space: b.layout.Space, Name: "sms", Lease: lease, Keep: keep})
	require.NoError(t, err)
	return o
}
