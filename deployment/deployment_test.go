package deployment_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func config(addrs ...string) deployment.Config {
	return deployment.Config{ID: "test", Space: hongbao.Space{Prefix: "hb", Shards: 3}, Log: zap.NewNop(),
		Redis: &redis.UniversalOptions{Addrs: addrs}}
}

func TestOpenNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := deployment.Open(deployment.Config{})
	for _, part := range []string{"ID", "key prefix", "Redis"} {
		require.ErrorContains(t, err, part)
	}
	for what, spoil := range map[string]func(*redis.UniversalOptions){
		"ReadOnly":       func(o *redis.UniversalOptions) { o.ReadOnly = true },
		"RouteByLatency": func(o *redis.UniversalOptions) { o.RouteByLatency = true },
		"RouteRandomly":  func(o *redis.UniversalOptions) { o.RouteRandomly = true },
		"IsClusterMode":  func(o *redis.UniversalOptions) { o.Addrs = []string{"a:1", "b:1"} },
	} {
		c := config("a:1")
		spoil(c.Redis)
		_, err := deployment.Open(c)
		require.ErrorContains(t, err, what)
	}
	c, down := config("a:1"), errors.New("no exporter")
	c.Instrument = func(redis.UniversalClient) error { return down }
	_, err = deployment.Open(c)
	require.ErrorIs(t, err, down)
}

// Each kind of client has the options that producers and consumers rely on. The second client waits longer than any
// read of a consumer, and has a connection for each shard.
func TestClients(t *testing.T) {
	t.Parallel()
	type options struct {
		timeout         time.Duration
		pool            int
		context, routed bool
	}
	of := func(c redis.UniversalClient) options {
		switch c := c.(type) {
		case *redis.Client:
			o := c.Options()
			return options{o.ReadTimeout, o.PoolSize, o.ContextTimeoutEnabled, false}
		case *redis.ClusterClient:
			o := c.Options()
			require.Equal(t, time.Second, o.ClusterStateReloadInterval)
			return options{o.ReadTimeout, o.PoolSize, o.ContextTimeoutEnabled, o.ReadOnly || o.RouteByLatency || o.RouteRandomly}
		}
		t.Fatalf("%T", c)
		return options{}
	}
	for kind, change := range map[string]func(*redis.UniversalOptions){
		"server":   func(*redis.UniversalOptions) {},
		"cluster":  func(o *redis.UniversalOptions) { o.Addrs, o.IsClusterMode = []string{"a:1", "b:1"}, true },
		"one node": func(o *redis.UniversalOptions) { o.IsClusterMode = true },
		"sentinel": func(o *redis.UniversalOptions) { o.Addrs, o.MasterName = []string{"a:1", "b:1"}, "main" },
	} {
		c := config("a:1")
		change(c.Redis)
		var clients []options
		c.Instrument = func(r redis.UniversalClient) error { clients = append(clients, of(r)); return nil }
		d, err := deployment.Open(c)
		require.NoError(t, err, kind)
		require.Len(t, clients, 2, kind)
		require.Equal(t, []any{true, false}, []any{clients[0].context, clients[0].routed}, kind)
		require.Equal(t, options{10 * time.Second, 48, true, false}, clients[1], kind)
		cfg := consumer.DefaultConfig()
		cfg.Deployment, cfg.Group, cfg.Block = d, "mail", 5*time.Second
		cfg.Handler = hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error { return nil })
		_, err = consumer.New(cfg)
		require.NoError(t, err, "the longest Block that a consumer accepts; %s", kind)
		require.NoError(t, d.Close(), kind)
	}
}

// A first program grabs, and go-redis logs nothing.
func TestFirstRunIsQuiet(t *testing.T) { //nolint:paralleltest // it replaces the logger of go-redis
	if testing.Short() {
		t.Skip("needs a server")
	}
	var said bytes.Buffer
	redis.SetLogger(&logger{log.New(&said, "", 0)})
	defer redis.SetLogger(&logger{log.New(io.Discard, "", 0)})
	st := storetest.Initialized(t, 1)
	d, err := deployment.Open(deployment.Config{ID: "test", Space: st.Space(),
		Redis: &redis.UniversalOptions{Addrs: []string{testkit.Redis(t).Addr}}})
	require.NoError(t, err)
	cfg := producer.DefaultConfig()
	cfg.Deployment = d
	p, err := producer.New(cfg)
	require.NoError(t, err)
	a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: "rain", User: "u1", RequestID: "r1"})
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeUnknownCampaign, a.Outcome)
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, d.Close())
	require.Empty(t, said.String())
}

type logger struct{ *log.Logger }

func (l *logger) Printf(_ context.Context, format string, v ...any) { l.Logger.Printf(format, v...) }

// Without a logger, alarms are written to standard error.
func TestDefaultLog(t *testing.T) { //nolint:paralleltest // it replaces standard error
	r, w, err := os.Pipe()
	require.NoError(t, err)
	was := os.Stderr
	os.Stderr = w
	defer func() { os.Stderr = was }()
	c := config("a:1")
	c.Log = nil
	d, err := deployment.Open(c)
	require.NoError(t, err)
	d.Log().Info("working")
	d.Log().Error("ALARM: Redis has lost grants")
	require.NoError(t, d.Close())
	require.NoError(t, w.Close())
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Contains(t, string(said), "ALARM")
	require.NotContains(t, string(said), "working")
}
