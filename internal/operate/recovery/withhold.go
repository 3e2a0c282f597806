package recovery

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
)

func (r *Recoverer) readWithheld(ctx context.Context, v *Verdict) error {
	v.withheld = map[string]map[int64]bool{}
	for id := range v.here {
		packets, err := r.cfg.Store.Shard(v.Shard).Withheld(ctx, id)
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
func (r *Recoverer) withhold(ctx context.Context, v *Verdict, f *facts, kept []restore.Known) error {
	margin, err := r.margin(ctx, v, f, kept)
	if err != nil {
		return err
	}
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
func (r *Recoverer) withholdOf(ctx context.Context, v *Verdict, id string, kept []restore.Known, place restore.Place) error {
	k, last := r.cfg.Store.Shard(v.Shard), v.Known()
	_, through, err := k.CountWithheld(ctx, id)
	if err != nil {
		return err
	}
	if through >= v.Redis { // no opening has followed: openings skip more than all known events
		place.Margin = 0 // the pass that withheld up to `through` has withheld the margin, too
	}
	place.Spans = lostSpans(v, max(v.Redis, through)+1, kept)
	seqs, most := make([]int64, len(kept)), place.Margin // more packets can't have been granted
	for i := range kept {
		seqs[i] = kept[i].Seq
		last = max(last, kept[i].Seq)
	}
	for i := range place.Spans {
		s := &place.Spans[i]
		s.Holes = restore.Holes([]stream.SeqRange{s.Seqs}, seqs)
		most += s.Seqs.Last - s.Seqs.First + 1
	}
	most += int64(len(place.Known)) // packets of known grants may come before those of the first span
	if through >= last || most == 0 {
		return nil
	}
	fronts, err := k.Front(ctx, id, v.here[id].dealt, most)
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
	front, rest := make([]int, len(fronts)), len(steps)
	for g := range fronts {
		front[g] = min(rest, len(fronts[g]))
		rest -= front[g]
	}
	return k.Withhold(ctx, v.attempt, id, store.Withholding{Last: last, Front: front, Stay: stay})
}

// withholdRest withholds all remaining packets of campaigns over several shards: users who found a place empty may have
// continued to another place. It runs after the known grants are put back.
func (r *Recoverer) withholdRest(ctx context.Context, v *Verdict) error {
	for _, id := range slices.Sorted(maps.Keys(v.here)) {
		if c := v.here[id]; c.grants && c.places > 1 {
			if err := r.cfg.Store.Shard(v.Shard).WithholdRest(ctx, v.attempt, id, c.dealt); err != nil {
				return err
			}
		}
	}
	return nil
}

// lostSpans returns the ranges of seqs, beginning with from, that lost events may have had. known is ordered by seq.
// An opening that Redis has lost begins a new range, because the seqs that it skipped belong to no events. If the
// ledger has not noted the opening's next seq, the first known grant of its epoch shows that there was an opening.
func lostSpans(v *Verdict, from int64, known []restore.Known) (spans []restore.Span) {
	s, openings := stream.SeqRange{First: from, Last: from - 1}, v.lostOpenings()
	end := func() {
		if s.Last >= s.First {
			spans = append(spans, restore.Span{Seqs: s})
		}
	}
	begin := func(at int64) {
		end()
		s.First = max(from, at)
		s.Last = s.First - 1
	}
	add := func(seq int64, opened bool) {
		for ; len(openings) > 0 && seq >= openings[0]; openings = openings[1:] {
			begin(openings[0])
		}
		if next := nextAfter(s.Last); opened && seq >= next {
			begin(next)
		}
		s.Last = max(s.Last, seq)
	}
	epoch := v.Opening
	for i := range known {
		g := &known[i]
		if g.Seq >= from {
			add(g.Seq, g.Epoch > epoch && !g.Moved && !v.notedNext(g.Epoch))
		}
		epoch = max(epoch, g.Epoch)
	}
	add(v.Known(), false)
	end()
	return spans
}

// margin returns how many packets of a campaign may have been granted after the last known grant. It is the number of
// packets that the shard granted in the last Margin before it.
func (r *Recoverer) margin(ctx context.Context, v *Verdict, f *facts, kept []restore.Known) (n int64, err error) {
	last := f.wrote()
	if f.attempt.Wrote == 0 {
		last = f.before.Newest
	}
	for i := range kept {
		if kept[i].Time.After(last) {
			last = kept[i].Time
		}
	}
	since := last.Add(-r.cfg.Margin)
	for i := range kept {
		if kept[i].Time.After(since) {
			n++
		}
	}
	k := r.cfg.Store.Shard(v.Shard)
	before, err := k.LastBefore(ctx, since)
	if err != nil {
		return 0, err
	}
	skipped, err := k.Skipped(ctx)
	if err != nil {
		return 0, err
	}
	n += max(0, v.Redis-before)
	for _, s := range skipped {
		n -= max(0, min(s.Last, v.Redis)-max(s.First, before+1)+1)
	}
	return n, nil
}

// lostNotes returns the ledger's notes of openings that Redis may have had and has lost, oldest first.
func (v *Verdict) lostNotes() (lost []*Restored) {
	for i := range v.noted {
		if n := &v.noted[i]; n.Epoch > v.Opening && n.Epoch != v.attempt.Epoch && n.opened() {
			lost = append(lost, n)
		}
	}
	slices.Reverse(lost)
	return lost
}

// lostOpenings returns the first seqs after the openings that Redis has lost, as far as the ledger knows them.
func (v *Verdict) lostOpenings() (seqs []int64) {
	for _, n := range v.lostNotes() {
		seqs = append(seqs, n.Next)
	}
	slices.Sort(seqs)
	return seqs
}

// notedNext reports whether the ledger has the first seq after the opening of this epoch.
func (v *Verdict) notedNext(epoch int64) bool {
	return slices.ContainsFunc(v.lostNotes(), func(n *Restored) bool { return n.Epoch == epoch })
}

// lostWithheld returns why a person has to decide if Redis has lost an opening that withheld packets: no source knows
// which packets these were.
func (v *Verdict) lostWithheld() string {
	for _, n := range v.lostNotes() {
		if n.Silent {
			return fmt.Sprintf("Redis has lost the opening of epoch %d, which withheld packets", n.Epoch)
		}
	}
	return ""
}

func (r *Recoverer) countWithheld(ctx context.Context, v *Verdict) (n int64, err error) {
	for id := range v.here {
		packets, _, err := r.cfg.Store.Shard(v.Shard).CountWithheld(ctx, id)
		if err != nil {
			return 0, err
		}
		n += packets
	}
	return n, nil
}

// note writes the counts of a restore into the ledger's row of the attempt.
func (r *Recoverer) note(ctx context.Context, v *Verdict, done *Counts) error {
	text, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return r.cfg.Ledger.NoteOpening(ctx, v.Shard, v.attempt.Epoch, string(text))
}
