package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// PublicView is the public part of a campaign.
type PublicView struct {
	State, Name, Kind, Currency string
	From, To                    time.Time
	// SoldOut means that every packet of the place is granted, and no top-up is announced that is not dealt.
	SoldOut bool
	// Lost means that Redis has lost some of the campaign's data: the campaign is frozen or was ended from the
	// ledger. A user without a receipt in Redis may still have a packet.
	Lost bool
	// Now is the time of Redis. Grabs are decided by this clock.
	Now time.Time

	places int64
}

// Status returns the outcome for a grab of a user without packets, or "open". The checks are in the order of
// lua/grab.lua.
func (w *PublicView) Status() string {
	switch ended := !w.Now.Before(w.To); {
	case w.State == "frozen":
		return "frozen"
	case w.State == "paused" && !ended:
		return "paused"
	case w.State == "closed", w.State == "refunded":
		return "ended"
	case w.State == "loading", w.Now.Before(w.From):
		return "not_started"
	case ended:
		return "ended"
	case w.SoldOut:
		return "sold_out"
	}
	return "open"
}

// Window returns the public part of a campaign. On a frozen shard, State is always frozen. If the shard does not have
// the campaign, the error is ErrNotInRedis, of ClassPermanent. If that shard is frozen, the error is ErrFrozen instead,
// because the campaign may be lost.
func (k *Shard) Window(ctx context.Context, campaign string) (PublicView, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return PublicView{}, err
	}
	pipe := node.Pipeline()
	open, clock := k.askOpen(ctx, pipe), pipe.Time(ctx)
	fields := pipe.HMGet(ctx, k.Keys.Campaign(campaign), "state", "name", "kind", "currency", "from", "to", "generation",
		placesField, "dealt", LostField)
	stocked := pipe.LLen(ctx, k.Keys.Stock(campaign))
	if _, err := pipe.Exec(ctx); err != nil {
		return PublicView{}, fmt.Errorf("read the window of campaign %s: %w", campaign, Classify(err))
	}
	var text [10]string
	for i, v := range fields.Val() {
		text[i], _ = v.(string) // an absent field is empty
	}
	lost, frozen := text[9] != "" || text[0] == StateFrozen, open()
	if text[0] == "" && frozen != nil {
		return PublicView{}, fmt.Errorf("campaign %s: %w", campaign, frozen)
	}
	if text[0] == "" {
		return PublicView{}, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", campaign, ErrNotInRedis)
	}
	if frozen != nil {
		text[0] = StateFrozen
	}
	from, errFrom := strconv.ParseInt(text[4], 10, 64)
	to, errTo := strconv.ParseInt(text[5], 10, 64)
	if errFrom != nil || errTo != nil {
		return PublicView{}, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: its window is %.30q to %.30q", campaign,
			text[4], text[5])
	}
	w := PublicView{
		State: text[0], Name: text[1], Kind: text[2], Currency: text[3], From: time.UnixMilli(from), To: time.UnixMilli(to),
		Now: clock.Val(), places: 1, Lost: lost,
	}
	if text[7] != "" {
		w.places, _ = strconv.ParseInt(text[7], 10, 64) // 0 if unreadable, which placesOf refuses
	}
	w.SoldOut, err = soldOut(ctx, node, k.Keys, campaign, stocked.Val(), text[6], text[8])
	return w, err
}

// soldOut reports whether a place has no packets left and no top-up in progress. first is the number of packets in
// its first stock. newest and dealt are its newest announced and its newest complete generation; they are empty
// before the first top-up.
func soldOut(ctx context.Context, rdb redis.Cmdable, k Keys, campaign string, first int64, newest, dealt string) (bool,
	error) {
	generation, _ := strconv.ParseInt(newest, 10, 64) // 0 if it is not a number
	switch {
	case first > 0:
		return false, nil
	case generation < 2 || generation > MaxGenerations: // only one generation, or a wrong number, which the audit reports
		return true, nil
	case dealt != newest:
		return false, nil
	}
	var stocks []string
	for g := int64(2); g <= generation; g++ {
		stocks = append(stocks, k.StockOf(campaign, g))
	}
	n, err := rdb.Exists(ctx, stocks...).Result()
	if err != nil {
		return false, fmt.Errorf("read the stocks of campaign %s: %w", campaign, Classify(err))
	}
	return n == 0, nil
}

// Window returns the public part of the campaign. The campaign is sold out if every place is, and frozen if every
// place is. Lost is true if any place has lost data. All other fields come from the home. If a place does not answer,
// SoldOut is false, and Window returns no error.
func (c Campaign) Window(ctx context.Context) (PublicView, error) {
	w, err := c.Home().Window(ctx, c.id)
	if err != nil || w.places == 1 {
		return w, err
	}
	places, err := c.placesOf(int(w.places))
	if err != nil {
		return w, err
	}
	pipe := c.store.rdb.Pipeline()
	others, stocks := make([]*redis.SliceCmd, len(places)-1), make([]*redis.IntCmd, len(places)-1)
	for i, k := range places[1:] {
		others[i] = pipe.HMGet(ctx, k.Keys.Campaign(c.id), "state", "generation", "dealt", LostField)
		stocks[i] = pipe.LLen(ctx, k.Keys.Stock(c.id))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, other := range others {
		var at struct {
			State      string `redis:"state"`
			Generation string `redis:"generation"`
			Dealt      string `redis:"dealt"`
			Lost       string `redis:"lost"`
		}
		if other.Scan(&at) != nil || at.State == "" || stocks[i].Err() != nil {
			w.SoldOut = false
			continue
		}
		w.Lost = w.Lost || at.Lost != "" || at.State == StateFrozen
		if w.State == StateFrozen {
			w.State = at.State
		}
		empty, err := soldOut(ctx, c.store.rdb, places[i+1].Keys, c.id, stocks[i].Val(), at.Generation, at.Dealt)
		w.SoldOut = w.SoldOut && empty && err == nil
	}
	return w, nil
}
