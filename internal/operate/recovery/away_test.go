package recovery_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// away is a node that does not answer: whoever asks for its key meets an outage.
type away string

var errAway = errors.New("nobody answers")

func (key away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (key away) has(cmd redis.Cmder) bool { return slices.Contains(cmd.Args(), any(string(key))) }

func (key away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if key.has(cmd) {
			cmd.SetErr(errAway)
			return errAway
		}
		return next(ctx, cmd)
	}
}

func (key away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, key.has) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(errAway)
		}
		return errAway
	}
}

// The mark of the prefix lies on one node: while that is away, the shards of the others open all the same.
func TestShardOpensWhileThePrefixIsAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.rdb.AddHook(away(w.store.Deployment()))
	w.restart(t, "")
	w.opens(t)
	require.NotZero(t, w.logs.FilterMessageSnippet("the mark of the key prefix").Len(), "the fault fired")
}

// A campaign over several shards that nobody has loaded yet does not keep a shard frozen while another one is away.
func TestShardOpensWhileAnotherIsAway(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 2)
	wide := w.idAt(1)
	w.order(t, wide, 0, 2)
	w.rdb.AddHook(away(w.store.Shard(1).Keys.Campaign(wide)))
	w.restart(t, "")
	w.opens(t)
}
