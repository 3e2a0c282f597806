package campaigns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// windowRest is how long a campaign's window must still be open for a top-up. A close waits for earlier top-ups, so
// clocks that differ by less than windowRest do no harm.
const windowRest = 5 * time.Second

// draft is a checked and completed order, and the state of its campaign in the ledger.
type draft struct {
	order    ledger.TopUp
	campaign ledger.StoredCampaign
	stored   []ledger.StoredTopUp
}

// same returns the top-up that the ledger has under the order's id; nil if there is none.
func (d *draft) same() *model.TopUp {
	for i := range d.stored {
		if s := &d.stored[i]; s.ID == d.order.ID {
			has := topUpOf(&d.campaign, s)
			return &has
		}
	}
	return nil
}

// draft checks an order and completes it with a new seed and what the campaign decides: the generation, and the split apart
// from the order's tiers. If the ledger already has the order's id, draft skips the checks, because the ledger compares the
// two orders itself.
func (a Campaigns) draft(ctx context.Context, o ledger.TopUp) (*draft, error) {
	c, stored, err := a.app.CampaignWithTopUps(ctx, o.Campaign)
	if err != nil {
		return nil, err
	}
	tiers := o.Split.Tiers
	o.Generation, o.Split, o.Seed = len(stored)+2, c.Spec.Split, campaign.NewSeed()
	if o.Split.Mode == hongbao.SplitTiers {
		o.Split.Tiers = tiers
	} else if len(tiers) > 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "top up campaign %s: the campaign is split by mode %s, but the order "+
			"has tiers; remove them", o.Campaign, o.Split.Mode)
	}
	before := c.Hash
	if n := len(stored); n > 0 {
		before = stored[n-1].Hash
	}
	draw := o.Draw(before)
	o.Hash = draw.Commit()
	d := &draft{order: o, campaign: c, stored: stored}
	if d.same() != nil {
		return d, nil
	}
	if err = access.MaySpend(ctx, c.Spec.Sponsor, max(c.Funded, o.Expect)+o.Total); err == nil {
		err = a.mayTopUp(ctx, &c, &o)
	}
	if err == nil {
		err = draw.Check(c.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("top up campaign %s: %w", o.Campaign, err)
	}
	return d, nil
}

// mayTopUp makes the checks that the ledger can't make, because they depend on Redis or on the clock.
func (a Campaigns) mayTopUp(ctx context.Context, c *ledger.StoredCampaign, o *ledger.TopUp) error {
	in := a.app.Store().Campaign(c.Spec.ID)
	st, found, err := in.Status(ctx)
	if err != nil {
		return err
	}
	if found && drawn(o, c, &st) { // what Redis has may be repeated at any time
		return nil
	}
	if left := time.Until(c.Spec.To); left < windowRest {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: its window ends at %s", ledger.ErrNoTopUp,
			c.Spec.To.UTC().Format(time.RFC3339))
	}
	if found && (st.State == store.StateClosed || st.State == store.StateRefunded) {
		return hongbao.Errorf(hongbao.ClassPermanent, "%w: it is %s", ledger.ErrNoTopUp, st.State)
	}
	if _, err := in.Dealt(ctx); errors.Is(err, store.ErrLost) {
		return err // the packets might never be dealt
	}
	if found && st.Packets > c.Packets {
		return a.ahead(ctx, c.Spec.ID, st.Packets)
	}
	return a.notLost(ctx, c.Spec.ID)
}

// drawn reports whether the order draws exactly the packets that Redis has and the ledger lacks. That is certain only if all
// have the same amount.
func drawn(o *ledger.TopUp, c *ledger.StoredCampaign, st *store.Status) bool {
	return sameAmounts(c.Spec.Split.Mode, o.Packets, o.Total) &&
		st.Packets == c.Packets+o.Packets && st.GrantedAmount+st.LeftAmount == c.Funded+o.Total
}

// ahead returns an error if Redis has more packets of a campaign than the ledger: an older copy of the ledger lacks a
// top-up. An order would draw its packets again, and their wins would contradict the new draw.
func (a Campaigns) ahead(ctx context.Context, id string, packets int64) error {
	c, err := a.app.Campaign(ctx, id) // again: another order may have been faster
	switch {
	case err != nil:
		return err
	case c.Packets >= packets:
		return hongbao.Errorf(hongbao.ClassTransient, "another top-up was faster; run it again")
	}
	return hongbao.Errorf(hongbao.ClassConflict, "%w: Redis has %d packets of it, and the ledger %d: the ledger lost a "+
		"top-up, and its draw with it. Restore a newer copy of the ledger; if there is none, see docs/disaster.md, \"What "+
		"the procedure cannot bring back\"", ledger.ErrNoTopUp, packets, c.Packets)
}

// TryTopUp returns the result that an order would have, with the present funding as Expect. It changes nothing.
func (a Campaigns) TryTopUp(ctx context.Context, o ledger.TopUp) (*model.TopUp, error) {
	d, err := a.draft(ctx, o)
	if err != nil {
		return nil, err
	}
	if has := d.same(); has != nil {
		return has, nil
	}
	c := &d.campaign
	d.order.Expect = c.Funded
	if err := d.order.Allowed(c, d.stored); err != nil {
		return nil, fmt.Errorf("top up campaign %s: %w", o.Campaign, err)
	}
	out := topUpOf(c, &ledger.StoredTopUp{TopUp: d.order, First: c.Packets + 1})
	out.Hash = ""
	return &out, nil
}

// OrderTopUp is the first step of a top-up: one transaction of the ledger. The second step is DealTopUps.
func (a Campaigns) OrderTopUp(ctx context.Context, o ledger.TopUp) (out *model.TopUp, err error) {
	err = a.app.InLedger(ctx, app.About(ctx, access.TopUpCampaign, o.Campaign),
		func(ctx context.Context, e *access.Entry) error {
			e.Details = map[string]any{"id": o.ID, "packets": o.Packets, "total": o.Total, "expect": o.Expect, "by": o.By,
				"why": o.Why}
			d, err := a.draft(ctx, o)
			if err != nil {
				return err
			}
			stored, err := a.app.Ledger().TopUp(ctx, d.order)
			if err != nil {
				return err
			}
			e.Details["generation"], e.Details["plan_hash"] = stored.Generation, stored.Hash
			out, err = a.shownTopUp(ctx, o.Campaign, stored.Generation)
			return err
		})
	return out, err
}

// TopUp adds packets to a campaign and deals them. If it returns both a result and an error, the packets are ordered
// but not yet dealt; see TopUpWaits.
func (a Campaigns) TopUp(ctx context.Context, o ledger.TopUp) (*model.TopUp, error) {
	out, err := a.OrderTopUp(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := a.DealTopUps(ctx, o.Campaign); err != nil && out.Dealt.IsZero() {
		return out, err
	}
	shown, err := a.shownTopUp(ctx, o.Campaign, out.Generation)
	if err != nil {
		return out, err
	}
	return shown, nil
}

// shownTopUp reads a top-up of a campaign.
func (a Campaigns) shownTopUp(ctx context.Context, campaign string, generation int) (*model.TopUp, error) {
	c, stored, err := a.app.Ledger().CampaignWithTopUps(ctx, campaign)
	if err != nil {
		return nil, err
	}
	return &topUpsOf(&c, stored)[generation-2], nil
}

// TopUpWaits reports whether the ordered packets only wait until their campaign is loaded. If Redis has lost a part of
// the campaign, it returns false, because they would wait forever.
func TopUpWaits(err error) bool {
	return errors.Is(err, store.ErrTopUpWaits) && !errors.Is(err, store.ErrLost)
}

// DealTopUps loads a campaign's top-ups into Redis. It deals each top-up that Redis lacks, even if the ledger has
// recorded it as dealt, because Redis may have lost the packets. DealTopUps may run concurrently. If it is killed, the
// next call continues its work.
func (a Campaigns) DealTopUps(ctx context.Context, id string) error {
	c, stored, err := a.app.Ledger().CampaignWithTopUps(ctx, id)
	if err != nil {
		return err
	}
	return a.loadTopUps(ctx, &c, stored)
}

// loadTopUps deals the top-ups of a campaign that Redis lacks, and records them as dealt in the ledger.
func (a Campaigns) loadTopUps(ctx context.Context, c *ledger.StoredCampaign, stored []ledger.StoredTopUp) error {
	if len(stored) == 0 || c.State == model.MoneyRefunded {
		return nil
	}
	id := c.Spec.ID
	epochs, err := a.app.Ledger().Epochs(ctx)
	if err != nil {
		return err
	}
	dealt, err := a.app.Store().Campaign(id).Dealt(ctx)
	if TopUpWaits(err) {
		err = cmp.Or(a.notLost(ctx, id), err) // report a campaign that Redis has lost, since Load would refuse it
	}
	if err != nil {
		return fmt.Errorf("generation %d of campaign %s is in the ledger, and a worker will deal it: %w", len(stored)+1, id, err)
	}
	if dealt <= len(stored) {
		if err := a.dealAfter(ctx, c, stored, dealt); err != nil {
			return err
		}
	}
	for i := range stored {
		if stored[i].Dealt.IsZero() {
			if err := a.app.Ledger().TopUpDealt(ctx, id, stored[i].Generation, epochs); err != nil {
				return err
			}
		}
	}
	return nil
}

// dealAfter deals all generations with a number above dealt, in order.
func (a Campaigns) dealAfter(ctx context.Context, c *ledger.StoredCampaign,
	stored []ledger.StoredTopUp, dealt int) error {
	if err := campaign.Verify(c.Spec, c.Seed, c.Hash); err != nil {
		return err
	}
	draws := ledger.Draws(c, stored)
	for i := range draws {
		if has := draws[i].Commit(); has != stored[i].Hash {
			return hongbao.Errorf(hongbao.ClassConflict, "generation %d of campaign %s is in the ledger with hash %s, but its text "+
				"and seed have hash %s: one of the three was changed", i+2, c.Spec.ID, stored[i].Hash, has)
		}
	}
	plan, err := campaign.NewPlan(c.Spec, c.Seed, draws...)
	if err != nil {
		return err
	}
	loader, err := a.app.Loader()
	if err != nil {
		return err
	}
	if err := a.app.Ledger().Replicated(ctx); err != nil { // users must not win packets that the ledger may lose
		return err
	}
	for i := range stored {
		s := &stored[i]
		if s.Generation <= dealt {
			continue
		}
		g := &load.Generation{Spec: c.Spec, Hash: c.Hash, PlanHash: s.Hash, Number: s.Generation,
			Packets: s.First + s.Packets - 1, Total: s.Expect + s.Total, Plan: plan}
		dealing := a.app.LongCall(ctx, "dealing more packets of "+c.Spec.ID, g.Packets)
		err := loader.TopUp(ctx, g, dealing.Set)
		dealing.End()
		if err != nil {
			return dealing.Stopped(ctx, err, "an order adds its packets once: run the same command again")
		}
	}
	return nil
}

// beginClose deals the campaign's top-ups, and then closes the campaign in the ledger for further top-ups. If a shard
// does not answer but the ledger has recorded all top-ups as dealt, beginClose succeeds, because the close itself
// checks each shard. If Redis has lost a part of the campaign, its top-ups can't be dealt: the other shards are closed
// without them.
func (a Campaigns) beginClose(ctx context.Context, c *ledger.StoredCampaign, added []ledger.StoredTopUp) error {
	begin, dealing, id := a.app.Ledger().BeginClose, a.loadTopUps(ctx, c, added), c.Spec.ID
	if errors.Is(dealing, store.ErrLost) {
		begin = a.app.Ledger().BeginCloseOfLost
	}
	err := begin(ctx, id)
	if errors.Is(err, ledger.ErrTopUpOpen) && dealing != nil {
		err = dealing
	}
	if err != nil {
		return fmt.Errorf("close campaign %s: its top-ups must be dealt first: %w", id, err)
	}
	return nil
}

const (
	// topUpEvery is how often a worker looks for top-ups that are not dealt.
	topUpEvery = 2 * time.Second
	// topUpLogEvery is the minimum time between two log messages about failing top-ups.
	topUpLogEvery = time.Minute
)

// TendTopUps deals top-ups until ctx ends. Workers run it for top-ups that were ordered but not dealt, because their
// caller was killed or because the campaign was not loaded yet.
func (a Campaigns) TendTopUps(ctx context.Context) error {
	locks, err := a.app.Locks()
	if err != nil {
		return err
	}
	logged := time.Time{}
	for retry.Pause(ctx, topUpEvery) {
		err := locks.Do(ctx, "topup", func(ctx context.Context) error {
			return a.dealOpenTopUps(ctx)
		})
		if err != nil && ctx.Err() == nil && time.Since(logged) > topUpLogEvery {
			logged = time.Now()
			a.app.Log().Warn("the packets of a top-up are not in Redis yet; the worker tries again", zap.Error(err))
		}
	}
	return nil
}

func (a Campaigns) dealOpenTopUps(ctx context.Context) error {
	open, err := a.app.Ledger().OpenTopUps(ctx)
	for i := range open {
		err = errors.Join(err, a.DealTopUps(ctx, open[i].Campaign))
	}
	return err
}

func topUpOf(c *ledger.StoredCampaign, s *ledger.StoredTopUp) model.TopUp {
	return model.TopUp{Campaign: s.Campaign, ID: s.ID, Generation: s.Generation, First: s.First, Packets: s.Packets,
		Total: s.Total, Currency: c.Spec.Currency, Funded: s.Expect + s.Total, Hash: s.Hash, By: s.By, Why: s.Why,
		Created: s.Created, Dealt: s.Dealt}
}

// topUpsOf returns all top-ups of a campaign, with the text that the hash of each covers.
func topUpsOf(c *ledger.StoredCampaign, stored []ledger.StoredTopUp) (list []model.TopUp) {
	draws := ledger.Draws(c, stored)
	for i := range stored {
		t := topUpOf(c, &stored[i])
		t.Canonical = string(draws[i].Canonical())
		list = append(list, t)
	}
	return list
}

// disclosed returns the draws of top-ups in their published form.
func disclosed(added []campaign.TopUp) (list []campaign.DisclosedTopUp) {
	for i := range added {
		t := &added[i]
		list = append(list, campaign.DisclosedTopUp{Canonical: string(t.Canonical()), Hash: t.Commit(), Seed: t.Seed.Hex()})
	}
	return list
}
