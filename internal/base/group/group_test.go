package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunStopsInReverseOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var order []string
		part := func(name string, drain time.Duration) Part {
			return Part{Name: name, Run: func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(drain) //nolint:forbidigo // the clock is synctest's
				order = append(order, name)
				return nil
			}}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, Run(ctx, part("a", 0), part("b", time.Second), part("c", time.Minute)))
		require.Equal(t, []string{"c", "b", "a"}, order)
	})
}

func TestRunEndsWhenOnePartFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	stopped := false
	err := Run(t.Context(), Part{"waits", func(ctx context.Context) error {
		<-ctx.Done()
		stopped = true
		return nil
	}}, Part{"fails", func(context.Context) error { return broken }})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "fails: broken")
	require.True(t, stopped)
}

func TestRunOfNothing(t *testing.T) {
	t.Parallel()
	require.NoError(t, Run(t.Context()))
}

// A part that returns nil before it is stopped counts as failed.
func TestRunOfAPartThatEndsByItself(t *testing.T) {
	t.Parallel()
	waits := Part{"waits", func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}}
	err := Run(t.Context(), waits, Part{"ends", func(context.Context) error { return nil }})
	require.EqualError(t, err, "ends: it ended by itself")
}
