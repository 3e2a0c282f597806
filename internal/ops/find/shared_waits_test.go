package find

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Two readers wait for the same round. Its call of Durable panics. No reader may then return its receipts.
func TestReadersFailWithTheirRound(t *testing.T) {
	t.Parallel()
	var j sharedWaits
	key := store.Place{Campaign: "rain"} // a call on no shard panics
	running := &wait{begun: true, done: make(chan struct{})}
	j.last = map[store.Place]*wait{key: running}
	call := store.DurableCall{Class: hongbao.DurabilityReplica, Users: []string{"u"},
		Receipts: [][]hongbao.Receipt{nil}}
	readers := func() int {
		j.mu.Lock()
		defer j.mu.Unlock()
		return len(j.last[key].call.Users)
	}
	join := func(ctx context.Context, wait *sync.WaitGroup, err *error) {
		before := readers()
		wait.Go(func() {
			defer func() { _ = recover() }()
			*err = j.durable(ctx, key, call)
		})
		testkit.Eventually(t, 20*time.Second, func() bool { return readers() > before }, "the reader joined")
	}
	var all, impatient sync.WaitGroup
	var first, second, third error
	join(t.Context(), &all, &first)
	join(t.Context(), &all, &second)
	ctx, cancel := context.WithCancel(t.Context())
	join(ctx, &impatient, &third)
	cancel()
	impatient.Wait()
	require.ErrorIs(t, third, context.Canceled)
	close(running.done)
	all.Wait()
	require.NoError(t, first, "it panicked")
	for _, err := range []error{second, third} {
		require.ErrorIs(t, err, store.ErrNotDurable)
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
		require.True(t, hongbao.IsOutage(err))
	}
}
