package store

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

var (
	withholdScript        = newDrainScript("withhold", "marks", "withheld").with(unguarded)
	grantWithheldScript   = newDrainScript("grant_withheld", "fields", "withheld")
	releaseWithheldScript = newDrainScript("release_withheld", "fields", "left", "withheld")
)

// Packet is a packet of a campaign that no user has.
type Packet struct {
	Number int64          `json:"packet"`
	Amount hongbao.Amount `json:"amount"`
}

func (p Packet) String() string { return fmt.Sprintf("%d %d", p.Number, p.Amount) }

func (k *Shard) packets(cmd *redis.StringSliceCmd) ([]Packet, error) {
	texts, err := cmd.Result()
	if err != nil {
		return nil, fmt.Errorf("read packets: %w", Classify(err))
	}
	list := make([]Packet, len(texts))
	for i, text := range texts {
		number, amount, err := twoNumbers(text)
		if err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "a packet in Redis: %w", err)
		}
		list[i] = Packet{number, hongbao.Amount(amount)}
	}
	return list, nil
}

// Front returns the packets that come next in the stock of each generation of a campaign, up to n each.
func (p Place) Front(ctx context.Context, generations, n int64) ([][]Packet, error) {
	fronts := make([][]Packet, generations)
	for g := range generations {
		var err error
		if fronts[g], err = p.packets(p.rdb.LRange(ctx, p.Keys.StockOf(p.Campaign, g+1), 0, n-1)); err != nil {
			return nil, fmt.Errorf("the stock of campaign %s: %w", p.Campaign, err)
		}
	}
	return fronts, nil
}

// Withholding says which packets of a campaign to withhold: from each generation's stock the first Front[i] packets,
// except those in Stay.
type Withholding struct {
	// Last is the last event for which packets are then withheld. A repeated call with the same Last, or with a lower
	// one, changes nothing. If Last is 0, a repeated call withholds the next packets.
	Last  int64
	Front []int
	Stay  []Packet
	// Next is how many packets more are withheld once a top-up that Redis has lost is dealt again. UpTo is the number of
	// its last packet: later top-ups are not concerned.
	Next, UpTo int64
}

// Withhold moves packets from the stocks to the withheld packets.
func (k *Shard) Withhold(ctx context.Context, a Attempt, campaign string, w Withholding) error {
	keys := append([]string{k.Keys.Meta(), k.Keys.Campaign(campaign), k.Keys.Withheld(campaign)},
		k.Keys.Stocks(campaign, int64(len(w.Front)))...)
	args := []any{a.String(), w.Last, w.Next, w.UpTo}
	for _, n := range w.Front {
		args = append(args, n)
	}
	for _, p := range w.Stay {
		args = append(args, p.String())
	}
	return k.runRestoreScript(ctx, withholdScript, keys, args...)
}

// withholdAtOnce is how many packets one call of WithholdRest moves, so that Redis also serves its other shards.
const withholdAtOnce = 10_000

// WithholdRest moves all packets in the stocks to the withheld packets. If packets is not 0, it is the number of the
// campaign's packets with all top-ups. Those that Redis has lost are withheld once they are dealt again.
func (k *Shard) WithholdRest(ctx context.Context, a Attempt, campaign string, generations, packets int64) error {
	for g := range generations {
		left, err := k.rdb.LLen(ctx, k.Keys.StockOf(campaign, g+1)).Result()
		if err != nil {
			return fmt.Errorf("the stock of campaign %s: %w", campaign, Classify(err))
		}
		for front := make([]int, generations); left > 0; left -= withholdAtOnce {
			front[g] = int(min(left, withholdAtOnce))
			if err := k.Withhold(ctx, a, campaign, Withholding{Front: front}); err != nil {
				return err
			}
		}
	}
	if packets == 0 {
		return nil
	}
	n, err := k.Place(campaign).Undealt(ctx, packets)
	if err == nil {
		err = k.Withhold(ctx, a, campaign, Withholding{Front: make([]int, generations), Next: n, UpTo: packets})
	}
	return err
}

// Withheld returns the packets of a campaign that restores have withheld on the shard, in the order in which they
// were dealt. On an open shard the list may lack a packet if another one is decided meanwhile.
func (p Place) Withheld(ctx context.Context) (list []Packet, err error) {
	for first := int64(0); ; first += listedPackets {
		page, err := p.packets(p.rdb.LRange(ctx, p.Keys.Withheld(p.Campaign), first, first+listedPackets-1))
		if list = append(list, page...); err != nil || len(page) < listedPackets {
			return list, err
		}
	}
}

// CountWithheld returns how many packets of a campaign are withheld, or will be once a lost top-up is dealt again, and
// the last event for which a restore has withheld packets; 0 for none.
func (p Place) CountWithheld(ctx context.Context) (packets, last int64, err error) {
	f, err := p.fields(ctx, withheldField, "withheld_last", "withhold_next")
	if err == nil {
		err = f.Readable(withheldField, "withheld_last", "withhold_next")
	}
	if err != nil {
		return 0, 0, err
	}
	return f.Withheld.Packets + int64(f.WithholdNext), f.WithheldLast, nil
}

// Undealt returns how many of a campaign's packets, of which there are packets with all top-ups, the shard has not got.
func (p Place) Undealt(ctx context.Context, packets int64) (int64, error) {
	f, err := p.fields(ctx, "loaded", placesField, "place")
	if err == nil {
		err = f.Readable("loaded", placesField, "place")
	}
	if err != nil {
		return 0, err
	}
	places := max(f.Places, 1)
	share := (packets - f.Place + places - 1) / places // packet k is on place (k-1) mod places
	return max(0, share-f.Loaded), nil
}

// Undecided counts the withheld packets of campaigns that are open or paused, on all their places. A person can decide
// only these.
func (s *Store) Undecided(ctx context.Context, campaigns []string) (int64, error) {
	n, places, err := askUndecided(ctx, s.rdb, s.homes(campaigns))
	if err != nil {
		return 0, err
	}
	var elsewhere []placeAsk
	for i, id := range campaigns {
		others, err := s.elsewhere(id, places[i])
		if err != nil {
			continue // the audit reports a wrong field places
		}
		elsewhere = append(elsewhere, others...)
	}
	more, _, err := askUndecided(ctx, s.rdb, elsewhere)
	return n + more, err
}

// askUndecided sums up the withheld packets that are not decided, and returns the field places of each campaign.
func askUndecided(ctx context.Context, rdb redis.UniversalClient, asks []placeAsk) (n int64, places []int, err error) {
	if len(asks) == 0 {
		return 0, nil, nil
	}
	pipe, places := rdb.Pipeline(), make([]int, len(asks))
	answers := make([]func() (*CampaignFields, error), len(asks))
	for i, a := range asks {
		answers[i] = a.place.askFields(ctx, pipe, a.campaign, "state", withheldField, placesField)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, nil, fmt.Errorf("count the withheld packets: %w", Classify(err))
	}
	for i, answer := range answers {
		f, err := answer()
		if err != nil || f.Readable(placesField) != nil {
			continue // the audit reports a field that can't be read
		}
		places[i] = int(f.Places)
		if f.State == StateOpen || f.State == StatePaused {
			n += f.Withheld.Packets
		}
	}
	return n, places, nil
}

// Refusal is the reason why a withheld packet was not granted: the campaign's state, or one of the Refused constants.
type Refusal string

// RefusedHas and the other constants are the refusals that are not a campaign's state. RefusedHas means that the user
// already has the packet.
const (
	RefusedHas     Refusal = "has"
	RefusedGone    Refusal = "gone"    // the packet is not withheld
	RefusedRequest Refusal = "request" // the request id already has a different packet
	RefusedLimit   Refusal = "limit"   // the user may have no more packets
	RefusedPlaces  Refusal = "places"  // the campaign is on several shards, and the others were not checked
	// RefusedOpen means that the campaign is on several shards and not paused, so the user could get a packet on another
	// shard while this one is granted.
	RefusedOpen Refusal = "open"
	// RefusedGeneration means that the packets of a top-up are not dealt yet.
	RefusedGeneration Refusal = "generation"
)

// UnknownElsewhere as Room.Elsewhere says that the caller has not counted the user's packets on other shards.
const UnknownElsewhere = -1

// Room says how many packets a user may still get.
type Room struct {
	// Elsewhere is how many packets of the campaign the user has on other shards, or UnknownElsewhere.
	Elsewhere int
	// AboveLimit grants the packet even if the user then has more packets than the campaign's limit.
	AboveLimit bool
}

// GrantWithheld grants a withheld packet to the user to whom it was reported. It sets seq, epoch and time of the grant,
// and returns "". If it returns a refusal, it has changed nothing.
func (k *Shard) GrantWithheld(ctx context.Context, g *hongbao.Grant, room Room) (Refusal, error) {
	elsewhere, above := "", ""
	if room.Elsewhere != UnknownElsewhere {
		elsewhere = strconv.Itoa(room.Elsewhere)
	}
	if room.AboveLimit {
		above = "above"
	}
	keys := []string{k.Keys.Meta(), k.Keys.Events(), k.Keys.Campaign(g.Campaign), k.Keys.Receipts(g.Campaign),
		k.Keys.Withheld(g.Campaign)}
	reply, err := k.run(ctx, grantWithheldScript, keys, []any{g.Campaign, cmp.Or(g.Currency, "-"), g.Packet, int64(g.Amount),
		g.User, g.RequestID, cmp.Or(g.Trace, "-"), elsewhere, above})
	if err != nil {
		return "", err
	}
	r := replyReader{rest: reply}
	switch what := r.string(); what {
	case "granted":
		g.Shard, g.Seq, g.Epoch = k.Index(), r.int64(), r.int64()
		g.Time = time.UnixMilli(r.int64()).UTC()
		return "", r.done(grantWithheldScript)
	case string(RefusedHas):
		return RefusedHas, r.done(grantWithheldScript)
	default:
		why := Refusal(r.string())
		return why, r.done(grantWithheldScript)
	}
}

// ReleaseWithheld returns some withheld packets of a campaign to its stock, and then returns how many are still
// withheld. The caller repeats it until there are none. If it changed nothing, why is the campaign's state,
// RefusedPlaces or RefusedGeneration.
func (p Place) ReleaseWithheld(ctx context.Context) (still int64, why Refusal, err error) {
	return p.releaseWithheld(ctx, MaxChunk/2)
}

func (p Place) releaseWithheld(ctx context.Context, most int) (still int64, why Refusal, err error) {
	generations, err := p.generations(ctx)
	if err != nil {
		return 0, "", err
	}
	keys := append([]string{p.Keys.Meta(), p.Keys.Campaign(p.Campaign), p.Keys.Withheld(p.Campaign)},
		p.Keys.Stocks(p.Campaign, generations)[2*generations-2:]...)
	reply, err := p.run(ctx, releaseWithheldScript, keys, []any{generations, most})
	if err != nil {
		return 0, "", err
	}
	r := replyReader{rest: reply}
	if r.string() == "ok" {
		still = r.int64()
		return still, "", r.done(releaseWithheldScript)
	}
	why = Refusal(r.string())
	return 0, why, r.done(releaseWithheldScript)
}
