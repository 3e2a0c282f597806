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
// packets these are, so it goes by the order of the stocks. Hence it runs before anything is granted again, and once in
// an attempt.
func (r *Recoverer) withhold(ctx context.Context, v *Verdict, f *facts, kept []restore.Known) error {
	margin, err := r.margin(ctx, v, f, kept)
	if err != nil {
		return err
	}
	spans := lostSpans(v, v.Redis+1, kept)
	seqs, known := make([]int64, len(kept)), map[string]map[int64]restore.Known{}
	for i, g := range kept {
		seqs[i] = g.Seq
		if known[g.Campaign] == nil {
			known[g.Campaign] = map[int64]restore.Known{}
		}
		known[g.Campaign][g.Packet] = g
	}
	for i := range spans {
		spans[i].Holes = restore.Holes([]stream.SeqRange{spans[i].Seqs}, seqs)
	}
	for _, id := range slices.Sorted(maps.Keys(v.here)) {
		if !v.here[id].grants {
			continue
		}
		place := restore.Place{Known: known[id], Spans: spans, Margin: margin}
		if err := r.withholdOf(ctx, v, f.attempt, id, place); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recoverer) withholdOf(ctx context.Context, v *Verdict, a store.Attempt, id string, place restore.Place) error {
	k, c := r.cfg.Store.Shard(v.Shard), v.here[id]
	most := place.Margin // more packets can't have been granted
	for _, s := range place.Spans {
		most += s.Seqs.Last - s.Seqs.First + 1
	}
	if c.places > 1 {
		most = 0 // no limit: users who found this place empty may have continued to another place
	}
	fronts, err := k.Front(ctx, id, c.dealt, most)
	if err != nil {
		return err
	}
	packets := slices.Concat(fronts...) // a generation is granted only after the previous one is used up
	for _, p := range packets {
		place.Packets = append(place.Packets, p.Number)
	}
	if c.places > 1 {
		place.Margin = int64(len(packets))
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
	return k.Withhold(ctx, a, id, front, stay)
}

// lostSpans returns the ranges of seqs, beginning with from, that lost events may have had. known is ordered by seq.
// An opening skips at least half a chunk, up to a multiple of chunk. So a longer gap comes from an opening that Redis
// has lost, and its seqs belong to no events.
func lostSpans(v *Verdict, from int64, known []restore.Known) (spans []restore.Span) {
	s := stream.SeqRange{First: from, Last: from - 1}
	add := func(seq int64) {
		if seq-s.Last > chunk/2 {
			if s.Last >= s.First {
				spans = append(spans, restore.Span{Seqs: s})
			}
			s.First = max(s.Last+1, seq/chunk*chunk)
		}
		s.Last = max(s.Last, seq)
	}
	for i := range known {
		if known[i].Seq >= from {
			add(known[i].Seq)
		}
	}
	if add(v.Known()); s.Last >= s.First {
		spans = append(spans, restore.Span{Seqs: s})
	}
	return spans
}

// margin returns how many packets of a campaign may have been granted after the last known grant. It is the number of
// packets that the shard granted in the last Margin before it.
func (r *Recoverer) margin(ctx context.Context, v *Verdict, f *facts, kept []restore.Known) (n int64, err error) {
	last := f.wrote()
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

// lostWithheld returns why a person has to decide if Redis has lost an opening that withheld packets: no source knows
// which packets these were.
func (r *Recoverer) lostWithheld(ctx context.Context, v *Verdict) (why string, err error) {
	noted, err := r.noted(ctx, v.Shard)
	for i := range noted {
		if did := &noted[i]; did.Epoch > v.Opening && did.Epoch != v.attempt.Epoch && did.Silent {
			return fmt.Sprintf("Redis has lost the opening of epoch %d, which withheld packets", did.Epoch), nil
		}
	}
	return "", err
}

func (r *Recoverer) countWithheld(ctx context.Context, v *Verdict) (n int64, err error) {
	err = r.readWithheld(ctx, v)
	for _, packets := range v.withheld {
		n += int64(len(packets))
	}
	return n, err
}

// note writes the counts of a restore into the ledger's row of the attempt.
func (r *Recoverer) note(ctx context.Context, v *Verdict, done *Counts) error {
	text, err := json.Marshal(done)
	if err != nil {
		return err
	}
	return r.cfg.Ledger.NoteOpening(ctx, v.Shard, v.attempt.Epoch, string(text))
}
