package recovery

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
)

// lostEpoch has the events of an epoch that Redis may have lost.
type lostEpoch struct {
	epoch  int64
	first  int64 // no event of the epoch has a lower seq
	noted  bool  // whether the ledger has first; else it is the lowest seq that the epoch's opening can have chosen
	top    int64 // the highest seq of a known event, and of an event that a process saw
	margin int64 // how many packets of each campaign the epoch's opening withheld as a margin
	owned  []int64
}

// lostSpans returns the seqs that lost events may have had, beginning with from, one span for each epoch. Its holes
// are the unknown events. known is ordered by seq.
//
// No event of an epoch lies below the first seq after its opening, so the seqs that the opening skipped are no events.
// But the ledger notes that seq just before the opening, which need not have happened. So it does not end the epoch
// before it: a grant or a sight of that epoch may have a higher seq.
func lostSpans(v *ShardReport, from int64, known []restore.Known) (spans []restore.Span) {
	epochs := v.lostEpochs(from, known)
	known = slices.Clone(known)
	slices.SortStableFunc(known, func(a, b restore.Known) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for at := range epochs {
		if e := &epochs[at]; at > 0 && !e.noted {
			e.first = nextAfter(topOf(epochs[:at]))
		}
		for ; len(known) > 0 && (known[0].Epoch <= epochs[at].epoch || at == len(epochs)-1); known = known[1:] {
			if g := &known[0]; g.Seq >= from && !g.Moved { // a moved grant says nothing about the seqs around it
				own(epochs[:at+1], g.Seq)
			}
		}
	}
	if seq := max(v.Ledger, v.Topic); seq > topOf(epochs) {
		sawIn(epochs, seq)
	}
	if at := slices.IndexFunc(epochs, func(e lostEpoch) bool { return e.epoch == v.SeenIn }); at >= 0 {
		epochs[at].saw(v.Seen)
	}
	for _, n := range v.lostNotes() { // what it noted as lost is of an earlier epoch
		if n.First > 0 {
			before := slices.IndexFunc(epochs, func(e lostEpoch) bool { return e.epoch == n.Epoch })
			sawIn(epochs[:before], n.Last)
		}
	}
	for _, e := range epochs {
		if s := (stream.SeqRange{First: max(from, e.first), Last: e.top}); s.Last >= s.First {
			slices.Sort(e.owned)
			spans = append(spans, restore.Span{Seqs: s, Holes: restore.Holes([]stream.SeqRange{s}, e.owned), Withheld: e.margin})
		}
	}
	return spans
}

// own adds a known event to the last of the epochs, or to an earlier one: a grant that the epoch's opening put back
// keeps its seq.
func own(epochs []lostEpoch, seq int64) {
	at := len(epochs) - 1
	for ; at > 0 && seq < epochs[at].first; at-- {
	}
	e := &epochs[at]
	e.top, e.owned = max(e.top, seq), append(e.owned, seq)
	for at++; at < len(epochs); at++ {
		if e := &epochs[at]; !e.noted {
			e.first = max(e.first, nextAfter(topOf(epochs[:at])))
		}
	}
}

func topOf(epochs []lostEpoch) (top int64) {
	for _, e := range epochs {
		top = max(top, e.top)
	}
	return top
}

// lostEpochs returns Redis' epoch and the later ones of which there is a note, a known event or a sight, in order.
func (v *ShardReport) lostEpochs(from int64, known []restore.Known) []lostEpoch {
	epochs := []lostEpoch{{epoch: v.Opening, first: from, noted: true, top: from - 1}}
	for _, n := range v.lostNotes() {
		epochs = append(epochs, lostEpoch{epoch: n.Epoch, first: n.Next, noted: true, margin: n.Margin})
	}
	add := func(epoch int64) {
		if epoch > v.Opening && !slices.ContainsFunc(epochs, func(e lostEpoch) bool { return e.epoch == epoch }) {
			epochs = append(epochs, lostEpoch{epoch: epoch})
		}
	}
	for i := range known {
		if !known[i].Moved {
			add(known[i].Epoch)
		}
	}
	add(v.SeenIn)
	slices.SortFunc(epochs, func(a, b lostEpoch) int { return cmp.Compare(a.epoch, b.epoch) })
	return epochs
}

// sawIn adds a seq that a source knows, of an unknown epoch, to the last of the epochs that can have it.
func sawIn(epochs []lostEpoch, seq int64) {
	at := len(epochs) - 1
	for ; at > 0 && seq+1 < epochs[at].first; at-- {
	}
	epochs[at].saw(seq)
}

// saw adds a seq that a process saw in the epoch. The last seq that the opening skipped is the shard's seq after it,
// and no event.
func (e *lostEpoch) saw(seq int64) {
	if seq >= e.first {
		e.top = max(e.top, seq)
	}
}

// unknown returns the number of events without a known grant.
func unknown(spans []restore.Span) (n int64) {
	for _, s := range spans {
		for _, h := range s.Holes {
			n += h.Last - h.First + 1
		}
	}
	return n
}

// lostNotes returns the ledger's notes of openings that Redis may have had and has lost, oldest first.
func (v *ShardReport) lostNotes() (lost []*model.Restored) {
	for i := range v.noted {
		if n := &v.noted[i]; n.Epoch > v.Opening && n.Epoch != v.attempt.Epoch && n.Opened() {
			lost = append(lost, n)
		}
	}
	slices.Reverse(lost)
	return lost
}
