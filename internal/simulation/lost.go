package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// What a person still has to do with a campaign after an accepted loss.
const (
	refundLost = "hongbao campaign refund-lost" // Redis has lost a part of it
	load       = "hongbao campaign load"        // Redis has lost it, and no one was granted anything
)

// finish does the next step for a campaign that `hongbao recover` has named.
func (w *world) finish(ctx context.Context, a *app.App, id string) error {
	if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
		return err
	}
	w.mu.Lock()
	what := w.todo[id]
	w.mu.Unlock()
	if what == load {
		if _, err := campaigns.Of(a).Load(ctx, id); err != nil {
			return err
		}
		w.finished(id, "loaded again")
		return nil
	}
	shown, err := campaigns.Of(a).LostProgress(ctx, id)
	switch {
	case hongbao.ClassOf(err) == hongbao.ClassPermanent && err != nil:
		w.finished(id, err.Error()) // Redis went back again, and another report will name the campaign
		return nil
	case err != nil:
		return err
	case shown.Refunded != nil && shown.Next == "":
		w.finished(id, "ended")
		return nil
	}
	if err := w.unsettled(ctx, a, id, shown); err != nil {
		return err
	}
	amount := shown.LeftAmount
	if shown.Refund != nil {
		amount = shown.Refund.Amount
	}
	_, err = campaigns.Of(a).RefundLost(ctx, model.LostRefund{Campaign: id, Amount: amount, Decision: ann}, shown.Digest)
	if err == nil {
		w.cover.note("person", refundLost)
	}
	return err
}

func (w *world) finished(id, how string) {
	w.note("campaign %s: %s", id, how)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.todo, id)
}

// unsettled takes the steps that `hongbao campaign refund-lost` names, and returns an error while some are left.
func (w *world) unsettled(ctx context.Context, a *app.App, id string, shown *campaigns.LostEnding) error {
	still := shown.Settled()
	if shown.Refund != nil || still == nil {
		return nil
	}
	for i := range w.plan.Deeds { // alarm sink_paused: Redis may have lost the resume
		if d := &w.plan.Deeds[i]; d.What == SinkPause && time.Since(virtual.Epoch) > d.At+d.For {
			_, err := deliveries.Of(a).ResumeSink(ctx, d.Who, ann)
			still = errors.Join(still, err)
		}
	}
	if shown.Waiting.Open > 0 {
		w.cover.note("person", "hongbao campaign close --early")
		_, _ = campaigns.Of(a).Close(ctx, id, true) // closes the intact shards, and fails for the others
	}
	if shown.Waiting.Receipts > 0 {
		w.cover.note("person", "hongbao replay --to balance")
		_, err := deliveries.Of(a).Replay(ctx, deliveries.Replay{Name: fmt.Sprintf("%s-%d", id, time.Since(virtual.Epoch)), To: "balance",
			Filter: replay.Filter{Campaign: id}})
		still = errors.Join(still, err)
	}
	if shown.Waiting.Quarantine == 0 {
		return still
	}
	page, err := payments.Of(a).ListQuarantine(ctx, payments.QuarantineList{Limit: 100})
	for i := range page.Grants {
		if page.Grants[i].Campaign == id {
			w.cover.note("person", "hongbao quarantine resolve")
			_, failed := payments.Of(a).Decide(ctx, ledger.Resolution{ID: page.Grants[i].ID, Decision: ann})
			err = errors.Join(err, failed)
		}
	}
	return errors.Join(still, err)
}
