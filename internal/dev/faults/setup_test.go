package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	lease = 3 * time.Second
	soon  = 60 * time.Second // longer than anything takes, even on a busy machine
)

// fixture is a Faults over a real Redis with one shard and a campaign of 1,000 packets. An echo server takes the
// place of Kafka.
type fixture struct {
	*Faults
	t     *testing.T
	rdb   *redis.Client
	store *store.Store
	shard *store.Shard
	crew  *crew
}

// crew implements Workers without processes.
type crew struct {
	mu   sync.Mutex
	list []local.Worker
}

func (c *crew) List() []local.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]local.Worker{}, c.list...)
}

func (c *crew) Kill(number int) error {
	c.set(number, 0)
	return nil
}

func (c *crew) set(number, pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list[number-1].PID = pid
}

func (c *crew) pids() (all []int) {
	for _, w := range c.List() {
		all = append(all, w.PID)
	}
	return all
}

func setup(t *testing.T) *fixture {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.Redis(t)
	f := &fixture{t: t, rdb: server.Client(t), crew: &crew{list: []local.Worker{{Number: 1, PID: 101}, {Number: 2, PID: 102}}}}
	space := hongbao.Space{Prefix: testkit.Prefix(t), Shards: 1}
	var err error
	f.store, err = store.New(store.Config{Redis: f.rdb, Space: space, Deployment: "test"})
	require.NoError(t, err)
	f.shard = f.store.Shard(0)
	require.NoError(t, f.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	require.NoError(t, loaded.Load(t.Context(), f.store, loaded.Rain("rain", 1000, 10_000), nil))
	f.Faults = newFaults(f.rdb, f.store, f.crew, &local.Servers{Redis: testkit.NewProxy(t, server.Addr),
		Kafka: testkit.NewProxy(t, echo(t))}, t.Logf)
	return f
}

// running runs do in the background until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

// echo starts a server that sends back what it receives.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// client returns a client that connects through the proxy.
func (f *fixture) client() *redis.Client {
	opts := *f.rdb.Options()
	opts.MaxRetries, opts.Addr = -1, f.redis.proxy.Addr
	rdb := redis.NewClient(&opts)
	f.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// deployment returns the deployment as a process of its own has it.
func (f *fixture) deployment() *deployment.Deployment {
	return deployment.Of(f.store.Over(f.client()), zap.NewNop())
}

// grab lets users grab, and returns how many packets each user got.
func (f *fixture) grab(users int) map[string]int {
	f.t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Deployment = f.deployment()
	p, err := producer.New(cfg)
	require.NoError(f.t, err)
	got := map[string]int{}
	for u := range users {
		user := fmt.Sprintf("u%d", u)
		answer, err := p.Grab(f.t.Context(), &hongbao.Grab{Campaign: "rain", User: user})
		require.NoError(f.t, err)
		require.Equal(f.t, hongbao.OutcomeGranted, answer.Outcome)
		got[user] = len(answer.Receipts)
	}
	require.NoError(f.t, p.Close(f.t.Context()))
	return got
}

// work runs a worker for a sink until the test ends.
func (f *fixture) work(sink, name string, handle func(context.Context, []hongbao.Grant) error) {
	f.t.Helper()
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Consumer = f.deployment(), sink, name
	cfg.Handler = hongbao.HandlerFunc(func(ctx context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		errs, err := make([]error, len(grants)), handle(ctx, grants)
		for i := range errs {
			errs[i] = err
		}
		return errs
	})
	cfg.Lease, cfg.Poll, cfg.Block = lease, 100*time.Millisecond, 100*time.Millisecond
	c, err := consumer.New(cfg)
	require.NoError(f.t, err)
	running(f.t, c.Run)
}
