package restore

import (
	"slices"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Span is a range of lost seqs of one epoch. Any of them may have been granted.
type Span struct {
	// Seqs begins after the epoch's opening or the intact seq. It ends with the highest seq that any process saw in
	// the epoch.
	Seqs  stream.SeqRange
	Holes []stream.SeqRange // seqs without a known event
	// Through is the packet up to which the epoch's opening had dealt or withheld the place. It comes from the ledger,
	// and is 0 if Redis still has that opening.
	Through int64
	// Withheld is the number of the place's packets that the epoch's opening withheld as a margin, before it granted any.
	// It is 0 if Redis still has that opening.
	Withheld int64
}

// Place is the place of a campaign on the shard.
type Place struct {
	// Packets has the packets after the intact seq, in the order in which they are dealt. These are the packets in the
	// lists, those of later grants in Redis, and those withheld by attempts that have not opened the shard.
	Packets []int64
	Known   map[int64]Known // by packet
	Spans   []Span          // ordered by epoch
	// Margin is the number of extra packets to withhold for grants that no source knows.
	Margin int64
	// Through is the packet up to which every packet without a known grant is withheld in any case; 0 if there is none.
	Through int64
}

// Step is what happens to a packet. If Grant is nil, the packet is withheld.
type Step struct {
	Packet int64
	Grant  *Known
}

// Plan returns the steps for the place's packets, in the order of its lists. Packets without a step stay in the lists.
// Up to the packet of an epoch's last known grant, each packet was granted by a known grant or by a lost event (a
// hole), or withheld by an opening. Every later hole may also belong to this campaign, because all campaigns of the
// shard share its seqs.
func Plan(p Place) []Step {
	in := func(s Span, packet int64) (k Known, in bool) {
		k, ok := p.Known[packet]
		return k, ok && !k.Moved && s.Seqs.Has(k.Seq)
	}
	var end int64
	for i, packet := range p.Packets { // a moved grant says nothing about the seqs around it
		_, known := p.Known[packet]
		if known && !slices.ContainsFunc(p.Spans, func(s Span) bool { _, ok := in(s, packet); return ok }) {
			end = int64(i) + 1
		}
	}
	for _, s := range p.Spans {
		end = max(end+s.Withheld, p.through(s.Through))
		after := s.Seqs.First - 1
		for i, packet := range p.Packets {
			if k, ok := in(s, packet); ok {
				end, after = max(end, int64(i)+1), max(after, k.Seq)
			}
		}
		for _, h := range s.Holes {
			end += max(0, h.Last-max(h.First-1, after))
		}
	}
	end = max(end+p.Margin, p.through(p.Through))
	var steps []Step
	for _, packet := range p.Packets[:min(end, int64(len(p.Packets)))] {
		step := Step{Packet: packet}
		if k, ok := p.Known[packet]; ok {
			step.Grant = &k
		}
		steps = append(steps, step)
	}
	return steps
}

// through returns the number of the place's packets up to this packet.
func (p *Place) through(packet int64) int64 {
	n, has := slices.BinarySearch(p.Packets, packet)
	if has {
		n++
	}
	return int64(n)
}
