package ledger

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// opened initializes a deployment whose shard 3 is open in epoch 1, and creates campaign rain.
func (f *fixture) opened(t *testing.T, packets int64) {
	t.Helper()
	_, err := f.ledger.Initialize(t.Context(), Deployment{ID: "prod", KeyPrefix: "hb", Shards: 6})
	require.NoError(t, err)
	require.NoError(t, f.ledger.SetShard(t.Context(), 3, 0, ShardState{Epoch: 1, Token: "run-1"}))
	f.create(t, "rain", packets)
}

func testFence(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	f.opened(t, 1)
	first := Fence{Shard: 3, From: 1, Epoch: 2, Floor: 10, Token: "run-2"}
	for range 2 { // the second call changes nothing
		require.NoError(t, l.Fence(ctx, first))
	}
	has, err := l.Shard(ctx, 3)
	require.NoError(t, err)
	require.Equal(t, ShardState{Epoch: 2, Token: "run-2"}, has)
	require.NoError(t, l.SetShard(ctx, 3, 2, ShardState{Epoch: 3, Token: "run-3"}))
	for says, conflict := range map[string]Fence{
		"another process has opened it":           first,
		"not at epoch 1: ":                        {Shard: 3, From: 1, Epoch: 3, Floor: 11, Token: "run-2"},
		"opened it in this epoch, without a fenc": {Shard: 3, From: 2, Epoch: 3, Floor: 11, Token: "run-3"},
	} {
		err := l.Fence(ctx, conflict)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
		require.ErrorContains(t, err, says)
	}
	second := Fence{Shard: 3, From: 3, Epoch: 7, Floor: 5, Token: "run-3"}
	require.NoError(t, l.Fence(ctx, second))
	second.Floor = 6
	require.ErrorContains(t, l.Fence(ctx, second), "fenced it above seq 5, not 6")
	for _, bad := range []Fence{{Shard: -1, Epoch: 1}, {Shard: 3, From: 7, Epoch: 7}, {Shard: 3, From: 7, Epoch: 8,
		Floor: -1}} {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(l.Fence(ctx, bad)))
	}
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(l.Fence(ctx, Fence{Shard: 7, From: 1, Epoch: 2})))

	for _, note := range []string{"began", "12 grants restored"} {
		require.NoError(t, l.NoteOpening(ctx, 3, 2, note))
	}
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(l.NoteOpening(ctx, 3, 3, "no fence")))
	rows, err := l.Fences(ctx, 3)
	require.NoError(t, err)
	require.Len(t, rows, 2)
	for _, at := range []time.Time{rows[0].Fenced, rows[1].Fenced, rows[1].Opened} {
		require.WithinDuration(t, time.Now(), at, time.Minute)
	}
	require.Equal(t, []FenceRow{{Shard: 3, Epoch: 7, Floor: 5, Token: "run-3", Fenced: rows[0].Fenced},
		{Shard: 3, Epoch: 2, Floor: 10, Token: "run-2", Fenced: rows[1].Fenced, Opened: rows[1].Opened,
			Note: "12 grants restored"}}, rows)
	rows, err = l.Fences(ctx, 2)
	require.NoError(t, err)
	require.Empty(t, rows)
}

// A restore needs the notes of all openings, because Redis can come back from a file of before any of them.
func testManyFences(t *testing.T, f *fixture) {
	const openings = 120
	ctx, l := t.Context(), f.ledger
	f.opened(t, 1)
	for epoch := int64(1); epoch <= openings; epoch++ {
		require.NoError(t, l.Fence(ctx, Fence{Shard: 3, From: epoch, Epoch: epoch + 1, Token: "run"}))
	}
	rows, err := l.Fences(ctx, 3)
	require.NoError(t, err)
	require.Len(t, rows, openings)
	require.EqualValues(t, 2, rows[openings-1].Epoch)
}

// Three recoverers fence a shard at once, each with two calls. Both calls of one recoverer succeed; the other four get
// a Conflict.
func testFenceTogether(t *testing.T, f *fixture) {
	f.opened(t, 1)
	var won, lost atomic.Int64
	var group errgroup.Group
	for i := range 6 {
		group.Go(func() error {
			err := f.ledger.Fence(context.Background(), Fence{Shard: 3, From: 1, Epoch: 2, Token: fmt.Sprintf("run-%d", i/2)})
			switch {
			case err == nil:
				won.Add(1)
			case hongbao.ClassOf(err) == hongbao.ClassConflict:
				lost.Add(1)
			default:
				return err
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	require.Equal(t, []int64{2, 4}, []int64{won.Load(), lost.Load()})
	require.EqualValues(t, 1, f.count(t, `SELECT COUNT(*) FROM fence`))
}
