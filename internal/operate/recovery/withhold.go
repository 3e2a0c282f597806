package recovery

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

func (r *Recoverer) readWithheld(ctx context.Context, v *ShardReport) error {
	v.withheld = map[string]map[int64]bool{}
	for id := range v.here {
		packets, err := r.cfg.Store.Shard(v.Shard).Place(id).Withheld(ctx)
		if err != nil {
			return err
		}
		v.withheld[id] = map[int64]bool{}
		for _, p := range packets {
			v.withheld[id][p.Number] = true
		}
	}
	return nil
}

// withhold removes from the stocks the packets that a silent process may have reported to users. No source knows which
// packets these are, so it goes by the order of the stocks. Hence it runs before anything is granted again. Campaigns
// over several shards follow in withholdRest.
func (r *Recoverer) withhold(ctx context.Context, v *ShardReport, kept []restore.Known, margin int64) error {
	known := map[string]map[int64]restore.Known{}
	for _, g := range kept {
		if known[g.Campaign] == nil {
			known[g.Campaign] = map[int64]restore.Known{}
		}
		known[g.Campaign][g.Packet] = g
	}
	for _, id := range slices.Sorted(maps.Keys(v.here)) {
		if c := v.here[id]; !c.grants || c.places > 1 {
			continue
		}
		if err := r.withholdOf(ctx, v, id, kept, restore.Place{Known: known[id], Margin: margin}); err != nil {
			return err
		}
	}
	return nil
}

// withholdOf withholds packets of one campaign. If this attempt or an earlier one has already withheld packets, it only
// adds packets for events of which no process had reported then.
func (r *Recoverer) withholdOf(ctx context.Context, v *ShardReport, id string, kept []restore.Known, place restore.Place) error {
	k, last := r.cfg.Store.Shard(v.Shard), v.Known()
	_, through, err := k.Place(id).CountWithheld(ctx)
	if err != nil {
		return err
	}
	if through > 0 && through >= v.Redis { // no opening has followed: openings skip more than all known events
		place.Margin = 0 // the pass that withheld up to `through` has withheld the margin, too
	}
	place.Spans = lostSpans(v, max(v.Redis, through)+1, kept)
	want := place.Margin
	for i := range kept {
		last = max(last, kept[i].Seq)
	}
	for _, s := range place.Spans {
		want += s.Seqs.Last - s.Seqs.First + 1 + s.Withheld
	}
	// More packets can't have been granted. Those of known grants may come before those of the first span.
	most := want + int64(len(place.Known))
	if through >= last || most == 0 {
		return nil
	}
	here := v.here[id]
	fronts, err := k.Place(id).Front(ctx, here.loading(), most)
	if err != nil {
		return err
	}
	packets := slices.Concat(fronts...) // a generation is granted only after the previous one is used up
	for _, p := range packets {
		place.Packets = append(place.Packets, p.Number)
	}
	steps := restore.Plan(place)
	var stay []store.Packet
	for i, step := range steps {
		if step.Grant != nil {
			stay = append(stay, packets[i])
		}
	}
	w := store.Withholding{Last: last, Stay: stay, UpTo: here.added}
	if here.added > 0 { // the others may be packets of a top-up that Redis has lost, and that is dealt again
		undealt, err := k.Place(id).Undealt(ctx, here.added)
		if err != nil {
			return err
		}
		w.Next = max(0, min(want-int64(len(steps)-len(stay)), undealt))
	}
	front, rest := make([]int, len(fronts)), len(steps)
	for g := range fronts {
		front[g] = min(rest, len(fronts[g]))
		rest -= front[g]
	}
	w.Front = front
	return k.Withhold(ctx, v.attempt, id, w)
}

// withholdRest withholds all remaining packets of campaigns over several shards: users who found a place empty may have
// continued to another place. It runs after the known grants are put back.
func (r *Recoverer) withholdRest(ctx context.Context, v *ShardReport) error {
	for _, id := range slices.Sorted(maps.Keys(v.here)) {
		if c := v.here[id]; c.grants && c.places > 1 {
			if err := r.cfg.Store.Shard(v.Shard).WithholdRest(ctx, v.attempt, id, c.loading(), c.added); err != nil {
				return err
			}
		}
	}
	return nil
}

// margin returns how many packets of a campaign may have been granted after the last known grant. It is the number of
// packets that the shard granted in the last Margin before it. If an open campaign began within this time, the known
// grants may be too few to show its rate. Then margin also counts the unknown events, and at least one event if a
// process was registered. It divides them by the campaign's age, and returns what this rate grants in a whole Margin.
func (r *Recoverer) margin(ctx context.Context, v *ShardReport, f *facts, kept []restore.Known, unknown int64) (int64, error) {
	last := f.wrote()
	if f.attempt.Wrote == 0 {
		last = f.before.Newest
	}
	for i := range kept {
		last = later(last, kept[i].Time)
	}
	since := last.Add(-r.cfg.Margin)
	n, err := r.cfg.Store.Shard(v.Shard).GrantedIn(ctx, since, last)
	if err != nil {
		return 0, err
	}
	for i := range kept {
		if kept[i].Time.After(since) {
			n++
		}
	}
	began := since
	for _, c := range v.here {
		if c.grants {
			began = later(began, c.began)
		}
	}
	if !began.After(since) {
		return n, nil
	}
	if n += unknown; f.attempt.Wrote > 0 {
		n = max(n, 1)
	}
	age := max(last.Sub(began), time.Millisecond)
	return int64(math.Ceil(float64(n) * float64(r.cfg.Margin) / float64(age))), nil
}

// later returns the later time.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lostWithheld returns why a person has to decide if Redis has lost an opening that withheld packets: no source knows
// which packets these were. If they were only a margin, the recoverer withholds the first packets of the stock again.
// That is not so for a campaign over several shards: its users may have found the place empty.
func (v *ShardReport) lostWithheld() string {
	wide := v.wide()
	for _, n := range v.lostNotes() {
		if n.Withheld > 0 && n.Silent && (n.Unknown > 0 || wide) {
			return fmt.Sprintf("Redis has lost the opening of epoch %d, which withheld packets", n.Epoch)
		}
	}
	return ""
}

// wide reports whether a campaign over several shards is open.
func (v *ShardReport) wide() bool {
	for _, c := range v.here {
		if c.grants && c.places > 1 {
			return true
		}
	}
	return false
}

func (r *Recoverer) countWithheld(ctx context.Context, v *ShardReport) (n int64, err error) {
	for id := range v.here {
		packets, _, err := r.cfg.Store.Shard(v.Shard).Place(id).CountWithheld(ctx)
		if err != nil {
			return 0, err
		}
		n += packets
	}
	return n, nil
}

// note writes the counts of a restore into the ledger's row of the attempt.
func (r *Recoverer) note(ctx context.Context, v *ShardReport, done *model.RestoreCounts) error {
	return r.writeNote(ctx, v.Shard, v.attempt.Epoch, noteText{done, v.SeenIn, v.Seen})
}

// here is a campaign on the shard. It has the newest generation in Redis, the limit of packets per user, and the number
// of the campaign's shards. added is the number of all its packets if it was topped up, else 0. grants reports whether
// the campaign has begun and is not over, so that users may have got packets. began is when users could first grab.
type here struct {
	dealt, limit, added int64
	places              int
	grants              bool
	began               time.Time
}

// loading returns how many generations may have packets in Redis: the newest one, and one that is being dealt.
func (h *here) loading() int64 {
	if h.added > 0 {
		return h.dealt + 1
	}
	return h.dealt
}
