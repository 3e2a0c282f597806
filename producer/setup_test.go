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

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// hopeless is the CallTimeout of calls that can't succeed: it leaves time for several tries, on a busy machine too.
const hopeless = 2 * time.Second

// enough is how long a caller waits who leaves while their call is under way. The call is sent by then, on a busy
// machine too.
const enough = 700 * time.Millisecond

// bundle is one deployment, mostly of one shard. admin reads Redis directly, whatever path the producer uses.
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

// setupOn has n shards on a server. k is the home of campaign rain.
func setupOn(t *testing.T, server *testkit.RedisServer, n int) *bundle {
	t.Helper()
	st := storetest.FoundedOn(t, server.Client(t), n)
	return &bundle{server: server, admin: st.Redis(), store: st, k: st.Home("rain")}
}

func spec(id string, packets int64) hongbao.Campaign {
	return loaded.Rain(id, packets, hongbao.Amount(packets*10))
}

func (b *bundle) load(t *testing.T, c hongbao.Campaign, codes ...string) {
	t.Helper()
	_, err := loaded.Seeded(t.Context(), b.store, c, campaign.NewSeed(), codes...)
	require.NoError(t, err)
}

// producer makes a producer with the given changes, and closes it at the test's end.
func (b *bundle) producer(t *testing.T, change func(*producer.Config)) *producer.Producer {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = b.admin, b.store.Space(), "test"
	if change != nil {
		change(&cfg)
	}
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// through is a client that goes through a proxy and tries each command several more times.
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

// grants returns all grants of the stream, by user. The seqs must be dense, and no packet may be there twice.
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

// counted counts the commands whose text contains what, alone or in a pipeline.
type counted struct {
	what string
	but  string // calls with this argument are not counted
	with string // when set, only calls with this argument are counted
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

// counting is a client that counts commands.
func (b *bundle) counting(t *testing.T, what string) (*counted, *redis.Client) {
	t.Helper()
	c, rdb := &counted{what: what, but: b.k.Keys.Witnesses()}, b.server.Client(t)
	rdb.AddHook(c)
	return c, rdb
}
