package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// Close closes the campaign, for ever: on each of its places, all at once. Before the end of its window it is refused
// unless early is set. A campaign that is closed, refunded or gone from Redis is no error: the answer is the same.
//
// A place that does not answer, or whose clock is behind so that the window is not over there, does not keep the others
// open. The error names it, and the next call closes it. A place that still waits for packets of a top-up is not closed,
// unless another place is lost: then nobody can deal them any more.
func (c *Closer) Close(ctx context.Context, id string, early bool) (Standing, error) {
	stored, err := c.stored(ctx, id)
	if err != nil {
		return Standing{}, err
	}
	places := c.cfg.Space.Places(id, stored.Spec.Places())
	closes, errs := each(places, func(_ int, k shards.Keys) (stream.Entry, error) {
		return shards.Of(c.cfg.Redis, k).Close(ctx, id, early, stored.Packets)
	})
	lost := slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, shards.ErrLost) || errors.Is(err, shards.ErrNotInRedis)
	})
	for j, k := range places {
		if lost && errors.Is(errs[j], shards.ErrRefilling) {
			closes[j], errs[j] = shards.Of(c.cfg.Redis, k).Close(ctx, id, early, 0)
		}
	}
	return c.standing(ctx, id, places, closes, errs)
}

// Standing tells how far the end of a campaign is, and changes nothing. shards.ErrNotClosed if it was not closed on
// each of its places.
func (c *Closer) Standing(ctx context.Context, id string) (Standing, error) {
	places, err := c.places(ctx, id)
	if err != nil {
		return Standing{}, err
	}
	closes, errs := each(places, func(_ int, k shards.Keys) (stream.Entry, error) {
		return shards.Of(c.cfg.Redis, k).CloseOf(ctx, id)
	})
	return c.standing(ctx, id, places, closes, errs)
}

// places are the shards on which a campaign lives. The ledger knows, also when Redis has lost the campaign.
func (c *Closer) places(ctx context.Context, id string) ([]shards.Keys, error) {
	stored, err := c.stored(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.cfg.Space.Places(id, stored.Spec.Places()), nil
}

func (c *Closer) stored(ctx context.Context, id string) (ledger.StoredCampaign, error) {
	stored, found, err := c.cfg.Ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w; look at the id", id, ledger.ErrNoCampaign)
	}
	return stored, err
}

// each calls all places at once, and gives the answer and the error of each.
func each[T any](places []shards.Keys, call func(int, shards.Keys) (T, error)) ([]T, []error) {
	list, errs := make([]T, len(places)), make([]error, len(places))
	var calls sync.WaitGroup
	for j, k := range places {
		calls.Go(func() { list[j], errs[j] = call(j, k) })
	}
	calls.Wait()
	return list, errs
}

// standing adds what the ledger and the group tell to the close entries, or to why there is none.
func (c *Closer) standing(ctx context.Context, id string, places []shards.Keys, closes []stream.Entry,
	errs []error) (out Standing, err error) {
	notThere := together(id, places, errs)
	if notThere != nil && !allGone(errs) {
		return out, notThere
	}
	refund, found, err := c.cfg.Ledger.RefundOf(ctx, id)
	if err != nil {
		return out, err
	}
	if found {
		out.Refund = &refund
	}
	if notThere != nil {
		if !found {
			return out, notThere
		}
		return out, nil
	}
	finished, errs := each(places, func(j int, k shards.Keys) (int64, error) {
		n, _, err := shards.Of(c.cfg.Redis, k).GroupFinished(ctx, c.cfg.Group, closes[j].Seq) // 0 without a group
		return n, err
	})
	if err := together(id, places, errs); err != nil {
		return out, err
	}
	for j := range closes {
		out.Places = append(out.Places, Place{closes[j], finished[j]})
	}
	if out.Settled() { // else nobody asks
		stored, err := c.stored(ctx, id)
		if err != nil {
			return out, err
		}
		out.Held = stored.Held()
	}
	return out, nil
}

// allGone tells that the campaign has left Redis, or is leaving it: no place refuses for another reason.
func allGone(errs []error) bool {
	for _, err := range errs {
		if err != nil && !errors.Is(err, shards.ErrNotInRedis) {
			return false
		}
	}
	return true
}

// together makes one error of the places' errors: the common one if all say the same, else each with its shard. A
// refusal comes before an outage, since trying again would not help. A place that the campaign has left comes last: only
// when all others answer does it tell whether the campaign is lost there, or was refunded.
func together(id string, places []shards.Keys, errs []error) error {
	var list, outages, gone []error
	same := true
	for j, err := range errs {
		same = same && err != nil && err.Error() == errs[0].Error()
		switch {
		case err == nil:
		case hongbao.IsOutage(err):
			outages = append(outages, fmt.Errorf("shard %d: %w", places[j].Index(), err))
		case errors.Is(err, shards.ErrNotInRedis):
			gone = append(gone, fmt.Errorf("shard %d: %w", places[j].Index(), err))
		default:
			list = append(list, fmt.Errorf("shard %d: %w", places[j].Index(), err))
		}
	}
	list = slices.Concat(list, outages, gone)
	switch {
	case len(list) == 0:
		return nil
	case same || len(places) == 1:
		return errs[0]
	}
	return fmt.Errorf("campaign %s, %d of its %d shards: %w", id, len(list), len(places), errors.Join(list...))
}

// note notes the refund on each place. One that the campaign has left is done.
func (c *Closer) note(ctx context.Context, id string) error {
	places, err := c.places(ctx, id)
	if err != nil {
		return err
	}
	_, errs := each(places, func(_ int, k shards.Keys) (struct{}, error) {
		_, err := shards.Of(c.cfg.Redis, k).Refunded(ctx, id)
		if errors.Is(err, shards.ErrNotInRedis) {
			err = nil
		}
		return struct{}{}, err
	})
	return together(id, places, errs)
}
