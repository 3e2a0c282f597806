package store_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// moving is a hook that simulates a slot migration. The key meta is already on the other node while the commands that read
// this field are processed; the other keys are not.
type moving struct{ meta, field string }

var errAsk = errors.New("ASK 1 127.0.0.1:1")

func (moving) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (moving) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (m moving) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "hmget" && args[1] == m.meta && slices.Contains(args, any(m.field)) {
				*cmd.(*redis.SliceCmd) = *redis.NewSliceCmd(ctx, args...)
				cmd.SetErr(errAsk)
				err = errAsk
			}
		}
		return err
	}
}

// During a slot migration, a pipeline's read of meta fails with ASK while its read of the campaign succeeds. GrabTerms
// does not trust the campaign then, whether it could not check the shard's owner or whether the shard is open.
func TestMetaOnAnotherNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, field := range []string{"deployment", "opened"} {
		client := testkit.Redis(t).Client(t)
		client.AddHook(moving{b.k.Keys.Meta(), field})
		_, err := b.store.Over(client).Shard(0).Place("rain").GrabTerms(t.Context())
		require.ErrorIs(t, err, errAsk, field)
	}
}
