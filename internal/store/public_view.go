package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Window returns the public part of a campaign. On a frozen shard, State is always frozen. If the shard does not have
// the campaign, the error is ErrNotInRedis, of ClassPermanent. If that shard is frozen, the error is ErrFrozen instead,
// because the campaign may be lost.
func (p Place) Window(ctx context.Context) (model.PublicView, error) {
	w, _, err := p.window(ctx)
	return w, err
}

// window also returns the number of the campaign's places.
func (p Place) window(ctx context.Context) (w model.PublicView, places int64, err error) {
	node, err := p.Node(ctx)
	if err != nil {
		return w, 0, err
	}
	pipe := node.Pipeline()
	open, clock := p.askOpen(ctx, pipe), pipe.Time(ctx)
	fields := p.Keys.askFields(ctx, pipe, p.Campaign, "state", "name", "kind", "currency", "from", "to", "generation",
		placesField, "dealt", LostField)
	stocked := pipe.LLen(ctx, p.Keys.Stock(p.Campaign))
	if _, err := pipe.Exec(ctx); err != nil {
		return w, 0, fmt.Errorf("read the window of campaign %s: %w", p.Campaign, Classify(err))
	}
	f, err := fields()
	if err != nil {
		return w, 0, err
	}
	frozen := open()
	switch {
	case f.State == "" && frozen != nil:
		return w, 0, fmt.Errorf("campaign %s: %w", p.Campaign, frozen)
	case f.State == "":
		return w, 0, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", p.Campaign, ErrNotInRedis)
	}
	if err := f.Need("from", "to"); err != nil {
		return w, 0, err
	}
	w = model.PublicView{
		State: f.State, Name: f.Name, Kind: f.Kind, Currency: f.Currency, From: f.From, To: f.To, Now: clock.Val(),
		Lost: f.Lost || f.State == StateFrozen,
	}
	if frozen != nil {
		w.State = StateFrozen
	}
	if places = 1; f.Has(placesField) {
		places = f.Places // 0 if unreadable, which placesOf refuses
	}
	w.SoldOut, err = soldOut(ctx, node, p.Keys, f, stocked.Val())
	return w, places, err
}

// soldOut reports whether a place has no packets left and no top-up in progress. f has the place's generations, and first
// is the number of packets in its first stock.
func soldOut(ctx context.Context, rdb redis.Cmdable, k Keys, f *CampaignFields, first int64) (bool, error) {
	switch {
	case first > 0:
		return false, nil
	case f.Generation < 2 || f.Generation > MaxGenerations: // only one, or a wrong number, which the audit reports
		return true, nil
	case f.Dealt != f.Generation:
		return false, nil
	}
	var stocks []string
	for g := int64(2); g <= f.Generation; g++ {
		stocks = append(stocks, k.StockOf(f.campaign, g))
	}
	n, err := rdb.Exists(ctx, stocks...).Result()
	if err != nil {
		return false, fmt.Errorf("read the stocks of campaign %s: %w", f.campaign, Classify(err))
	}
	return n == 0, nil
}

// Window returns the public part of the campaign. The campaign is sold out if every place is, and frozen if every
// place is. Lost is true if any place has lost data. All other fields come from the home. If a place does not answer,
// SoldOut is false, and Window returns no error.
func (c Campaign) Window(ctx context.Context) (model.PublicView, error) {
	w, n, err := c.Home().window(ctx)
	if err != nil || n == 1 {
		return w, err
	}
	places, err := c.placesOf(int(n))
	if err != nil {
		return w, err
	}
	pipe := c.store.rdb.Pipeline()
	others, stocks := make([]func() (*CampaignFields, error), len(places)-1), make([]*redis.IntCmd, len(places)-1)
	for i, k := range places[1:] {
		others[i] = k.Keys.askFields(ctx, pipe, c.id, "state", "generation", "dealt", LostField)
		stocks[i] = pipe.LLen(ctx, k.Keys.Stock(c.id))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, other := range others {
		f, err := other()
		if err != nil || f.State == "" || stocks[i].Err() != nil {
			w.SoldOut = false
			continue
		}
		w.Lost = w.Lost || f.Lost || f.State == StateFrozen
		if w.State == StateFrozen {
			w.State = f.State
		}
		empty, err := soldOut(ctx, c.store.rdb, places[i+1].Keys, f, stocks[i].Val())
		w.SoldOut = w.SoldOut && empty && err == nil
	}
	return w, nil
}
