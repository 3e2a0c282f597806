package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

var ann = stream.Decision{By: "ann", Why: "the plan says so"}

// persist runs a command again and again until it succeeds, as people do during an outage. They give up if the command
// concerns a campaign of which somebody has accepted a loss: it may be frozen, or at its end.
func (w *world) persist(ctx context.Context, what, campaign string, do func(context.Context, *app.App) error) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		err = w.command(ctx, func(ctx context.Context, a *app.App) error {
			if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
				return err
			}
			return do(ctx, a)
		})
		if err == nil {
			w.note("%s: done", what)
			return nil
		}
		if w.isLost(campaign) && !hongbao.IsOutage(err) && hongbao.ClassOf(err) != hongbao.ClassTransient {
			w.note("%s: given up: %v", what, err)
			return errGivenUp
		}
		if ended := virtual.Sleep(ctx, time.Second); ended != nil {
			return ended
		}
	}
	w.bug("%s: not done within %s: %v", what, patience, err)
	return err
}

// errGivenUp says that a command can't succeed after an accepted loss.
var errGivenUp = errors.New("given up after an accepted loss")

// byOperator carries out a deed of a person who looks after the deployment.
func (w *world) byOperator(ctx context.Context, d *Deed) error {
	c := w.plan.Campaigns[0].ID
	switch d.What {
	case SinkPause:
		if err := w.persist(ctx, "sink pause "+d.Who, "", func(ctx context.Context, a *app.App) error {
			_, err := deliveries.Of(a).PauseSink(ctx, d.Who, ann)
			return err
		}); err != nil {
			return err
		}
		_ = virtual.Sleep(ctx, d.For)
		return w.resume(ctx, d)
	case CampaignPause:
		if err := w.persist(ctx, "campaign pause", c, func(ctx context.Context, a *app.App) error {
			_, err := campaigns.Of(a).Pause(ctx, c, ann)
			return w.unlessLate(c, err)
		}); err != nil {
			return err
		}
		_ = virtual.Sleep(ctx, d.For)
		return w.resume(ctx, d)
	case TopUp:
		return w.topUp(ctx, c, d.At)
	}
	return nil
}

// resume ends a SinkPause or a CampaignPause.
func (w *world) resume(ctx context.Context, d *Deed) error {
	if d.What == SinkPause {
		return w.persist(ctx, "sink resume "+d.Who, "", func(ctx context.Context, a *app.App) error {
			_, err := deliveries.Of(a).ResumeSink(ctx, d.Who, ann)
			return err
		})
	}
	c := w.plan.Campaigns[0].ID
	return w.persist(ctx, "campaign resume", c, func(ctx context.Context, a *app.App) error {
		_, err := campaigns.Of(a).Resume(ctx, c, ann)
		return w.unlessLate(c, err)
	})
}

// resumeEnded resumes the sinks whose pauses are over.
func (w *world) resumeEnded(ctx context.Context, a *app.App) (err error) {
	for i := range w.plan.Deeds {
		if d := &w.plan.Deeds[i]; d.What == SinkPause && time.Since(virtual.Epoch) > d.At+d.For+time.Second {
			_, failed := deliveries.Of(a).ResumeSink(ctx, d.Who, ann)
			err = errors.Join(err, failed)
		}
	}
	return err
}

// resumeAgain repeats the resumes of the plan. A failover may lose one that Redis has and the ledger not yet; then the
// alarm sink_paused stays, or a campaign stays paused.
func (w *world) resumeAgain(ctx context.Context) (err error) {
	for i := range w.plan.Deeds {
		if d := &w.plan.Deeds[i]; d.What == SinkPause || d.What == CampaignPause {
			err = errors.Join(err, w.resume(ctx, d))
		}
	}
	if errors.Is(err, errGivenUp) {
		return nil
	}
	return err
}

// topUp adds ten packets. A repeat of the order with the same id changes nothing.
func (w *world) topUp(ctx context.Context, campaign string, at time.Duration) error {
	const packets = 10
	w.ordering.Lock() // an order names the campaign's present funding
	defer w.ordering.Unlock()
	w.mu.Lock()
	c := &w.plan.Campaigns[0]
	expect := hongbao.Amount(c.Packets) * price
	w.mu.Unlock()
	order := ledger.TopUp{Campaign: campaign, ID: fmt.Sprintf("order-%d", at), Packets: packets, Total: packets * price,
		Expect: expect, Decision: ann}
	ordered := false
	err := w.persist(ctx, "top-up", campaign, func(ctx context.Context, a *app.App) error {
		out, err := campaigns.Of(a).TopUp(ctx, order)
		ordered = ordered || out != nil
		return w.unlessLate(campaign, err)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if ordered {
		c.Packets += packets
	}
	return err
}

// end closes and refunds the campaigns that the plan ends. It repeats the ends that have already happened.
func (w *world) end(ctx context.Context) error {
	for _, id := range w.plan.ended() {
		if err := w.endOne(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// refund returns what is left of a campaign to its sponsor. If the ledger lacks grants, it fails: nobody has decided
// about them, unless a person has accepted a loss.
func (w *world) refund(ctx context.Context, a *app.App, id string) error {
	p, err := campaigns.Of(a).EndProgress(ctx, id)
	if err != nil {
		return err
	}
	o := closing.Order{Campaign: id, Amount: p.Amount, Wait: 30 * time.Second}
	if p.Missing != nil && w.isLost(id) {
		o.Missing = *p.Missing
	}
	_, err = campaigns.Of(a).Refund(ctx, o)
	return err
}
