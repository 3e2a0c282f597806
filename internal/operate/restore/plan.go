package restore

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Place is a campaign's place on the shard.
type Place struct {
	// Packets are those behind the last intact event, in the order in which they are dealt: what the lists have,
	// what Redis has of the grants behind it, and what attempts that have not opened the shard withheld.
	Packets  []int64
	Withheld []int64         // by earlier openings
	Known    map[int64]Known // by packet
	Holes    []stream.SeqRange
	// Margin is how many more packets are withheld for what nobody remembers.
	Margin int64
	// Through is a packet up to which all that is not known is withheld in any case: the last one of a generation of
	// which nothing was left, or the last one that an earlier restore withheld; 0 for none.
	Through int64
}

// Step is what becomes of a packet. It is withheld if Grant is nil.
type Step struct {
	Packet int64
	Grant  *Known
}

// Plan returns what becomes of the place's packets, in the order of its lists; those that it leaves out stay
// there. Up to the last known packet each is known or belongs to a hole. Each hole behind that may be of this
// campaign too: seqs are the shard's, packets are the campaign's.
func Plan(p Place) []Step {
	end, after := int64(0), int64(0)
	for i, packet := range p.Packets {
		k, ok := p.Known[packet]
		if ok {
			end = int64(i) + 1
		}
		if ok && !k.Moved { // a new seq says nothing about those around it
			after = max(after, k.Seq)
		}
	}
	for _, h := range p.Holes {
		end += max(0, h.Last-max(h.First-1, after))
	}
	end += p.Margin
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
	for i, packet := range p.Packets {
		if int64(i) < end || packet <= p.Through {
			add(packet)
		}
	}
	return steps
}

// Margin returns how many packets a campaign deals in a time, if it goes on as it did: granted in the span before.
func Margin(granted int64, span, during time.Duration) int64 {
	return (granted*int64(during) + int64(span) - 1) / int64(span)
}
