package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, retry.Pause(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.False(t, retry.Pause(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := retry.Backoff(time.Second, 4*time.Second, time.Minute)
		start, longest := time.Now(), time.Duration(0)
		for next := b.NextBackOff(); next != backoff.Stop; next = b.NextBackOff() {
			longest = max(longest, next)
			require.True(t, retry.Pause(t.Context(), next))
		}
		require.Greater(t, longest, 2*time.Second)
		require.LessOrEqual(t, longest, 6*time.Second)
		require.InDelta(t, time.Minute, time.Since(start), float64(6*time.Second))
	})
}

// Do returns the error of the last try, whether try, the policy or the context ended the tries.
func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		do := func(ctx context.Context, again bool, most time.Duration) error {
			tries = 0
			return retry.Do(ctx, retry.Backoff(time.Second, time.Second, most), func() (bool, error) {
				tries++
				return again, fmt.Errorf("try %d", tries)
			})
		}
		require.EqualError(t, do(t.Context(), false, 0), "try 1")
		err := do(t.Context(), true, 10*time.Second)
		require.Greater(t, tries, 3)
		require.EqualError(t, err, fmt.Sprintf("try %d", tries))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = do(ctx, true, 0)
		require.EqualError(t, err, fmt.Sprintf("try %d", tries), "not the error of the context")
		require.Greater(t, tries, 2)
		require.NoError(t, retry.Do(t.Context(), retry.Backoff(time.Second, time.Second, 0), func() (bool, error) {
			tries++
			return true, map[bool]error{true: nil, false: errors.New("again")}[tries > 20]
		}))
		require.Greater(t, tries, 20)
	})
}

func TestPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, broken := 0, errors.New("broken")
		third := func(err error) func() (bool, error) {
			return func() (bool, error) { calls++; return err == nil && calls%3 == 0, err }
		}
		start := time.Now()
		require.NoError(t, retry.Poll(t.Context(), time.Second, third(nil)))
		require.Equal(t, 3, calls)
		require.Equal(t, 2*time.Second, time.Since(start), "the first call does not wait")
		require.ErrorIs(t, retry.Poll(t.Context(), time.Second, third(broken)), broken)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 90*time.Second, broken)
		defer cancel()
		never := func() (bool, error) { return false, nil }
		require.ErrorIs(t, retry.Poll(ctx, time.Minute, never), broken)
	})
}

func TestMayHelp(t *testing.T) {
	t.Parallel()
	for class, want := range map[hongbao.Class]bool{
		hongbao.ClassUnknown: true, hongbao.ClassTransient: true, hongbao.ClassPermanent: false, hongbao.ClassConflict: false,
		hongbao.ClassBroken: false,
	} {
		require.Equal(t, want, retry.MayHelp(hongbao.Errorf(class, "x")), class)
	}
	require.True(t, retry.MayHelp(io.EOF), "an error without a class is Unknown")
}

func TestSame(t *testing.T) {
	t.Parallel()
	one := errors.New("one")
	require.True(t, retry.Same(one, one))
	require.False(t, retry.Same(one, errors.New("one")))
	require.True(t, retry.Same(context.Canceled, context.Canceled))
	require.False(t, retry.Same(uncomparable{"a"}, uncomparable{"a"}))
	require.False(t, retry.Same(one, uncomparable{"a"}))
}

type uncomparable []string

func (u uncomparable) Error() string { return fmt.Sprint([]string(u)) }
