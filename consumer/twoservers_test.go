package consumer

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A name of the old primary already leads to the new one, which was opened in a later epoch. But a worker's connection
// for blocking reads still leads to the old one. The sink must not get its entries as entries of the later epoch:
// otherwise the ledger's fence would not leave out a grant that Redis has lost.
func TestReadsFromTheOldPrimary(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	rdb := testkit.NewRedis(t, testkit.RedisOptions{}).Client(t)
	st, err := store.New(store.Config{Redis: rdb, Space: b.store.Space(), Deployment: "test"})
	require.NoError(t, err)
	require.NoError(t, st.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	old := &bundle{rdb: rdb, addr: rdb.Options().Addr, store: st, seqs: make([]int64, 1)}
	_, err = st.Shard(0).Group(group).Create(t.Context())
	require.NoError(t, err)
	old.add(t, 0, 3, 2)
	b.reached(t, 80, 2)

	var to atomic.Value
	to.Store(old.addr)
	options := clientOptions("")
	options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, to.Load().(string))
	}
	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.MaxEntries = 1
	reads := redis.NewClient(options)
	t.Cleanup(func() { _ = reads.Close() })
	cfg.Deployment = b.over(t, b.client(t, b.addr), reads)
	w := start(t, cfg)
	old.pending(t, 2)
	testkit.Eventually(t, soon, func() bool { return w.logged("shard waits") > 0 || s.size() > 0 }, "a repeat waits")
	require.Equal(t, 1, w.logged("opened again"))
	to.Store(b.addr)
	require.NoError(t, rdb.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	b.add(t, 0, 4)
	b.idle(t, 0)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done >= 4 }, "the new primary's entry is finished")
	require.NoError(t, w.stop())
	require.Equal(t, 4, s.size(), "no grant of the old primary reached the sink")
	require.Empty(t, b.dead(t))
}
