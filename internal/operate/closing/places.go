package closing

import (
	"context"
	"errors"
	"slices"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Close closes the campaign permanently, on all of its places concurrently. Before the end of the campaign's window it
// fails unless early is set. It succeeds if the campaign is already closed or refunded, even if the campaign has left
// Redis.
//
// A place may not answer, or its clock may be slow, so that its window is still open. Close closes the other places all
// the same. The error names that place, and the next call closes it. A place that still waits for packets of a top-up
// is not closed. But if another place is lost, these packets can never be dealt, and the place is closed without them.
func (c *Closer) Close(ctx context.Context, row *ledger.StoredCampaign, early bool) (Progress, error) {
	id, places := row.Spec.ID, c.places(row)
	closes, errs := store.Ask(len(places), store.AllAtOnce, func(j int) (stream.Entry, error) {
		return places[j].Close(ctx, early, row.Packets)
	})
	lost := slices.ContainsFunc(errs, func(err error) bool {
		return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrNotInRedis)
	})
	for j, k := range places {
		if lost && errors.Is(errs[j], store.ErrRefilling) {
			closes[j], errs[j] = k.Close(ctx, early, 0)
		}
	}
	return c.standing(ctx, id, places, closes, errs)
}

// Progress returns the progress of a campaign's end, without changing anything. The error is store.ErrNotClosed if the
// campaign was not closed on each of its places.
func (c *Closer) Progress(ctx context.Context, row *ledger.StoredCampaign) (Progress, error) {
	id, places := row.Spec.ID, c.places(row)
	closes, errs := store.Ask(len(places), store.AllAtOnce, func(j int) (stream.Entry, error) { return places[j].CloseOf(ctx) })
	return c.standing(ctx, id, places, closes, errs)
}

// places returns the shards of a campaign. The ledger's row has their number, even if Redis has lost the campaign.
func (c *Closer) places(row *ledger.StoredCampaign) []store.Place {
	return c.cfg.Store.Places(row.Spec.ID, row.Spec.Places())
}

// standing adds the refund, the group's progress and the ledger's counts to the close entries. It fails if a place has
// no close, unless a refunded campaign has left Redis.
func (c *Closer) standing(ctx context.Context, id string, places []store.Place, closes []stream.Entry,
	errs []error) (out Progress, err error) {
	notThere := c.cfg.Store.Campaign(id).Joined(places, errs)
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
	finished, errs := store.Ask(len(places), store.AllAtOnce, func(j int) (int64, error) {
		n, _, err := places[j].Group(c.cfg.Group).Finished(ctx, closes[j].Seq) // 0 if the group does not exist
		return n, err
	})
	if err := c.cfg.Store.Campaign(id).Joined(places, errs); err != nil {
		return out, err
	}
	for j := range closes {
		out.Places = append(out.Places, Place{closes[j], finished[j]})
	}
	if out.Settled() { // LedgerCounts is not used before
		row, _, err := c.cfg.Ledger.Campaign(ctx, id) // read after the group's progress: it has all these grants
		if err != nil {
			return out, err
		}
		out.LedgerCounts = row.Position()
	}
	return out, nil
}

// allGone reports whether every place succeeded or answered that the campaign is not in Redis.
func allGone(errs []error) bool {
	for _, err := range errs {
		if err != nil && !errors.Is(err, store.ErrNotInRedis) {
			return false
		}
	}
	return true
}

// note marks the campaign as refunded on each place that still has it.
func (c *Closer) note(ctx context.Context, row *ledger.StoredCampaign) error {
	places := c.places(row)
	return c.cfg.Store.Campaign(row.Spec.ID).Joined(places, store.Each(len(places), store.AllAtOnce, func(j int) error {
		_, err := places[j].Refunded(ctx)
		if errors.Is(err, store.ErrNotInRedis) {
			err = nil
		}
		return err
	}))
}
