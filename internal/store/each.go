package store

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// AllAtOnce is the number of simultaneous calls if none may wait behind a server that hangs: the most places that a
// campaign has.
const AllAtOnce = hongbao.MaxCampaignShards

// Each calls fn for every number from 0 to n-1, at most atOnce at a time, and returns the error of each. A failed
// call does not prevent the others.
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
	_ = all.Wait() // each call has its own error
	return errs
}

// Ask is Each for calls that return a value. It returns the value and the error of each.
func Ask[T any](n, atOnce int, fn func(i int) (T, error)) ([]T, []error) {
	list := make([]T, n)
	errs := Each(n, atOnce, func(i int) (err error) {
		list[i], err = fn(i)
		return err
	})
	return list, errs
}

// onPlace adds to an error on which of a campaign's n places it occurred.
func onPlace(k *Shard, n int, err error) error {
	return fmt.Errorf("on shard %d, one of %d: %w", k.Index(), n, err)
}

// Joined returns one error for the errors of the campaign's places. If all are the same, it is that error; else each
// is listed with its shard. A refusal comes before an outage, since another try would not help. A place that no
// longer has the campaign comes last. Only when all other places answer is it known whether that campaign is lost or
// was refunded.
func (c Campaign) Joined(places []*Shard, errs []error) error {
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
