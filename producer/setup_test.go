package producer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// hopeless is the CallTimeout for calls that can't succeed. It allows several tries, even on a busy machine.
const hopeless = 2 * time.Second

// enough is how long a caller waits before it leaves. The grab is then in flight, even on a busy machine.
const enough = 700 * time.Millisecond

// bundle is a deployment, usually with one shard. admin connects directly to Redis, not through a proxy.
type bundle struct {
	server *testkit.RedisServer
	admin  redis.UniversalClient
	store  *store.Store
	k      *store.Shard
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, testkit.Redis(t), 1)
}

// setupOn returns a deployment of n shards on the server. Its k is the home shard of campaign rain.
func setupOn(t *testing.T, server *testkit.RedisServer, n int) *bundle {
	t.Helper()
	st := storetest.InitializedOn(t, server.Client(t), n)
	return &bundle{server: server, admin: st.Redis(), store: st, k: st.Home("rain").Shard}
}

func spec(id string, packets int64) hongbao.Campaign {
	return loaded.Rain(id, packets, hongbao.Amount(packets*10))
}

func (b *bundle) load(t *testing.T, c hongbao.Campaign, codes ...string) {
	t.Helper()
	_, err := loaded.Seeded(t.Context(), b.store, c, campaign.NewSeed(), codes...)
	require.NoError(t, err)
}

// over returns the deployment through another client, as another process has it.
func (b *bundle) over(rdb redis.UniversalClient) *deployment.Deployment {
	return deployment.Of(b.store.Over(rdb), zap.NewNop())
}

// producer returns a Producer that is closed when the test ends. change may change its Config.
func (b *bundle) producer(t *testing.T, change func(*producer.Config)) *producer.Producer {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(b.store, zap.NewNop())
	cfg.QueueTimeout = 20 * time.Second // on a busy machine a grab may wait for long
	if change != nil {
		change(&cfg)
	}
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// through returns a proxy in front of Redis, and a client that connects through it with this number of retries.
func (b *bundle) through(t *testing.T, retries int) (*proxy.Proxy, *redis.Client) {
	t.Helper()
	proxy := testkit.NewProxy(t, b.server.Addr)
	return proxy, b.server.Client(t, func(o *redis.Options) { o.Addr, o.MaxRetries = proxy.Addr, retries })
}

func (b *bundle) entries(t *testing.T) []stream.Entry {
	t.Helper()
	out, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	return out
}

// grants returns the grants in the stream, by user. It fails the test if a seq is missing or a packet is there twice.
func (b *bundle) grants(t *testing.T) map[string][]hongbao.Grant {
	t.Helper()
	out := map[string][]hongbao.Grant{}
	packets := map[string]bool{}
	next := int64(1)
	for _, e := range b.entries(t) {
		require.Equal(t, next, e.Seq)
		next = e.Last() + 1
		for _, g := range e.Grants {
			packet := fmt.Sprint(g.Campaign, g.Packet)
			require.False(t, packets[packet], "packet %s twice", packet)
			packets[packet] = true
			out[g.User] = append(out[g.User], g)
		}
	}
	return out
}

func grab(user, request string) *hongbao.Grab {
	return &hongbao.Grab{Campaign: "rain", User: user, RequestID: request}
}

// counted is a hook that counts commands whose text contains what, alone or in a pipeline.
type counted struct {
	what string
	but  string // ignores commands with this argument
	with string // if set, counts only commands with this argument
	n    atomic.Int64
}

func (h *counted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.note(cmd)
		return next(ctx, cmd)
	}
}

func (h *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func (h *counted) note(cmd redis.Cmder) {
	if slices.Contains(cmd.Args(), any(h.but)) || h.with != "" && !slices.Contains(cmd.Args(), any(h.with)) {
		return
	}
	if strings.Contains(fmt.Sprint(cmd.Args()[:min(2, len(cmd.Args()))]...), h.what) {
		h.n.Add(1)
	}
}

// counting returns a hook that counts commands, and a client with this hook.
func (b *bundle) counting(t *testing.T, what string) (*counted, *redis.Client) {
	t.Helper()
	c, rdb := &counted{what: what, but: b.k.Keys.Witnesses()}, b.server.Client(t)
	rdb.AddHook(c)
	return c, rdb
}
