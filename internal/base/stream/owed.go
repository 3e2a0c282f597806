package stream

import (
	"math"
	"slices"
)

// Owed has the events of a shard that a group owes to its sink: ranges in ascending order that do not overlap. The last
// range ends at Forever, unless the group was removed. A nil Owed means that nothing was recorded: then the group owes
// every event.
type Owed []SeqRange

// Forever is the last seq of a range that has no end.
const Forever = math.MaxInt64

// NewOwed returns the Owed with these ranges, in any order. An empty list gives nil.
func NewOwed(ranges []SeqRange) (o Owed) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b SeqRange) int { return int(min(max(a.First-b.First, -1), 1)) })
	for _, r := range ranges {
		if n := len(o); n > 0 && r.First-1 <= o[n-1].Last {
			o[n-1].Last = max(o[n-1].Last, r.Last)
			continue
		}
		o = append(o, r)
	}
	return o
}

// Owes reports whether the group owes the event. Nobody expects any other event in the sink, and nobody has lost it.
func (o Owed) Owes(seq int64) bool {
	return o == nil || slices.ContainsFunc(o, func(r SeqRange) bool { return r.Has(seq) })
}

// Not returns the ranges of events that the group does not owe, in ascending order. If the group was removed, the last
// one ends at Forever.
func (o Owed) Not() (not []SeqRange) {
	next := int64(1)
	for _, r := range o {
		if r.First > next {
			not = append(not, SeqRange{First: next, Last: r.First - 1})
		}
		if r.Last == Forever {
			return not
		}
		next = r.Last + 1
	}
	if o == nil {
		return nil
	}
	return append(not, SeqRange{First: next, Last: Forever})
}

// Now reports whether the group owes the newest events: it was added, and not removed since.
func (o Owed) Now() bool { return o == nil || o.Owes(Forever) }
