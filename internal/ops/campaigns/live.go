package campaigns

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// InLedger returns the ledger's data of a campaign. The status is created or refunded; AddRedis replaces it.
func InLedger(c *ledger.StoredCampaign) model.Campaign {
	s := &c.Spec
	out := model.Campaign{ID: s.ID, Name: s.Name, Kind: s.Kind, Packets: c.Packets, Currency: s.Currency, Funded: c.Funded,
		Paid: c.Granted, Refunded: c.Refunded, State: c.State, Status: "created", From: s.From.UTC(), To: s.To.UTC(),
		TimeZone: s.TimeZone, Codes: codesFrom(s), Sponsor: s.Sponsor, Dealt: c.Packets, Granted: c.Grants, GrantedSum: c.Granted}
	if c.State == model.MoneyRefunded {
		out.Status = "refunded"
	}
	return out
}

// AddRedis adds the data of Redis, or a note that Redis did not answer.
func (a Campaigns) AddRedis(ctx context.Context, c *model.Campaign) {
	err := a.readRedis(ctx, c)
	switch {
	case errors.Is(err, store.ErrFrozen), errors.Is(err, store.ErrLost):
		c.Status, c.Note = "frozen", new(model.Because(err, "Grabs are refused."))
	case err != nil:
		c.Status, c.Note = model.Unread, new(model.Because(err, "Redis could not return the state of campaign %s.", c.ID))
		c.Outage = hongbao.IsOutage(err)
	}
}

func (a Campaigns) readRedis(ctx context.Context, c *model.Campaign) error {
	w, err := a.app.Store().Campaign(c.ID).Window(ctx)
	if errors.Is(err, store.ErrNotInRedis) {
		if c.Status == "refunded" { // the campaign has left Redis
			return nil
		}
		if err := a.app.Store().Home(c.ID).Belongs(ctx); err != nil {
			return fmt.Errorf("campaign %s: %w", c.ID, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	st, there, err := a.app.Store().Campaign(c.ID).Status(ctx)
	if err != nil || !there {
		return err
	}
	c.InRedis, c.Dealt, c.Granted, c.Left = true, st.Packets, st.Granted, st.Left
	c.GrantedSum, c.LeftSum, c.Sinks = st.GrantedAmount, st.LeftAmount, st.Sinks
	if p := st.Pause; p != nil {
		c.Paused = &model.Pause{By: p.By, Why: p.Why, At: p.At}
	}
	for _, p := range st.Places {
		c.Places = append(c.Places, model.Place{Shard: p.Shard, State: p.State, Packets: p.Loaded, Granted: p.Granted,
			Left: p.Left})
	}
	if len(st.Places) > 0 && st.State == store.StateOpen { // at least one shard is open; the home may be paused or closed
		w.State = store.StateOpen
	}
	if c.Status = w.Status(); w.State == store.StateLoading || w.State == store.StateClosed || w.State == store.StateRefunded {
		c.Status = w.State
	}
	c.CanResume = w.State == store.StatePaused
	c.CanPause = w.State == store.StateOpen && c.Status != string(hongbao.OutcomeEnded)
	return nil
}
