package crowd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// Run makes each call once, in order and at the rate. Without a rate, only the number of callers
// limits it.
func TestLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls, callers []int
		start := time.Now()
		rate, err := Load{Callers: 4, Calls: 30, Rate: 10}.Run(t.Context(), func(_ context.Context, caller, i int) error {
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, time.Duration(i)*time.Second/10, time.Since(start), "call %d", i)
			calls, callers = append(calls, i), append(callers, caller)
			return nil
		})
		require.NoError(t, err)
		require.InDelta(t, 10, rate, 1)
		require.Len(t, calls, 30)
		require.True(t, slices.IsSorted(calls))
		slices.Sort(callers)
		require.Equal(t, []int{0, 1, 2, 3}, slices.Compact(callers))

		start = time.Now()
		rate, err = Load{Callers: 4, Calls: 12}.Run(t.Context(), func(ctx context.Context, _, _ int) error {
			<-time.After(time.Second) //nolint:forbidigo // the clock is synctest's
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.InDelta(t, 4, rate, 0)
	})
}

// The first error stops all callers, also those that wait for their next call. The end of the context does the
// same.
func TestLoadEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, rate := range []int{0, 1} {
			load := Load{Callers: 8, Calls: math.MaxInt, Rate: rate}
			_, err := load.Run(t.Context(), func(ctx context.Context, _, i int) error {
				if i == 5 {
					return broken
				}
				if rate == 0 {
					<-ctx.Done()
				}
				return ctx.Err()
			})
			require.ErrorIs(t, err, broken)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second+time.Millisecond)
		defer cancel()
		made := 0
		_, err := Load{Callers: 1, Calls: math.MaxInt, Rate: 1}.Run(ctx, func(context.Context, int, int) error {
			made++
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 91, made)
	})
}

type answer struct {
	outcome hongbao.Outcome
	err     error
}

// grabbed lets one user grab. The server gives the answers of the list, one for each attempt. It returns the
// answer, the crowd with its counts, and the reports.
func grabbed(t *testing.T, of ...answer) (a hongbao.Answer, c *Crowd, said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		requests := map[string]bool{}
		c = New(func(_ context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
			if g.RequestID == "" {
				g.RequestID = "made up"
			}
			requests[g.RequestID] = true
			next := of[0]
			of = of[1:]
			return hongbao.Answer{Outcome: next.outcome}, next.err
		}, func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) })
		a, err = c.Grab(t.Context(), hongbao.Grab{Campaign: "rain", User: "ann"})
		require.Len(t, requests, 1, "a repeat has the same request id")
		require.Empty(t, of, "all answers were needed")
		said = out.String()
	})
	return a, c, said, err
}

// A grab is repeated until it is decided. The crowd reports an outage once when it begins, and once
// when it is over.
func TestGrab(t *testing.T) {
	t.Parallel()
	down := answer{err: hongbao.Outagef(hongbao.ClassUnknown, "Redis does not answer")}
	a, c, said, err := grabbed(t, down, answer{outcome: hongbao.OutcomeFrozen}, down,
		answer{outcome: hongbao.OutcomeGranted})
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	require.Equal(t, map[hongbao.Outcome]int64{hongbao.OutcomeGranted: 1}, c.Outcomes)
	require.EqualValues(t, 1, c.Latency.TotalCount())
	require.GreaterOrEqual(t, c.Latency.Max(), 3*pause.Microseconds(), "the repeats count")
	require.Regexp(t, "^The crowd can't go on, and tries again: .*Redis does not answer\nThe crowd gets on again.\n$", said)

	_, _, said, err = grabbed(t, answer{outcome: hongbao.OutcomeBusy}, answer{outcome: hongbao.OutcomeSoldOut})
	require.NoError(t, err)
	require.Contains(t, said, "campaign rain: busy")

	a, c, said, err = grabbed(t, answer{outcome: hongbao.OutcomePaused})
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomePaused, a.Outcome, "it is decided")
	require.Empty(t, said)
	require.EqualValues(t, 1, c.Outcomes[hongbao.OutcomePaused])

	_, c, said, err = grabbed(t, answer{err: hongbao.Errorf(hongbao.ClassPermanent, "no such fact")})
	require.ErrorContains(t, err, "user ann")
	require.ErrorContains(t, err, "no such fact")
	require.Empty(t, c.Outcomes)
	require.Empty(t, said, "the caller reports it")
}

// An attempt that began before the last failure must not end the reported outage.
func TestOldAttemptShowsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		said := make(chan string, 10)
		c := New(nil, func(format string, args ...any) { said <- fmt.Sprintf(format, args...) })
		answered, old := make(chan struct{}), make(chan error, 1)
		go func() {
			old <- c.RetryUntilDecided(t.Context(), func() error {
				<-answered
				return nil
			})
		}()
		synctest.Wait()
		tries := 0
		go func() {
			old <- c.RetryUntilDecided(t.Context(), func() error {
				if tries++; tries > 50 {
					return nil
				}
				return hongbao.Errorf(hongbao.ClassTransient, "down")
			})
		}()
		synctest.Wait()
		require.Len(t, said, 1)
		close(answered)
		require.NoError(t, <-old)
		require.Len(t, said, 1)
		require.NoError(t, <-old)
		require.Len(t, said, 2)
		require.Contains(t, <-said, "can't go on")
		require.Contains(t, <-said, "gets on again")
	})
}

// If the context ends, the crowd must not report the failed grab as an outage.
func TestStoppedCrowdReportsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := New(func(context.Context, *hongbao.Grab) (hongbao.Answer, error) {
		cancel()
		return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown, "too late: %w", ctx.Err())
	}, func(string, ...any) { t.Error("it said something") })
	_, err := c.Grab(ctx, hongbao.Grab{Campaign: "rain", User: "ann"})
	require.ErrorIs(t, err, context.Canceled)
}
