package httpsink

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate() *Gate {
	return NewGate(Limits{Server: "the server", Concurrency: 2, BreakerFailures: 3, BreakerOpen: time.Minute, Now: time.Now})
}

func works() Seen   { return Works }
func fails() Seen   { return Fails }
func nothing() Seen { return Nothing }

// never is for a request that must not be sent.
func never(t *testing.T) func() Seen {
	t.Helper()
	return func() Seen {
		t.Error("the request was sent")
		return Works
	}
}

func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		end := make(chan struct{})
		var running, most atomic.Int64
		for range 5 {
			go func() {
				_ = g.Do(t.Context(), func() Seen {
					most.Store(max(most.Load(), running.Add(1)))
					<-end
					running.Add(-1)
					return Works
				})
			}()
		}
		synctest.Wait()
		require.EqualValues(t, 2, running.Load())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.Do(ctx, never(t)), ErrLate, "no slot was free in time")
		close(end)
		synctest.Wait()
		require.EqualValues(t, 2, most.Load())
		require.NoError(t, g.Do(t.Context(), works))
	})
}

// suspended is the context of a process that was stopped beyond a deadline: no timer has fired yet.
type suspended struct {
	context.Context
	end time.Time
}

func (s suspended) Deadline() (time.Time, bool) { return s.end, true }

func TestNothingIsSentTooLate(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // select chooses at random
		require.ErrorIs(t, newGate().Do(ctx, never(t)), ErrLate)
	}
	late := suspended{t.Context(), time.Now().Add(-time.Millisecond)}
	require.ErrorIs(t, newGate().Do(late, never(t)), ErrLate)
	require.NoError(t, newGate().Do(suspended{t.Context(), time.Now().Add(time.Minute)}, works))
}

// The breaker opens after 3 failures in a row. Then it lets one request through at a time. A request that says nothing,
// or that panics, does not count.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		for _, send := range []func() Seen{fails, fails, works, fails, nothing, fails, nothing} {
			require.NoError(t, g.Do(t.Context(), send))
		}
		require.False(t, g.BreakerOpen())
		require.NoError(t, g.Do(t.Context(), fails))
		require.True(t, g.BreakerOpen())
		err := g.Do(t.Context(), never(t))
		require.True(t, hongbao.IsOutage(err))
		require.ErrorContains(t, err, "after 3 consecutive failures of the server")

		time.Sleep(time.Minute + 1) //nolint:forbidigo // virtual time
		require.True(t, g.BreakerOpen(), "not yet closed")
		require.Panics(t, func() { _ = g.Do(t.Context(), func() Seen { panic("bug") }) })
		end := make(chan struct{})
		go func() { _ = g.Do(t.Context(), func() Seen { <-end; return Works }) }()
		synctest.Wait()
		require.True(t, hongbao.IsOutage(g.Do(t.Context(), never(t))), "another request is the test")
		close(end)
		synctest.Wait()
		require.False(t, g.BreakerOpen())
		require.NoError(t, g.Do(t.Context(), works))
	})
}

func TestSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.Silence(time.Minute)
		g.Silence(time.Second)                    // a shorter pause does not end the longer one
		time.Sleep(time.Minute - time.Nanosecond) //nolint:forbidigo // virtual time
		err := g.Do(t.Context(), never(t))
		require.True(t, hongbao.IsOutage(err))
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
		time.Sleep(time.Nanosecond) //nolint:forbidigo // virtual time
		require.NoError(t, g.Do(t.Context(), works))
	})
}

func TestEach(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 3, 4, 10, 11} {
		var seen [11]atomic.Int64
		var running, most atomic.Int64
		Each(n, 3, 2, func(first, last int) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			require.LessOrEqual(t, last-first, 3)
			for i := first; i < last; i++ {
				seen[i].Add(1)
			}
		})
		for i := range seen {
			require.Equal(t, i < n, seen[i].Load() == 1, "%d of %d", i, n)
		}
		require.LessOrEqual(t, most.Load(), int64(2))
	}
}
