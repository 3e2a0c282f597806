package consumer

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain() // does not return
	}
	testkit.Main(m)
}

const (
	group = "balance"
	soon  = 20 * time.Second // an upper bound for any wait, even on a busy machine
)

// bundle is a deployment for one test.
type bundle struct {
	rdb   *redis.Client
	addr  string // of Redis, for the clients of workers
	name  string
	store *store.Store
	seqs  []int64 // by shard: the seq of the last event that was added
}

func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return setupOn(t, testkit.Redis(t), n)
}

// setupOwn starts a Redis that the test may kill. An answered command is never lost, because it was written to disk
// first.
func setupOwn(t *testing.T, n int) (*bundle, *testkit.RedisServer) {
	t.Helper()
	r := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	b := setupOn(t, r, n)
	storetest.KeepOpen(t, b.store)
	return b, r
}

func setupOn(t *testing.T, r *testkit.RedisServer, n int) *bundle {
	t.Helper()
	rdb := r.Client(t)
	st := storetest.InitializedOn(t, rdb, n)
	return &bundle{rdb: rdb, addr: r.Addr, name: st.Space().Prefix, store: st, seqs: make([]int64, n)}
}

func (b *bundle) keys() *store.Shard { return b.store.Shard(0) }

// fields returns the fields of an entry with n grants, beginning with seq first. The grant with seq p is for packet p
// and user u<p>, and its amount is 100+p%7.
func fields(first int64, n int) []any {
	lines := make([]string, n)
	for i := range lines {
		p := first + int64(i)
		lines[i] = fmt.Sprintf("%d %d u%d - -", p, 100+p%7, p)
	}
	return testkit.Entry("grant", "rain", first, "1", "1700000000000",
		strings.Join(lines, "\n"))
}

// receipts returns the receipts of the grants of fields(first, n), as pairs of user and receipt.
func receipts(first int64, n int) []any {
	out := make([]any, 0, 2*n)
	for p := first; p < first+int64(n); p++ {
		out = append(out, fmt.Sprintf("u%d", p), fmt.Sprintf("%d %d %d 0 ", p, 100+p%7, p))
	}
	return out
}

// add writes one entry per argument to a shard, with that number of grants, and returns the entry ids. It also writes
// the receipts, as the grab script does.
func (b *bundle) add(t *testing.T, shard int, grants ...int) []string {
	t.Helper()
	ids, err := b.push(t.Context(), shard, grants...)
	require.NoError(t, err)
	return ids
}

// push does the work of add. It can be called from other goroutines, because it does not fail the test.
func (b *bundle) push(ctx context.Context, shard int, grants ...int) ([]string, error) {
	k := b.store.Shard(shard)
	pipe := b.rdb.TxPipeline()
	var cmds []*redis.StringCmd
	for _, n := range grants {
		cmds = append(cmds, pipe.XAdd(ctx, &redis.XAddArgs{Stream: k.Keys.Events(), Values: fields(b.seqs[shard]+1, n)}))
		pipe.HSet(ctx, k.Keys.Receipts("rain"), receipts(b.seqs[shard]+1, n)...)
		b.seqs[shard] += int64(n)
	}
	pipe.HSet(ctx, k.Keys.Campaign("rain"), "state", "open")
	pipe.HSet(ctx, k.Keys.Meta(), "seq", b.seqs[shard])
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	ids := make([]string, len(cmds))
	for i := range cmds {
		ids[i] = cmds[i].Val()
	}
	return ids, nil
}

// raw writes an entry with the given fields to shard 0.
func (b *bundle) raw(t *testing.T, values ...any) string {
	t.Helper()
	id, err := b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.keys().Keys.Events(), Values: values}).Result()
	require.NoError(t, err)
	return id
}

// reached sets the last seq and the epoch of shard 0. Entries up to this seq, also those written by raw, then count as
// real.
func (b *bundle) reached(t *testing.T, seq, epoch int64) {
	t.Helper()
	b.seqs[0] = seq
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), "seq", seq, "epoch", epoch).Err())
}

func repeat(n, times int) []int {
	out := make([]int, times)
	for i := range out {
		out[i] = n
	}
	return out
}

// client returns a Redis client for a worker. It retries as in production.
func (b *bundle) client(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(clientOptions(addr))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func clientOptions(addr string) *redis.Options {
	return &redis.Options{Addr: addr, DisableIdentity: true, ReadTimeout: 3 * time.Second, DialTimeout: 3 * time.Second}
}

// over returns the deployment through other clients, as another process has it.
func (b *bundle) over(t testing.TB, rdb, reads redis.UniversalClient) *deployment.Deployment {
	t.Helper()
	return at(t, store.Config{Redis: rdb, Reads: reads, Space: b.store.Space()})
}

// at returns a deployment with the id of all deployments in these tests.
func at(t testing.TB, cfg store.Config) *deployment.Deployment {
	t.Helper()
	cfg.Deployment = "test"
	st, err := store.New(cfg)
	require.NoError(t, err)
	return deployment.Of(st, zap.NewNop())
}

// config returns a Config with short polls and backoffs of 20 ms. The lease is long; tests that need a short lease set
// it.
func (b *bundle) config(t testing.TB, name string, h hongbao.Handler) Config {
	t.Helper()
	c := DefaultConfig()
	c.Deployment, c.Group, c.Consumer, c.Handler = b.over(t, b.client(t, b.addr), b.client(t, b.addr)), group, name, h
	quick(&c)
	return c
}

func quick(c *Config) {
	c.Block, c.Poll, c.Lease = 20*time.Millisecond, 20*time.Millisecond, 15*time.Second
	c.Backoff, c.MaxBackoff, c.MaxAttempts = 20*time.Millisecond, 80*time.Millisecond, 4
	c.DrainTimeout = 5 * time.Second
}

// pending waits until exactly n entries of shard 0 are pending.
func (b *bundle) pending(t testing.TB, n int64) {
	t.Helper()
	testkit.EventuallyOK(t, soon, func() error {
		p, err := b.rdb.XPending(context.Background(), b.keys().Keys.Events(), group).Result()
		if err == nil && p.Count != n {
			err = fmt.Errorf("%d pending, want %d: %v", p.Count, n, p.Consumers)
		}
		return err
	}, "pending")
}

// idle waits until all entries of the shard have been read and acked.
func (b *bundle) idle(t testing.TB, shard int) {
	t.Helper()
	k := b.store.Shard(shard)
	testkit.EventuallyOK(t, soon, func() error {
		groups, err := b.rdb.XInfoGroups(context.Background(), k.Keys.Events()).Result()
		if err != nil {
			return err
		}
		info, err := b.rdb.XInfoStream(context.Background(), k.Keys.Events()).Result()
		if err != nil {
			return err
		}
		for _, g := range groups {
			if g.Name == group && g.Pending == 0 && g.LastDeliveredID == info.LastGeneratedID {
				return nil
			}
		}
		return fmt.Errorf("groups %+v", groups)
	}, "shard %d: all read and acked", shard)
}

// holder returns which consumer of shard 0 owns a pending entry, and the entry's delivery count.
func (b *bundle) holder(t testing.TB, id string) (string, int64) {
	t.Helper()
	p, err := b.rdb.XPendingExt(context.Background(), &redis.XPendingExtArgs{
		Stream: b.keys().Keys.Events(), Group: group, Start: id, End: id, Count: 1,
	}).Result()
	require.NoError(t, err)
	if len(p) == 0 {
		return "", 0
	}
	return p[0].Consumer, p[0].RetryCount
}

// doneBits returns the seqs from 1 to n of shard 0 whose done bits are set.
func (b *bundle) doneBits(t testing.TB, n int64) []int64 {
	t.Helper()
	set, err := b.keys().Group(group).Done(context.Background(), stream.SeqRange{First: 1, Last: n})
	require.NoError(t, err)
	var out []int64
	for seq := int64(1); seq <= n; seq++ {
		if set.Has(seq) {
			out = append(out, seq)
		}
	}
	return out
}

func (b *bundle) dead(t testing.TB) []map[string]any {
	t.Helper()
	list, err := b.rdb.XRange(context.Background(), b.keys().Keys.Dead(group), "-", "+").Result()
	require.NoError(t, err)
	out := make([]map[string]any, len(list))
	for i := range list {
		out[i] = list[i].Values
	}
	return out
}
