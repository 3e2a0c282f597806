package store_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// moving is a hook that simulates a slot migration: the key meta is already on the other node, the other keys are
// not.
type moving struct{ meta string }

var errAsk = errors.New("ASK 1 127.0.0.1:1")

func (moving) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (moving) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (m moving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "hmget" && strings.HasSuffix(args[1].(string), m.meta) {
				*cmd.(*redis.SliceCmd) = *redis.NewSliceCmd(ctx, args...)
				cmd.SetErr(errAsk)
				err = errAsk
			}
		}
		return err
	}
}

// During a slot migration, a pipeline's read of meta fails with ASK while its other reads succeed. The functions of
// AskBelongs and AskOpen return that error.
func TestMetaOnAnotherNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := testkit.Redis(t).Client(t)
	client.AddHook(moving{b.k.Keys.Meta()})
	pipe := client.Pipeline()
	belongs := b.k.AskBelongs(t.Context(), pipe)
	open := b.store.Over(client).Shard(0).AskOpen(t.Context(), pipe)
	state := pipe.HMGet(t.Context(), b.k.Keys.Campaign("rain"), "state")
	_, err := pipe.Exec(t.Context())
	require.ErrorIs(t, err, errAsk)
	require.NoError(t, state.Err(), "the campaign is still here")
	require.ErrorContains(t, belongs("test"), "ASK")
	require.ErrorContains(t, open(), "ASK")
}
