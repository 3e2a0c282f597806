package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// refusesDeletes is a Redis hook that refuses to delete keys outside of scripts.
type refusesDeletes struct{}

func (refusesDeletes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (refusesDeletes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "del" || cmd.Name() == "unlink" {
			return errors.New("the process dies")
		}
		return next(ctx, cmd)
	}
}

func (refusesDeletes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// An opening deletes the evidence in the step that opens the shard. A second step could come after the next freeze, and
// delete evidence that is new.
func TestOpeningDeletesTheEvidence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	b.begin(t)
	require.NoError(t, b.rdb.HDel(ctx, b.k.Keys.Meta(), "seen").Err())
	require.NoError(t, store.WitnessOf(ctx, b.k))
	require.Len(t, b.evidence(t), 1)
	token, err := storetest.Token(ctx, b.k)
	require.NoError(t, err)
	rdb := redis.NewClient(b.rdb.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	rdb.AddHook(refusesDeletes{})
	opened, err := b.store.Over(rdb).Shard(b.k.Index()).Reopen(ctx, &store.Reopening{
		Was: store.Frozen{Seq: 1, Epoch: 1, Token: token}, Epoch: 2, Last: store.ChunkEvents - 1, Known: 1, Evidence: store.AnyEvidence})
	require.NoError(t, err)
	require.True(t, opened)
	require.Zero(t, b.rdb.Exists(ctx, b.k.Keys.Evidence()).Val())
}

// A process had to forget a grant, so its evidence is incomplete. It sends the rest once to each attempt: an attempt that
// gets new evidence again and again never opens the shard.
func TestIncompleteEvidenceIsSentOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	_, dropped := store.Forget(b.k, 1, 0, time.Now().Add(2*time.Minute))
	require.EqualValues(t, 1, dropped)
	b.grab(t, "rain", "u2/r2")
	b.begin(t)
	for range 3 {
		require.NoError(t, store.WitnessOf(ctx, b.k))
		require.EqualValues(t, 1, b.rdb.LLen(ctx, b.k.Keys.Evidence()).Val())
	}
}
