package recovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// unclear returns why the facts do not allow a restore; empty if they may allow one.
func unclear(v *ShardReport, f *facts) string {
	switch {
	case f == nil:
		return "Redis has lost the shard, or its server hides its run_id, or the ledger was not asked"
	case v.Late > 0:
		return "an opening skipped an event that the ledger or a process knows"
	case f.doubt != "":
		return "the topic can't be trusted: " + f.doubt
	case f.reported.Broken > 0:
		return "a process has sent evidence that can't be read"
	case f.ledger.Others:
		return "the ledger has refunded, archived or quarantined some of these events"
	case len(v.broken) > 0:
		return v.broken[0]
	}
	return ""
}

// judge returns the grants that Redis has lost, ordered by seq. If only a person can decide, it returns why.
func (r *Recoverer) judge(ctx context.Context, v *ShardReport, f *facts) (kept []restore.Known, why string, err error) {
	if why := unclear(v, f); why != "" {
		return nil, why, nil
	}
	if err := r.readWithheld(ctx, v); err != nil {
		return nil, "", err
	}
	missing, held, why, err := r.missing(ctx, v, f)
	if err != nil || why != "" {
		return nil, why, err
	}
	for i := range missing {
		if _, here := v.here[missing[i].Campaign]; !here {
			return nil, "Redis does not have the campaign of a grant: " + nameOf(&missing[i].Grant), nil
		}
	}
	kept, lost := restore.Merge(missing, restore.Constraints{
		Passed: func(g *hongbao.Grant) bool { return f.place(g) <= v.Redis }, Fixed: held,
		Withheld: func(campaign string, number int64) bool { return v.withheld[campaign][number] },
		LeftOut:  func(*hongbao.Grant) bool { return false },
		Limit:    func(id string) int64 { return v.here[id].limit },
	})
	if len(lost) > 0 {
		return nil, "two grants contradict each other: " + nameOf(&lost[0].Grant), nil
	}
	if why := agree(kept, missing, func(g *hongbao.Grant) bool { return f.place(g) <= v.Redis }); why != "" {
		return nil, why, nil
	}
	slices.SortFunc(kept, func(a, b restore.Known) int { return cmp.Compare(a.Seq, b.Seq) })
	kept = moveBehind(kept, v.Known())
	return kept, r.guard(v, f, kept, true), nil
}

// guard sets v.guarded. It returns why a person has to decide; empty if none has to. lost reports whether a source
// knows an event that Redis has lost.
func (r *Recoverer) guard(v *ShardReport, f *facts, kept []restore.Known, lost bool) (why string) {
	walks := v.wide() && unknown(lostSpans(v, v.Redis+1, kept)) > 0
	guard := restore.GuardOf(restore.Doubt{Silent: !f.complete, Walks: walks, Lost: lost, Margin: r.cfg.Margin})
	v.guarded = guard == restore.Withhold
	switch {
	case guard != restore.Ask:
		return ""
	case walks:
		return "events are missing, and a campaign over several shards is open: its users may have continued to another"
	}
	return "a process that may have reported grants to users is silent, or Redis came back from an old file"
}

// moveBehind gives new seqs to grants that were reported after an opening had skipped their seqs. The new seqs follow
// all known ones.
func moveBehind(kept []restore.Known, known int64) []restore.Known {
	var moved []restore.Known
	for _, g := range kept {
		if g.Moved {
			moved = append(moved, g)
		} else {
			known = max(known, g.Seq)
		}
	}
	kept = slices.DeleteFunc(kept, func(g restore.Known) bool { return g.Moved })
	for i := range moved {
		moved[i].Seq = known + 1 + int64(i)
	}
	return append(kept, moved...)
}

func nameOf(g *hongbao.Grant) string {
	return fmt.Sprintf("event %d, packet %d of campaign %s", g.Seq, g.Packet, g.Campaign)
}

// agree returns a contradiction between the reports of a grant; empty if there is none. passed reports whether Redis'
// last event is after a grant.
func agree(kept, all []restore.Known, passed func(*hongbao.Grant) bool) string {
	type packet struct {
		campaign string
		number   int64
	}
	is := map[packet]*hongbao.Grant{}
	for i := range kept {
		g := &kept[i].Grant
		if kept[i].Moved && !passed(g) {
			return "two grants have one seq: " + nameOf(g)
		}
		is[packet{g.Campaign, g.Packet}] = g
	}
	for i := range all {
		g := &all[i].Grant
		o := is[packet{g.Campaign, g.Packet}]
		if o != nil && g.Epoch < o.Epoch && g.User == o.User && g.RequestID == o.RequestID && g.Amount == o.Amount {
			continue // it was granted again under a later seq, after an opening without this report
		}
		if o == nil || o.Seq != g.Seq || o.Amount != g.Amount {
			return "two sources disagree about one grant: " + nameOf(g)
		}
	}
	return ""
}

// receiptsOf returns the receipts that Redis has for the users of the known grants, by campaign and user.
func (r *Recoverer) receiptsOf(ctx context.Context, v *ShardReport, known []restore.Known) (
	receipts map[string]map[string][]hongbao.Receipt, err error) {
	users := map[string][]string{}
	for i := range known {
		users[known[i].Campaign] = append(users[known[i].Campaign], known[i].User)
	}
	receipts = map[string]map[string][]hongbao.Receipt{}
	for id, list := range users {
		if _, here := v.here[id]; !here {
			continue
		}
		slices.Sort(list)
		if receipts[id], err = r.cfg.Store.Shard(v.Shard).Place(id).ReceiptsOf(ctx, slices.Compact(list)); err != nil {
			return nil, err
		}
	}
	return receipts, nil
}

// missing returns the known grants that Redis does not have, and all grants that Redis has for their users.
func (r *Recoverer) missing(ctx context.Context, v *ShardReport, f *facts) (
	missing []restore.Known, held []hongbao.Grant, why string, err error) {
	known := f.known()
	receipts, err := r.receiptsOf(ctx, v, known)
	if err != nil {
		return nil, nil, "", err
	}
	for id, has := range receipts {
		for user, list := range has {
			for _, r := range list {
				held = append(held, hongbao.Grant{Campaign: id, User: user, Packet: r.Packet, Amount: r.Amount, Seq: r.Seq,
					RequestID: r.RequestID})
			}
		}
	}
	for i := range known {
		g := &known[i].Grant
		passed := f.place(g) <= v.Redis
		if receipts[g.Campaign] == nil && passed {
			continue // the campaign was refunded and has left Redis
		}
		has := slices.ContainsFunc(receipts[g.Campaign][g.User], func(r hongbao.Receipt) bool {
			return r.Packet == g.Packet && r.Seq == g.Seq && r.Amount == g.Amount && r.RequestID == g.RequestID
		})
		switch {
		case has && !passed:
			return nil, nil, "Redis has the receipt without its event: " + nameOf(g), nil
		case has:
		case passed && v.withheld[g.Campaign][g.Packet]:
			missing = append(missing, known[i]) // reported after an opening had skipped its seq
		case f.skips.Accepted(g.Epoch, g.Seq):
		case passed:
			return nil, nil, "Redis has continued without it: " + nameOf(g), nil
		default:
			missing = append(missing, known[i])
		}
	}
	return missing, held, "", nil
}
