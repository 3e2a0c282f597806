package shards

import (
	"errors"

	"golang.org/x/sync/errgroup"
)

// eachAtOnce bounds how many shards are changed at once: a server that hangs holds up only its own.
const eachAtOnce = 64

// Each calls fn for every number from 0 to n-1, many at once, and returns the error of each. A failure keeps no other
// shard from its call.
func Each(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	var all errgroup.Group
	all.SetLimit(eachAtOnce)
	for i := range n {
		all.Go(func() error {
			errs[i] = fn(i)
			return nil
		})
	}
	_ = all.Wait() // each call has its own error
	return errs
}

// EachOf is Each over places, with the errors in one.
func EachOf(places []Keys, fn func(k Keys) error) error {
	return errors.Join(Each(len(places), func(i int) error { return fn(places[i]) })...)
}
