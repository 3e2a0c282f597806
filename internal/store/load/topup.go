package load

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
)

// lease is a little longer than a producer uses its copy of a campaign. When it has passed since an announcement,
// every producer has the new generation.
const lease = walk.Lease + 50*time.Millisecond

// Generation is a top-up to load into Redis.
type Generation struct {
	Spec hongbao.Campaign
	// Hash is the hash of the campaign's first plan. PlanHash is the hash of this generation's plan.
	Hash, PlanHash string
	// Number is 2 for the first top-up.
	Number int
	// Packets and Total are the number and the sum of the campaign's packets, including this generation. Plan has the
	// packets of all generations up to this one.
	Packets int64
	Total   hongbao.Amount
	Plan    *campaign.Plan
}

// TopUp announces a generation on every place of its campaign and waits until no producer relies on an older copy of
// the campaign. Then it deals the packets, chunk by chunk. Packet k goes to place (k-1) mod S, where S is the number
// of places. A place grants the new packets once its last chunk is loaded. Until then, grabs that find the place
// empty are answered refilling. TopUp calls progress as Load does.
//
// TopUp does not change a place that already has the whole generation. An interrupted TopUp can be repeated, even by
// several processes at once.
func (s *Loader) TopUp(ctx context.Context, g *Generation, progress func(loaded int64)) error {
	l := s.newLoad(&g.Spec, g.Hash, g.Plan.Amounts[:g.Packets], progress)
	if err := l.announce(ctx, g); err != nil {
		return err
	}
	if !retry.Pause(ctx, s.lease) {
		return l.notAdded(g, context.Cause(ctx))
	}
	for _, p := range l.places {
		if err := l.add(ctx, g, p); err != nil {
			return err
		}
	}
	l.progress(g.Packets)
	return nil
}

// announce announces the generation on every place. After that, the next grab of each caller on a place gets the new
// terms.
func (l *load) announce(ctx context.Context, g *Generation) error {
	for _, p := range l.places {
		call := &store.Announcement{Campaign: g.Spec.ID, Hash: g.Hash, Generation: int64(g.Number), Plan: g.PlanHash,
			Packets: g.Packets, Total: g.Total, Share: int64(len(p.amounts)), ShareAmount: p.sum}
		if err := l.retry(ctx, func() error { return p.Announce(ctx, call) }); err != nil {
			return l.notAdded(g, err)
		}
	}
	return nil
}

// add loads a generation's packets on one place. It first sends an empty chunk, to learn how many packets the place
// has.
func (l *load) add(ctx context.Context, g *Generation, p *place) error {
	all := int64(len(p.amounts))
	for asked := false; ; asked = true {
		chunk := l.chunk(p)
		chunk.Generation = int64(g.Number)
		if !asked {
			chunk.Amounts = nil
		}
		before := p.at.Loaded
		err := l.retry(ctx, func() (err error) {
			p.at, err = p.LoadChunk(ctx, chunk)
			return err
		})
		switch {
		case err != nil:
			return l.notAdded(g, err)
		case p.at.Hash != g.Hash:
			return l.notAdded(g, store.LostError(g.Spec.ID))
		case p.at.Dealt >= int64(g.Number):
			return nil
		case p.at.State != store.StateOpen && p.at.State != store.StatePaused:
			return l.notAdded(g, hongbao.Errorf(hongbao.ClassPermanent, "on shard %d the campaign is %s", p.Index(), p.at.State))
		case p.at.Loaded > all || asked && p.at.Loaded == before:
			return l.notAdded(g, hongbao.Errorf(hongbao.ClassBroken, "shard %d has %d packets of %d and takes no more",
				p.Index(), p.at.Loaded, all))
		}
		l.progress(l.loaded())
	}
}

func (l *load) notAdded(g *Generation, err error) error {
	return fmt.Errorf("deal generation %d of campaign %s (a worker tries again): %w", g.Number, g.Spec.ID, err)
}
