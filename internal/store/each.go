package store

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// AllAtOnce is the limit for Each with which the calls to all places of a campaign run at the same time. So a server
// that hangs delays no call to the others.
const AllAtOnce = hongbao.MaxCampaignShards

// Each calls fn for every number from 0 to n-1, at most atOnce at a time, and returns the error of each call. All
// calls run, even if some fail.
func Each(n, atOnce int, fn func(i int) error) []error {
	errs := make([]error, n)
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range n {
		all.Go(func() error {
			errs[i] = fn(i)
			return nil
		})
	}
	_ = all.Wait() // errs has the errors
	return errs
}

// Ask is Each for calls that return a value. It returns the value and the error of each call.
func Ask[T any](n, atOnce int, fn func(i int) (T, error)) ([]T, []error) {
	list := make([]T, n)
	errs := Each(n, atOnce, func(i int) (err error) {
		list[i], err = fn(i)
		return err
	})
	return list, errs
}

// onPlace adds the shard to an error of one of a campaign's n places.
func onPlace(k Place, n int, err error) error {
	return fmt.Errorf("on shard %d, one of %d: %w", k.Index(), n, err)
}

// Joined combines the errors of the campaign's places. If all places have the same error, Joined returns it; else it
// lists each error with its shard. Refusals come first, because a retry would not help, then outages. ErrNotInRedis
// comes last: such a place is lost, or the campaign was refunded, and only the other places' answers show which.
func (c Campaign) Joined(places []Place, errs []error) error {
	var list, outages, gone []error
	same := true
	for j, err := range errs {
		same = same && err != nil && err.Error() == errs[0].Error()
		if err == nil {
			continue
		}
		on := fmt.Errorf("shard %d: %w", places[j].Index(), err)
		switch {
		case hongbao.IsOutage(err):
			outages = append(outages, on)
		case errors.Is(err, ErrNotInRedis):
			gone = append(gone, on)
		default:
			list = append(list, on)
		}
	}
	list = slices.Concat(list, outages, gone)
	switch {
	case len(list) == 0:
		return nil
	case same || len(places) == 1:
		return errs[0]
	}
	return fmt.Errorf("campaign %s, %d of its %d shards: %w", c.id, len(list), len(places), errors.Join(list...))
}
