package store

import (
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// marks translates runs of events into the arguments of bits.lua. A run that spans several chunks of a done bitmap
// becomes several pieces.
type marks struct {
	keys   []string // KEYS of the script: the caller's keys, then the chunks
	pieces []piece
	chunks map[int64]int
}

type piece struct {
	key         int // index of the chunk in KEYS, from 1
	first, last int64
	base        int64 // seq of the chunk's first bit
	campaign    int   // index of the campaign in KEYS; 0 for none
}

// newMarks returns marks without campaigns. keys are the script's keys so far.
func newMarks(k Keys, sink string, keys []string, events []stream.SeqRange) marks {
	m := marks{keys: keys, chunks: make(map[int64]int, 2)}
	m.add(k, sink, 0, events...)
	return m
}

// newCounted is newMarks for a script that counts what it marks: the campaigns of the events become keys, too, before
// the chunks. campaigns is their number.
func newCounted(k Keys, sink string, keys []string, events []stream.CampaignRange) (m marks, campaigns int) {
	m = marks{keys: keys, chunks: make(map[int64]int, 2)}
	at := map[string]int{"": 0}
	for _, r := range events {
		if _, known := at[r.Campaign]; !known {
			m.keys = append(m.keys, k.Campaign(r.Campaign))
			at[r.Campaign] = len(m.keys)
		}
	}
	for _, r := range events {
		m.add(k, sink, at[r.Campaign], r.SeqRange)
	}
	return m, len(at) - 1
}

func (m *marks) add(k Keys, sink string, campaign int, events ...stream.SeqRange) {
	for _, r := range events {
		for first := r.First; first <= r.Last; {
			chunk := first / ChunkEvents
			last := min(r.Last, (chunk+1)*ChunkEvents-1)
			key, ok := m.chunks[chunk]
			if !ok {
				m.keys = append(m.keys, k.Done(sink, chunk))
				key = len(m.keys)
				m.chunks[chunk] = key
			}
			base := chunk * ChunkEvents
			m.pieces = append(m.pieces, piece{key, first - base, last - base, base, campaign})
			first = last + 1
		}
	}
}

// Without returns the events in runs that are not in others. Both lists must be in ascending order.
func Without(runs, others []stream.SeqRange) (out []stream.SeqRange) {
	for _, r := range runs {
		next := r.First
		for _, o := range others {
			if o.Last < next || o.First > r.Last {
				continue
			}
			if o.First > next {
				out = append(out, stream.SeqRange{First: next, Last: o.First - 1})
			}
			next = min(o.Last, r.Last) + 1
		}
		if next <= r.Last {
			out = append(out, stream.SeqRange{First: next, Last: r.Last})
		}
	}
	return out
}
