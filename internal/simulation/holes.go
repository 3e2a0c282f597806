package simulation

import (
	"context"
	"errors"
	"slices"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
)

// decideHoles does what the alarm packets_withheld names: a person grants each withheld packet that a user was told, and
// returns the others to the stock.
func (w *world) decideHoles(ctx context.Context) error {
	return w.persist(ctx, "hongbao hole", "", func(ctx context.Context, a *app.App) error {
		list, err := losses.Of(a).ListHoles(ctx, "")
		if err != nil {
			return err
		}
		for i := range list {
			if w.isLost(list[i].Campaign) {
				continue // it is at its end
			}
			if err := w.decide(ctx, a, &list[i]); err != nil {
				return err
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.decided = true
		return nil
	})
}

func (w *world) decide(ctx context.Context, a *app.App, holes *losses.Holes) (err error) {
	id := holes.Campaign
	at := slices.IndexFunc(w.plan.Campaigns, func(c Rain) bool { return c.ID == id })
	several := w.plan.Campaigns[at].Shards > 1
	if several {
		if _, err := campaigns.Of(a).Pause(ctx, id, ann); err != nil {
			return err
		}
		defer func() {
			_, resumed := campaigns.Of(a).Resume(ctx, id, ann)
			err = errors.Join(err, resumed)
		}()
	}
	for _, p := range holes.Packets {
		w.mu.Lock()
		told := slices.IndexFunc(w.told, func(t judge.Win) bool { return t.Campaign == id && t.Packet == p.Number })
		w.mu.Unlock()
		if told < 0 {
			continue
		}
		if err := w.grantHole(ctx, a, w.told[told]); err != nil {
			return err
		}
	}
	if several {
		return nil // the refund returns them
	}
	w.cover.note("person", "hongbao hole release")
	_, err = losses.Of(a).ReleaseHoles(ctx, id, ann)
	return err
}

// grantHole grants a packet to the user who was told it, also above the campaign's limit: the user may have got others
// meanwhile.
func (w *world) grantHole(ctx context.Context, a *app.App, t judge.Win) error {
	o := losses.HoleGrant{Campaign: t.Campaign, Packet: t.Packet, User: t.User, RequestID: t.Request, Decision: ann}
	w.cover.note("person", "hongbao hole grant")
	_, err := losses.Of(a).GrantHole(ctx, o)
	if err == nil {
		return nil
	}
	o.AboveLimit = true
	if _, failed := losses.Of(a).GrantHole(ctx, o); failed != nil {
		return errors.Join(err, failed)
	}
	w.cover.note("person", "hongbao hole grant --above-limit")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.above[t.Campaign+" "+t.User]++
	return nil
}

// isLost reports whether a person has accepted a loss of a campaign.
func (w *world) isLost(campaign string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost[campaign]
}
