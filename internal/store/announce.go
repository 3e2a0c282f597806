package store

import (
	"context"

	"github.com/hongbao-project/hongbao"
)

var announceScript = newScript("announce", "fields")

// MaxGenerations is how many generations of packets a campaign can have: the first one and its top-ups. A constraint
// of the ledger's table enforces the same limit.
const MaxGenerations = 64

// Announcement has the arguments of Announce.
type Announcement struct {
	Campaign string
	Hash     string // hash of the campaign's first plan
	// Generation is the announced generation, 2 or higher. Plan is the hash of its plan.
	Generation int64
	Plan       string
	// Packets and Total are the number and the sum of the whole campaign's packets, including this generation. Share
	// and ShareAmount are the same numbers for this place.
	Packets, Share     int64
	Total, ShareAmount hongbao.Amount
}

// Announce announces a generation to one place. Every later grab at the place returns the new terms, and LoadChunk
// accepts the generation's packets. A repeated call changes nothing. A refusal is Permanent: ErrNotInRedis if the
// campaign is not in Redis, ErrLost if Redis has lost part of it. If Redis has a different plan for the campaign or
// for this generation, the error is a Conflict. After any error except an outage, the place is unchanged.
func (k *Shard) Announce(ctx context.Context, a *Announcement) error {
	if a.Generation < 2 || a.Generation > MaxGenerations {
		return hongbao.Errorf(hongbao.ClassPermanent, "announce generation %d of campaign %s: want 2 to %d", a.Generation,
			a.Campaign, MaxGenerations)
	}
	keys := []string{k.Keys.Campaign(a.Campaign), k.Keys.StockOf(a.Campaign, a.Generation),
		k.Keys.LoadedTotals(a.Campaign, a.Generation)}
	reply, err := k.run(ctx, announceScript, keys, []any{a.Hash, a.Generation, a.Plan, a.Packets, int64(a.Total), a.Share,
		int64(a.ShareAmount)})
	if err != nil {
		return err
	}
	r := replyReader{rest: reply}
	if r.string() == "ok" {
		return r.done(announceScript)
	}
	why, state, newest := r.string(), r.string(), r.int64()
	if err := r.done(announceScript); err != nil {
		return err
	}
	return refusedAnnouncement(a, why, state, newest)
}

func refusedAnnouncement(a *Announcement, why, state string, newest int64) error {
	switch {
	case why == "missing":
		return hongbao.Errorf(hongbao.ClassPermanent, "announce generation %d of campaign %s: %w", a.Generation, a.Campaign,
			ErrNotInRedis)
	case state == StateFrozen:
		return LostError(a.Campaign)
	case why == "state":
		return hongbao.Errorf(hongbao.ClassPermanent, "announce generation %d of campaign %s: it is %s, and only an "+
			"open or paused campaign gets more packets", a.Generation, a.Campaign, state)
	case why == "plan":
		return hongbao.Errorf(hongbao.ClassConflict, "announce generation %d of campaign %s: another plan is in Redis; "+
			"nothing was changed", a.Generation, a.Campaign)
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "announce generation %d of campaign %s: generation %d is the newest "+
		"in Redis; announce the next one after that is dealt", a.Generation, a.Campaign, newest)
}

// generations returns how many generations of a campaign were announced on the shard; 1 if the campaign is not there.
func (p Place) generations(ctx context.Context) (int64, error) {
	f, err := p.fields(ctx, "generation")
	if err != nil {
		return 0, err
	}
	if !f.Has("generation") {
		return 1, nil
	}
	if err := f.Readable("generation"); err != nil {
		return 0, err
	}
	if f.Generation < 1 || f.Generation > MaxGenerations {
		return 0, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis has the generation %d, want 1 to %d", p.Campaign,
			f.Generation, MaxGenerations)
	}
	return f.Generation, nil
}
