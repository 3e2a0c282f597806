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

// lease is as long as a producer relies on its copy of a campaign, and some more: after it each producer knows of a
// generation that was announced.
const lease = walk.Lease + 50*time.Millisecond

// Generation is a top-up that is to be brought into Redis.
type Generation struct {
	Spec hongbao.Campaign
	// Hash is that of the campaign's own plan, PlanHash that of the generation's.
	Hash, PlanHash string
	// Number is 2 for the first top-up.
	Number int
	// Packets and Total are the campaign's with this generation. Plan has all packets up to its last one.
	Packets int64
	Total   hongbao.Amount
	Plan    *campaign.Plan
}

// TopUp announces a generation on every place of its campaign, waits until no producer relies on an older copy of the
// campaign, and deals the packets, chunk by chunk. Packet k goes to place (k-1) mod S, as in every generation. A place
// gives them away once its last chunk is there; until then grabs that find it empty are told refilling. progress is as
// in Load.
//
// A place that has it already is left as it is, whatever its state. It may be killed at any point and called again, by
// several processes at once too.
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

// announce tells every place: from then on each grab there learns of the generation first.
func (l *load) announce(ctx context.Context, g *Generation) error {
	for _, p := range l.places {
		call := &store.Announcement{Campaign: g.Spec.ID, Hash: g.Hash, Generation: int64(g.Number), Plan: g.PlanHash,
			Packets: g.Packets, Total: g.Total, Share: int64(len(p.amounts)), ShareAmount: p.sum}
		if err := l.patiently(ctx, func() error { return p.Announce(ctx, call) }); err != nil {
			return l.notAdded(g, err)
		}
	}
	return nil
}

// add deals one place's packets of a generation. The first chunk has none: its answer tells how far the place is.
func (l *load) add(ctx context.Context, g *Generation, p *place) error {
	all := int64(len(p.amounts))
	for asked := false; ; asked = true {
		chunk := l.chunk(p)
		chunk.Generation = int64(g.Number)
		if !asked {
			chunk.Amounts = nil
		}
		before := p.at.Loaded
		err := l.patiently(ctx, func() (err error) {
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
			return l.notAdded(g, hongbao.Errorf(hongbao.ClassPermanent, "on shard %d it is %s", p.Index(), p.at.State))
		case p.at.Loaded > all || asked && p.at.Loaded == before:
			return l.notAdded(g, hongbao.Errorf(hongbao.ClassBroken, "shard %d has %d packets of %d and takes no more",
				p.Index(), p.at.Loaded, all))
		}
		l.progress(l.loaded())
	}
}

// notAdded says how it stands.
func (l *load) notAdded(g *Generation, err error) error {
	return fmt.Errorf("deal generation %d of campaign %s (a worker tries again): %w", g.Number, g.Spec.ID, err)
}
