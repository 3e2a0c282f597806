package audit

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

const pageLen = 1024

// table is a sparse array. A forged, very large index allocates one page, not an array up to that index.
type table[T any] struct {
	pages map[int64]*[pageLen]T
}

// at returns the element of n >= 0, and allocates its page if needed.
func (t *table[T]) at(n int64) *T {
	page := t.pages[n/pageLen]
	if page == nil {
		if t.pages == nil {
			t.pages = map[int64]*[pageLen]T{}
		}
		page = new([pageLen]T)
		t.pages[n/pageLen] = page
	}
	return &page[n%pageLen]
}

// find returns the element of n; nil if its page was never allocated.
func (t *table[T]) find(n int64) *T {
	if page := t.pages[n/pageLen]; page != nil && n >= 0 {
		return &page[n%pageLen]
	}
	return nil
}

func (t *table[T]) each(fn func(n int64, v *T)) {
	for _, p := range slices.Sorted(maps.Keys(t.pages)) {
		for i := range t.pages[p] {
			fn(p*pageLen+int64(i), &t.pages[p][i])
		}
	}
}

// source is a place that has a packet.
type source uint8

const (
	inStock source = 1 << iota
	inReceipts
	inStream
	inLedger
	inTopic
	inQuarantine
	inRemote
	hasNoValue // the packet has no value, so the remote need not have it
)

// whoGotIt has the sources that name the packet's user. The stock does not name one.
const whoGotIt = inReceipts | inStream | inLedger | inRemote | inTopic

var sourceNames = map[source]string{
	inStock: "stock", inReceipts: "receipts", inStream: "stream", inLedger: "ledger", inRemote: "remote", inTopic: "topic",
}

// fact has what is known about one packet.
type fact struct {
	digest uint64 // of user, amount, shard and seq, as the first source that was read has them
	seq    int64
	time   uint32 // Unix seconds of the decision; sufficient until 2106
	shard  int16
	from   source
}

func (f *fact) has(s source) bool { return f.from&s != 0 }

// seqs is a set of seqs, stored as a bitmap.
type seqs struct{ words table[uint64] }

// add puts seq >= 0 into the set and reports whether it was not in the set.
func (s *seqs) add(seq int64) bool {
	w := s.words.at(seq / 64)
	bit := uint64(1) << (seq % 64)
	was := *w & bit
	*w |= bit
	return was == 0
}

func (s *seqs) addAll(runs []stream.SeqRange) {
	for _, r := range runs {
		for seq := r.First; seq <= r.Last; {
			n := min(64-seq%64, r.Last-seq+1) // the seqs of the range in this word
			*s.words.at(seq / 64) |= ^uint64(0) >> (64 - n) << (seq % 64)
			seq += n
		}
	}
}

func (s *seqs) has(seq int64) bool {
	w := s.words.find(seq / 64)
	return w != nil && *w&(1<<(seq%64)) != 0
}

// holes returns the runs within 1..last that are not in the set.
func (s *seqs) holes(last int64) []stream.SeqRange {
	var out []stream.SeqRange
	next := int64(1)
	s.words.each(func(n int64, w *uint64) {
		for rest := *w; rest != 0; rest &= rest - 1 {
			seq := n*64 + int64(bits.TrailingZeros64(rest))
			if seq > next && next <= last {
				out = append(out, stream.SeqRange{First: next, Last: min(seq-1, last)})
			}
			next = max(next, seq+1)
		}
	})
	if next <= last {
		out = append(out, stream.SeqRange{First: next, Last: last})
	}
	return out
}
