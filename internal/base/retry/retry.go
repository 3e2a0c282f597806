// Package retry waits and tries again: the one helper for pauses, backoff and polling.
package retry

import (
	"context"
	"reflect"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
)

// MayHelp reports whether another attempt may help after an error.
func MayHelp(err error) bool {
	c := hongbao.ClassOf(err)
	return c == hongbao.ClassTransient || c == hongbao.ClassUnknown
}

// Same reports whether two errors are the same value, which a whole batch shares. == alone panics on errors that can't
// be compared.
func Same(a, b error) bool {
	return reflect.ValueOf(a).Comparable() && a == b //nolint:errorlint // identity is meant
}

// Pause waits. It returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Backoff returns pauses that grow from first to longest, with jitter. After limit it returns backoff.Stop; for a limit
// of 0 it never does.
func Backoff(first, longest, limit time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(limit))
}

// Do calls try until it is done, does not want to try again, or policy gives up. It returns the last try's error: the
// library would return the context's, which has no class.
func Do(ctx context.Context, policy backoff.BackOff, try func() (again bool, err error)) error {
	var last error
	_ = backoff.Retry(func() error {
		var again bool
		if again, last = try(); last != nil && !again {
			return backoff.Permanent(last)
		}
		return last
	}, backoff.WithContext(policy, ctx))
	return last
}

// Poll calls fn now and after each pause, until fn is done or fails. It returns the cause of ctx if that ends first.
func Poll(ctx context.Context, pause time.Duration, fn func() (done bool, err error)) error {
	for {
		if done, err := fn(); done || err != nil {
			return err
		}
		if !Pause(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}
