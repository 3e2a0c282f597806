package recovery_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// down is a Redis hook. Each command with this key fails, as if the key's node did not answer.
type down string

var errNodeDown = errors.New("the node does not answer")

func (key down) DialHook(next redis.DialHook) redis.DialHook { return next }

func (key down) has(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(string(key))) }

func (key down) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if key.has(cmd) {
			cmd.SetErr(errNodeDown)
			return errNodeDown
		}
		return next(ctx, cmd)
	}
}

func (key down) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, key.has) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errNodeDown)
		}
		return errNodeDown
	}
}

// One node has the mark of the key prefix, and does not answer. The shards on the other nodes still open.
func TestShardOpensWhileThePrefixIsAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.rdb.AddHook(down(w.store.Deployment()))
	w.restart(t, "")
	w.opens(t)
	require.NotZero(t, w.logs.FilterMessageSnippet("the mark of the key prefix").Len(), "the fault fired")
}

// A campaign over two shards is not loaded yet, and one of the two does not answer. The other shard still opens.
func TestShardOpensWhileAnotherIsAway(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 2)
	wide := w.idAt(1)
	w.order(t, wide, 0, 2)
	w.rdb.AddHook(down(w.store.Shard(1).Keys.Campaign(wide)))
	w.restart(t, "")
	w.opens(t)
}
