package store

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var endLostScript = newDrainScript("end_lost", "stub")

// ErrLost says that Redis has lost all or part of a campaign, so nobody knows which packets are left.
var ErrLost = errors.New("Redis has lost something of the campaign")

// LostError is the error of an operation that fails because Redis has lost something of the campaign. It is Permanent.
func LostError(campaign string) error {
	return hongbao.Errorf(hongbao.ClassPermanent,
		"campaign %s: %w; `hongbao campaign refund-lost %s` shows what the ledger has paid, and ends it from the ledger",
		campaign, ErrLost, campaign)
}

// LostField marks a campaign that was ended from the ledger, because Redis had lost it. Redis's data of such a
// campaign can't be trusted.
const LostField = "lost"

// LostCampaign is the ledger's record of a campaign that Redis has lost. Packets and Total are the number and the sum
// of the whole campaign's packets. The other fields are what one shard shall report afterwards.
type LostCampaign struct {
	ID            string
	Packets       int64
	Total         hongbao.Amount
	Loaded        int64
	LoadedAmount  hongbao.Amount
	Granted       int64
	GrantedAmount hongbao.Amount
	// Places is the number of the campaign's shards. It is needed only if no stub of the campaign exists yet.
	Places int
}

// EndLost ends a frozen or missing campaign in Redis, after the ledger has refunded it. A repeated call changes
// nothing. EndLost returns a Conflict if Redis has lost nothing of the campaign.
func (k *Shard) EndLost(ctx context.Context, c *LostCampaign) error {
	generations, err := k.Place(c.ID).generations(ctx)
	if err != nil {
		return err
	}
	keys := append([]string{k.Keys.Campaign(c.ID), k.Keys.Refunded(), k.Keys.Withheld(c.ID)},
		k.Keys.Stocks(c.ID, generations)...)
	reply, err := k.run(ctx, endLostScript, keys,
		[]any{c.ID, c.Packets, int64(c.Total), c.Loaded, int64(c.LoadedAmount), c.Granted, int64(c.GrantedAmount),
			max(c.Places, 1)})
	if err != nil {
		return err
	}
	r := replyReader{rest: reply}
	if r.string() == "ok" {
		return r.done(endLostScript)
	}
	state := r.string()
	if err := r.done(endLostScript); err != nil {
		return err
	}
	return hongbao.Errorf(hongbao.ClassConflict,
		"end campaign %s from the ledger: in Redis it is %s, and Redis has lost nothing of it", c.ID, state)
}

// Waiting has the numbers of grants of a campaign that a group has not finished.
type Waiting struct {
	// Stream counts the grants whose entries are in the stream. Receipts counts the grants that have a receipt but no
	// entry in the stream.
	Stream, Receipts int64
}

// Waiting counts the grants of a campaign on the shard that a group owes and has not finished. It reads the whole stream
// and all receipts. The shard must be open, and the campaign must not grant anything meanwhile.
func (g Group) Waiting(ctx context.Context, campaign string, owed stream.Owed) (w Waiting, err error) {
	unfinished, err := g.shard.undone(ctx, g.name)
	if err != nil {
		return w, err
	}
	undone := func(seq int64) bool { return owed.Owes(seq) && unfinished(seq) }
	waits := map[int64]bool{}
	err = g.shard.eachEntry(ctx, func(e *stream.Entry) {
		for i := range e.Grants {
			if seq := e.Grants[i].Seq; e.Campaign == campaign && undone(seq) {
				waits[seq] = true
			}
		}
	})
	if err != nil {
		return w, err
	}
	w.Stream = int64(len(waits))
	err = g.shard.Place(campaign).EachReceipts(ctx, func(_ string, receipts []hongbao.Receipt) error {
		for i := range receipts {
			if seq := receipts[i].Seq; undone(seq) && !waits[seq] {
				waits[seq] = true // HSCAN may return a user twice
				w.Receipts++
			}
		}
		return nil
	})
	return w, err
}

// undone reads the done bits of a group. The function that it returns reports whether the group had not finished an
// event at that time.
func (k *Shard) undone(ctx context.Context, group string) (func(seq int64) bool, error) {
	head, err := k.OpenHead(ctx)
	if err != nil || head.Seq == 0 {
		return func(int64) bool { return true }, err
	}
	p, err := k.Group(group).Progress(ctx, stream.SeqRange{First: max(1, min(head.DoneFloor, head.Seq)), Last: head.Seq})
	return func(seq int64) bool { return seq >= p.DoneFloor && (seq > head.Seq || !p.Done[0].Has(seq)) }, err
}

// eachEntry calls fn for each entry of the stream. It omits unreadable and forged entries; see Decode.
func (k *Shard) eachEntry(ctx context.Context, fn func(*stream.Entry)) error {
	for raw, err := range k.pages(ctx, "-", "+") {
		if err != nil {
			return err
		}
		entries, _, _, err := k.Decode(ctx, raw)
		if err != nil {
			return err
		}
		for i := range entries {
			fn(&entries[i])
		}
	}
	return nil
}
