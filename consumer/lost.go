package consumer

import (
	"context"
	"maps"
	"math"
	"slices"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// eventsLost is the code of the alarm that events were deleted from the stream before a group had finished them.
const eventsLost = "events_lost"

// watched is what a trimmer knows about a declared group. An event that was delivered and is not done must be pending;
// otherwise it is lost.
type watched struct {
	// the highest event that the group had been delivered a round ago; later events may still be in work, and are not
	// checked
	delivered int64
	pending   map[string]stream.SeqRange // the events of each pending entry, by entry id
	lost      []stream.SeqRange          // events that the group owes and no worker will ever get
	not       []stream.SeqRange          // events that the group does not owe and no worker will ever get
	unowed    []stream.SeqRange          // events that the group does not owe
}

// mostPending limits how many pending entries of a group one round examines.
const mostPending = 1_000

// never returns the number of events of each group that no worker will ever get, without events in chunks of done bits
// that are full or no longer exist.
func (at *trimming) never() map[string]int64 {
	out := map[string]int64{}
	for name, w := range at.groups {
		for _, r := range slices.Concat(w.lost, w.not) {
			if r.First >= max(at.floor, at.full[name])*store.ChunkEvents {
				out[name] += r.Len()
			}
		}
	}
	return out
}

// findLost searches every declared group for events that are not done and are neither in the stream nor pending. Only
// the trimmer can find them: each of several workers sees only some entries, so gaps in its seqs are normal.
func (t *Trimmer) findLost(ctx context.Context, k *store.Shard, at *trimming, out *store.Trimmed) error {
	for i := range out.Groups {
		g := &out.Groups[i]
		if !slices.Contains(t.cfg.Groups, g.Name) {
			continue
		}
		w := at.groups[g.Name]
		if w == nil {
			w = &watched{}
			at.groups[g.Name] = w
		}
		before := w.lost
		if err := w.findLost(ctx, k, g, max(w.delivered, min(g.Delivered, firstKept(out)-1))); err != nil {
			return err
		}
		if err := t.leaveOut(ctx, k, g.Name, w); err != nil {
			return err
		}
		for n, chunk := range g.ChunkDone {
			if chunk < eventsOf(g.FirstChunk+int64(n)) {
				break
			}
			at.full[g.Name] = g.FirstChunk + int64(n) + 1
		}
		w.delivered = g.Delivered
		for _, r := range w.lost {
			g.Lost += r.Len()
		}
		if len(w.lost) > 0 && !slices.Equal(before, w.lost) {
			t.log.Error("INCIDENT: events were deleted from the stream before a group had finished them, so someone "+
				"trimmed the stream by hand; `hongbao audit` names the grants; `hongbao replay NAME --to balance`, or `--to "+
				"kafka`, with a new NAME delivers them from their receipts", zap.String("code", eventsLost),
				zap.Int("shard", k.Index()), zap.String("group", g.Name), zap.Int64("events", g.Lost),
				zap.Any("first", w.lost[0]))
		}
	}
	return nil
}

// leaveOut moves the events that the group does not owe from w.lost to w.not. It asks Debts only about new events: what
// a group did not owe once, it never owes.
func (t *Trimmer) leaveOut(ctx context.Context, k *store.Shard, group string, w *watched) error {
	all := w.lost
	if w.lost = store.Without(all, w.unowed); len(w.lost) > 0 && t.cfg.Debts != nil {
		begin, err := k.Group(group).Begin(ctx)
		if err != nil {
			return err
		}
		owed, err := t.cfg.Debts.Owed(ctx, k.Index())
		if err != nil {
			return err
		}
		has := begin.Owed(owed[group])
		if w.lost = store.Without(all, has.Not()); has.Now() { // else its worker has not recorded yet that it is there again
			w.unowed = has.Not()
		}
	}
	w.not = store.Without(all, w.lost)
	return nil
}

// eventsOf returns the number of events in a chunk of done bits. Seqs begin at 1, so chunk 0 has one event less.
func eventsOf(chunk int64) int64 {
	if chunk == 0 {
		return store.ChunkEvents - 1
	}
	return store.ChunkEvents
}

// findLost finds the lost events up to the seq upto, in chunks that are not full.
func (w *watched) findLost(ctx context.Context, k *store.Shard, g *store.GroupLag, upto int64) error {
	w.lost = nil
	open, err := notDone(ctx, k, g, upto)
	if err != nil || len(open) == 0 {
		w.pending = nil
		return err
	}
	held, beyond, err := k.Group(g.Name).PendingEvents(ctx, mostPending, w.pending)
	if err != nil {
		return err
	}
	w.pending = held
	runs := slices.SortedFunc(maps.Values(held), func(a, b stream.SeqRange) int { return int(a.First - b.First) })
	if open = store.Without(open, append(runs, stream.SeqRange{First: beyond, Last: math.MaxInt64})); len(open) == 0 {
		return nil
	}
	// Events that were finished since the first read of the done bits are no longer pending, but not lost.
	still, err := notDone(ctx, k, g, upto)
	w.lost = store.Without(open, store.Without(open, still))
	return err
}

// notDone returns the group's events up to the seq upto without a done bit, in chunks that are not full.
func notDone(ctx context.Context, k *store.Shard, g *store.GroupLag, upto int64) (runs []stream.SeqRange,
	err error) {
	for i, n := range g.ChunkDone {
		chunk := g.FirstChunk + int64(i)
		r := stream.SeqRange{First: max(1, chunk*store.ChunkEvents), Last: min(upto, (chunk+1)*store.ChunkEvents-1)}
		if n == eventsOf(chunk) || r.Last < r.First {
			continue
		}
		done, err := k.Group(g.Name).Done(ctx, r)
		if err != nil {
			return nil, err
		}
		for seq := r.First; seq <= r.Last; seq++ {
			if !done.Has(seq) {
				runs = stream.AppendSeq(runs, seq)
			}
		}
	}
	return runs, nil
}
