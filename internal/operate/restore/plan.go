package restore

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Span is a range of seqs that may have been granted in one epoch and is lost.
type Span struct {
	// Seqs begin after the opening, or after the last intact event, and end with the last seq that anyone saw.
	Seqs  stream.SeqRange
	Holes []stream.SeqRange // seqs that no known event has
	// Through is the packet up to which the opening of this epoch had dealt or withheld the place, as the ledger
	// records; 0 if Redis has that opening.
	Through int64
}

// Place is a campaign's place on the shard.
type Place struct {
	// Packets are those after the last intact event, in the order in which they are dealt: the packets in the lists,
	// those of later grants in Redis, and those withheld by attempts that have not opened the shard.
	Packets  []int64
	Withheld []int64         // by earlier openings
	Known    map[int64]Known // by packet
	Spans    []Span          // in the order of their epochs
	// Margin is how many more packets are withheld for what no one remembers.
	Margin int64
	// Through is a packet up to which every unknown packet is withheld in any case; 0 for none.
	Through int64
}

// Step is the outcome of a packet. It is withheld if Grant is nil.
type Step struct {
	Packet int64
	Grant  *Known
}

// Plan returns the outcomes of the place's packets, in the order of its lists. Packets that it leaves out stay in the
// lists. Up to the last known packet of an epoch each packet is known or belongs to a hole. Each later hole may belong
// to this campaign too: seqs count by shard, packets by campaign.
func Plan(p Place) []Step {
	in := func(s Span, packet int64) (k Known, in bool) {
		k, ok := p.Known[packet]
		return k, ok && !k.Moved && s.Seqs.Has(k.Seq)
	}
	var end int64
	for i, packet := range p.Packets { // a moved grant says nothing about the seqs around its new seq
		_, known := p.Known[packet]
		if known && !slices.ContainsFunc(p.Spans, func(s Span) bool { _, ok := in(s, packet); return ok }) {
			end = int64(i) + 1
		}
	}
	for _, s := range p.Spans {
		end = max(end, p.through(s.Through))
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
	add := func(packet int64) {
		step := Step{Packet: packet}
		if k, ok := p.Known[packet]; ok {
			step.Grant = &k
		}
		steps = append(steps, step)
	}
	for _, packet := range p.Withheld {
		if _, ok := p.Known[packet]; ok {
			add(packet)
		}
	}
	for _, packet := range p.Packets[:min(end, int64(len(p.Packets)))] {
		add(packet)
	}
	return steps
}

// through returns how many of the place's packets come before a packet, including that packet if it is among them.
func (p *Place) through(packet int64) int64 {
	n, has := slices.BinarySearch(p.Packets, packet)
	if has {
		n++
	}
	return int64(n)
}

// Margin returns how many packets a campaign deals during a time, at its rate in the span before: granted in span.
func Margin(granted int64, span, during time.Duration) int64 {
	return (granted*int64(during) + int64(span) - 1) / int64(span)
}
