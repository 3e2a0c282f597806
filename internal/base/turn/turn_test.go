package turn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/turn"
)

func TestLockIsExclusive(t *testing.T) {
	t.Parallel()
	var l turn.Lock
	n, done := 0, make(chan struct{})
	for range 8 {
		go func() {
			for range 1000 {
				l.Lock()
				n++
				l.Unlock()
			}
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	require.Equal(t, 8000, n)
	require.True(t, l.TryLock())
	require.False(t, l.TryLock())
	l.Unlock()
	require.Panics(t, l.Unlock)
}

// A sync.Mutex in place of the lock would stop the bubble's time forever.
func TestTimeGoesOnWhileAGoroutineWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l turn.Lock
		l.Lock()
		go func() {
			time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
			l.Unlock()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, l.LockContext(ctx), context.DeadlineExceeded)
		began := time.Now()
		l.Lock()
		require.Equal(t, 59*time.Minute, time.Since(began))
		require.NoError(t, errOf(&l, ctx), "a free lock needs no context")
	})
}

func errOf(l *turn.Lock, ctx context.Context) error { //nolint:revive // the lock is the subject
	l.Unlock()
	return l.LockContext(ctx)
}
