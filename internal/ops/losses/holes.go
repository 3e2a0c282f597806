package losses

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Holes are the packets of a campaign that restores have withheld on one shard, in the order in which they were dealt.
type Holes struct {
	Campaign string         `json:"campaign"`
	Currency string         `json:"currency,omitempty"`
	Shard    int            `json:"shard"`
	Count    int            `json:"count"`
	Amount   hongbao.Amount `json:"amount"`
	Packets  []store.Packet `json:"packets"`
	// Again has the packets that a person has granted, and that are withheld again: Redis has lost the grant.
	Again []HoleAgain `json:"again,omitempty"`
}

// HoleAgain is a withheld packet that a person had granted to a user.
type HoleAgain struct {
	Packet int64  `json:"packet"`
	User   string `json:"user"`
	By     string `json:"by"`
}

// ListHoles lists the withheld packets of one campaign. Without an id it lists those of all campaigns that are not
// refunded.
func (a Losses) ListHoles(ctx context.Context, campaign string) ([]Holes, error) {
	list := []Holes{}
	if campaign != "" {
		currency, err := a.currencyOf(ctx, campaign)
		if err != nil {
			return nil, err
		}
		return a.addHoles(ctx, list, campaign, currency)
	}
	for c, err := range a.app.Ledger().EachCampaign(ctx, "") {
		if err != nil {
			return nil, err
		}
		if c.State == model.MoneyRefunded {
			continue
		}
		if list, err = a.addHoles(ctx, list, c.Spec.ID, c.Spec.Currency); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// UndecidedHoles counts the withheld packets that a person can still grant or release.
func (a Losses) UndecidedHoles(ctx context.Context) (int64, error) {
	campaigns, err := a.app.Ledger().Withholding(ctx)
	if err != nil || len(campaigns) == 0 {
		return 0, err
	}
	return a.app.Store().Undecided(ctx, campaigns)
}

// UndecidedByCampaign counts the withheld packets that a person can still grant or release, of each campaign that has some.
func (a Losses) UndecidedByCampaign(ctx context.Context) (list []model.Withheld, err error) {
	campaigns, err := a.app.Ledger().Withholding(ctx)
	if err != nil || len(campaigns) == 0 {
		return nil, err
	}
	if all, err := a.app.Store().Undecided(ctx, campaigns); err != nil || all == 0 {
		return nil, err // usually, without a question for each campaign
	}
	for _, id := range campaigns {
		n, err := a.Undecided(ctx, id)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			list = append(list, model.Withheld{Campaign: id, Packets: n})
		}
	}
	return list, nil
}

// Undecided counts the withheld packets of one campaign that a person can still grant or release.
func (a Losses) Undecided(ctx context.Context, campaign string) (int64, error) {
	return a.app.Store().Undecided(ctx, []string{campaign})
}

// addHoles appends the withheld packets of a campaign on all its places.
func (a Losses) addHoles(ctx context.Context, list []Holes, campaign, currency string) ([]Holes, error) {
	c := a.app.Store().Campaign(campaign)
	places, err := c.Places(ctx)
	if err != nil {
		return nil, err
	}
	var granted map[int64]HoleAgain
	for _, k := range places {
		packets, err := k.Withheld(ctx)
		if err != nil {
			return nil, err
		}
		if len(packets) == 0 {
			continue
		}
		holes := Holes{Campaign: campaign, Currency: currency, Shard: k.Index(), Count: len(packets), Packets: packets}
		if granted == nil {
			if granted, err = a.grantedBefore(ctx, campaign); err != nil {
				return nil, err
			}
		}
		for _, p := range packets {
			holes.Amount += p.Amount
			if again, is := granted[p.Number]; is {
				holes.Again = append(holes.Again, again)
			}
		}
		list = append(list, holes)
	}
	return list, nil
}

func (a Losses) currencyOf(ctx context.Context, campaign string) (string, error) {
	c, found, err := a.app.Ledger().Campaign(ctx, campaign)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "the ledger has no campaign %s; `hongbao campaign list` lists its campaigns", campaign)
	}
	return c.Spec.Currency, err
}

// HoleGrant is a person's decision to grant a withheld packet to a user.
type HoleGrant struct {
	Campaign  string
	Packet    int64
	User      string
	RequestID string
	// AboveLimit grants the packet even if the user then has more packets than the campaign's limit, as after an
	// automatic retry that got another packet.
	AboveLimit bool
	stream.Decision
}

// GrantHole grants a withheld packet to the user who saw that they won it. A repeat changes nothing.
func (a Losses) GrantHole(ctx context.Context, o HoleGrant) (g hongbao.Grant, err error) {
	err = a.app.Recorded(ctx, app.About(ctx, access.GrantWithheld, o.Campaign), func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"packet": o.Packet, "user": o.User, "by": o.By, "why": o.Why}
		if o.AboveLimit {
			e.Details[aboveLimit] = true
		}
		g, err = a.grantHole(ctx, o)
		return err
	})
	return g, err
}

func (a Losses) grantHole(ctx context.Context, o HoleGrant) (g hongbao.Grant, err error) {
	held, g, err := a.heldFor(ctx, &o)
	if err != nil || g.Packet != 0 {
		return g, err
	}
	holes, err := a.ListHoles(ctx, o.Campaign)
	if err != nil {
		return g, err
	}
	if len(held) > 1 {
		// A producer may answer for a lease from what it read before the pause. After that it asks Redis, so the user's
		// repeat finds this packet.
		retry.Pause(ctx, walk.Lease)
		if held, g, err = a.heldFor(ctx, &o); err != nil || g.Packet != 0 {
			return g, err
		}
	}
	for i := range holes {
		at := slices.IndexFunc(holes[i].Packets, func(p store.Packet) bool { return p.Number == o.Packet })
		if at >= 0 {
			return a.grantOf(ctx, o, &holes[i], at, held)
		}
	}
	return g, hongbao.Errorf(hongbao.ClassPermanent, "grant packet %d of campaign %s: no restore has withheld it, or it was granted or "+
		"released since; `hongbao hole list %s` lists the withheld packets", o.Packet, o.Campaign, o.Campaign)
}

// aboveLimit is the detail of a journal entry which says that HoleGrant.AboveLimit was set.
const aboveLimit = "above_limit"

// GrantedAboveLimit returns how many packets of a campaign a person has granted to each user above the campaign's
// limit, from the journal. A grant whose journal entry is lost counts as soon as the person repeats the command.
func (a Losses) GrantedAboveLimit(ctx context.Context, campaign string) (map[string]int64, error) {
	seen, users := map[HoleAgain]bool{}, map[string]int64{}
	err := a.eachGranted(ctx, campaign, func(e *access.Entry, g HoleAgain) {
		g.By = ""
		above := e.Details[aboveLimit] == true && (e.Outcome == access.OutcomeDone || e.Outcome == access.OutcomeUnknown)
		if above && !seen[g] {
			seen[g] = true
			users[g.User]++
		}
	})
	return users, err
}

// grantedBefore returns the withheld packets of a campaign that people have granted, by packet, from the journal.
func (a Losses) grantedBefore(ctx context.Context, campaign string) (map[int64]HoleAgain, error) {
	granted := map[int64]HoleAgain{}
	return granted, a.eachGranted(ctx, campaign, func(e *access.Entry, g HoleAgain) {
		if e.Outcome == access.OutcomeDone {
			granted[g.Packet] = g
		}
	})
}

// eachGranted calls f for each entry of the journal about a withheld packet of the campaign that a person granted.
func (a Losses) eachGranted(ctx context.Context, campaign string, f func(*access.Entry, HoleAgain)) error {
	for q := (access.JournalQuery{Campaign: campaign, Limit: access.MaxEntries}); ; {
		page, err := a.app.Access().Journal(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if e.Action != access.GrantWithheld {
				continue
			}
			var g HoleAgain
			packet, _ := e.Details["packet"].(float64) // as the journal's JSON has it
			g.Packet = int64(packet)
			g.User, _ = e.Details["user"].(string)
			g.By, _ = e.Details["by"].(string)
			f(e, g)
		}
		if page.Next == "" {
			return nil
		}
		q.After = string(page.Next)
	}
}

// heldFor reads the user's receipts on all places. If the user already has the packet, g is its grant. The error says
// why the packet can't be granted.
func (a Losses) heldFor(ctx context.Context, o *HoleGrant) (held []store.UserReceipts, g hongbao.Grant, err error) {
	held, err = a.app.Store().Campaign(o.Campaign).UserReceipts(ctx, o.User)
	if err = cmp.Or(checkOpen(held), err); err != nil {
		return nil, g, o.error(err)
	}
	receipts := store.ReceiptsOf(held)
	if i := slices.IndexFunc(receipts, func(r hongbao.Receipt) bool { return r.Packet == o.Packet }); i >= 0 {
		r := receipts[i]
		return held, hongbao.Grant{Campaign: o.Campaign, User: o.User, Packet: r.Packet, Amount: r.Amount, Shard: r.Shard, Seq: r.Seq,
			Time: r.Time, RequestID: r.RequestID}, nil
	}
	if why := o.refusal(held, receipts); why != "" {
		return nil, g, o.refused(why)
	}
	return held, g, nil
}

// grantOf grants the packet with the index at among a place's withheld packets.
func (a Losses) grantOf(ctx context.Context, o HoleGrant, h *Holes, at int, held []store.UserReceipts) (hongbao.Grant, error) {
	elsewhere := 0
	for i := range held {
		if held[i].Place.Index() != h.Shard {
			elsewhere += len(held[i].Receipts)
		}
	}
	g := hongbao.Grant{Campaign: o.Campaign, Currency: h.Currency, User: o.User, RequestID: o.RequestID, Packet: o.Packet,
		Amount: h.Packets[at].Amount}
	why, err := a.app.Store().Shard(h.Shard).GrantWithheld(ctx, &g, store.Room{Elsewhere: elsewhere, AboveLimit: o.AboveLimit})
	if err == nil && why != "" {
		err = o.refused(why)
	}
	return g, err
}

// checkOpen returns an error if a place is frozen: a user's receipts there may be out of date, and so may an error.
func checkOpen(held []store.UserReceipts) error {
	for i := range held {
		if err := held[i].Open; err != nil {
			return fmt.Errorf("shard %d: %w", held[i].Place.Index(), err)
		}
	}
	return nil
}

// refusal returns why the packet can't be granted, as far as the user's receipts on all places say it. On several
// places each must be paused: no grab in progress can then get a packet after its place was read.
func (o *HoleGrant) refusal(held []store.UserReceipts, receipts []hongbao.Receipt) store.Refusal {
	if o.RequestID != "" && slices.ContainsFunc(receipts, func(r hongbao.Receipt) bool { return r.RequestID == o.RequestID }) {
		return store.RefusedRequest
	}
	for i := range held {
		if len(held) > 1 && held[i].State == store.StateOpen {
			return store.RefusedOpen
		}
	}
	return ""
}

func (o *HoleGrant) error(err error) error {
	return fmt.Errorf("grant packet %d of campaign %s to user %.200q: nothing was changed: %w", o.Packet, o.Campaign, o.User, err)
}

func (o *HoleGrant) refused(why store.Refusal) error {
	return o.error(hongbao.Errorf(hongbao.ClassPermanent, "%s", refusals(why)))
}

// refusals returns a text that says why withheld packets were not granted or released.
func refusals(why store.Refusal) string {
	switch why {
	case store.RefusedGone:
		return "the packet is no longer withheld"
	case store.RefusedRequest:
		return "the request id already has another packet, by a retry after the loss; without --request-id the user gets this " +
			"packet, too"
	case store.RefusedLimit:
		return "the user has reached the campaign's limit of packets per user, perhaps by a retry after the loss; if your " +
			"records show that this packet was announced to them, too, add --above-limit"
	case store.RefusedPlaces:
		return "the campaign is on several shards, and its users may have tried another shard"
	case store.RefusedGeneration:
		return "the packets of a top-up are not dealt yet; try again"
	case store.RefusedOpen:
		return "the campaign is on several shards and open, so the user may get a packet on another shard meanwhile; pause " +
			"the campaign with `hongbao campaign pause`, grant its packets, and then resume it"
	case store.RefusedHas:
		return "the user already has the packet"
	}
	return "the campaign is " + string(why)
}

// refused returns why a campaign's packets are not released: another user could get this one.
func (h *HoleAgain) refused(campaign string) error {
	return hongbao.Errorf(hongbao.ClassPermanent, "release the withheld packets of campaign %s: %s granted packet %d to user "+
		"%.200q, and Redis has lost that since; nothing was released: grant the packet again first", campaign, h.By, h.Packet,
		h.User)
}

// HoleRelease is the result of ReleaseHoles.
type HoleRelease struct {
	Campaign string `json:"campaign"`
	Released int64  `json:"released"`
}

// ReleaseHoles returns all withheld packets of a campaign to its stock. A repeat changes nothing.
func (a Losses) ReleaseHoles(ctx context.Context, campaign string, by stream.Decision) (out HoleRelease, err error) {
	out.Campaign = campaign
	err = a.app.Recorded(ctx, app.About(ctx, access.ReleaseWithheld, campaign), func(ctx context.Context, e *access.Entry) error {
		defer func() { e.Details = map[string]any{"released": out.Released, "by": by.By, "why": by.Why} }()
		holes, err := a.ListHoles(ctx, campaign)
		for i := range holes {
			if err == nil && len(holes[i].Again) > 0 {
				err = holes[i].Again[0].refused(campaign)
			}
		}
		for i := 0; err == nil && i < len(holes); i++ {
			for still := int64(holes[i].Count); still > 0; {
				left, why, err := a.app.Store().Shard(holes[i].Shard).Place(campaign).ReleaseWithheld(ctx)
				if err != nil {
					return err
				}
				if why != "" {
					return hongbao.Errorf(hongbao.ClassPermanent, "release the withheld packets of campaign %s: %s; %s released",
						campaign, refusals(why), plural.Of(out.Released, "packet")+plural.Verb(out.Released, " was", " were"))
				}
				out.Released += still - left
				still = left
			}
		}
		return err
	})
	return out, err
}
