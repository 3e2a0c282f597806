package store

import (
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// marks translates runs of events into the arguments of bits.lua. keys are the KEYS with the touched chunks appended.
// pieces are the parts of runs within one chunk: number of the key, first and last bit.
type marks struct {
	keys   []string // the KEYS so far, chunks appended
	pieces []piece
	chunks map[int64]int
}

type piece struct {
	key         int // as Lua counts KEYS, from 1
	first, last int64
	base        int64 // seq of bit 0
}

func newMarks(k Keys, sink string, keys []string, events []stream.SeqRange) marks {
	m := marks{keys: keys, chunks: make(map[int64]int, 2)}
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
			m.pieces = append(m.pieces, piece{key: key, first: first - base, last: last - base, base: base})
			first = last + 1
		}
	}
	return m
}

// AppendSeq adds seq to runs of rising events, joining it to the last run if it follows it.
func AppendSeq(runs []stream.SeqRange, seq int64) []stream.SeqRange {
	if n := len(runs); n > 0 && runs[n-1].Last+1 == seq {
		runs[n-1].Last = seq
		return runs
	}
	return append(runs, stream.SeqRange{First: seq, Last: seq})
}

// Without returns the events of runs that are not in others. Both lists are in ascending order.
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
