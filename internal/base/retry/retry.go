// Package retry has the helpers for pauses, backoff and polling that the whole repository uses.
package retry

import (
	"context"
	"reflect"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/hongbao-project/hongbao"
)

// MayHelp reports whether a retry may succeed after err.
func MayHelp(err error) bool {
	c := hongbao.ClassOf(err)
	return c == hongbao.ClassTransient || c == hongbao.ClassUnknown
}

// Same reports whether a and b are the same error value, such as the one error that all grants of a batch share. Plain
// == would panic on errors that are not comparable.
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

// Backoff returns a policy with growing, jittered pauses between first and longest. After limit in total it returns
// backoff.Stop; a limit of 0 means no limit.
func Backoff(first, longest, limit time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(first), backoff.WithMaxInterval(longest),
		backoff.WithMaxElapsedTime(limit))
}

// Do calls try until it succeeds, returns again == false, or policy stops. Do returns the error of the last try, even
// if ctx ended: the context's error, which the library returns, has no class.
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

// Poll calls fn immediately and then after each pause, until fn is done or fails. If ctx ends first, Poll returns its
// cause.
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
