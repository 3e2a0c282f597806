package deliveries

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// hung is a hook of a Redis client. Calls about the first shard hang until a call about the last shard has been
// answered.
type hung struct {
	first, last string // parts of the keys of the first and the last shard
	passed      chan struct{}
	once        sync.Once
}

func newHung(first, last *store.Shard) *hung {
	tag := func(k *store.Shard) string {
		head, _, _ := strings.Cut(k.Keys.Meta(), "}")
		return head + "}"
	}
	return &hung{first: tag(first), last: tag(last), passed: make(chan struct{})}
}

func (h *hung) wait(ctx context.Context, text string, call func() error) error {
	if strings.Contains(text, h.first) {
		select {
		case <-h.passed:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Second):
			return errors.New("the call for the other shard did not come")
		}
	}
	err := call()
	if strings.Contains(text, h.last) {
		h.once.Do(func() { close(h.passed) })
	}
	return err
}

// DialHook implements redis.Hook.
func (h *hung) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (h *hung) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.wait(ctx, fmt.Sprint(cmd.Args()...), func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h *hung) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var all strings.Builder
		for _, cmd := range cmds {
			fmt.Fprint(&all, cmd.Args()...)
		}
		return h.wait(ctx, all.String(), func() error { return next(ctx, cmds) })
	}
}

// A sink and a campaign are paused on all shards concurrently, so one hanging shard does not delay the other shards.
func TestPausesGoToAllShardsAtOnce(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 4)
	a.Config.Deployment.Sinks, a.Config.Ledger.DSN = []string{"balance"}, ""
	plain := a.Redis()
	through := func(h *hung) {
		opts := plain.(*redis.Client).Options()
		client := redis.NewClient(opts)
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		client.AddHook(h)
		a.SetRedis(client)
	}
	through(newHung(a.Store().Shard(0), a.Store().Shard(3)))
	by := stream.Decision{By: "ann", Why: "maintenance"}
	out, err := Of(a).eachShard("balance", by, func(k *store.Shard) (bool, store.SinkControl, error) {
		return k.Group("balance").Pause(t.Context(), by)
	})
	require.NoError(t, err)
	require.True(t, out.Changed)
	require.Equal(t, 4, out.Pause.PausedShards)

	places := a.Store().Places("rain", 4)
	through(newHung(places[1].Shard, places[3].Shard)) // the home must not hang: it says where the other places are
	require.NoError(t, testkit.ErrOf(a.Store().Campaign("rain").Pause(t.Context(), stream.Decision{By: "ann", Why: "test"})))
	a.SetRedis(plain)
	for _, k := range a.Store().Places("rain", 4) {
		state, _, err := k.CampaignState(t.Context())
		require.NoError(t, err)
		require.Equal(t, "paused", state)
	}
}
