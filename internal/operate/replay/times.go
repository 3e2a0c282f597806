package replay

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// timeSlack is how far a shard's clock may have gone back. A search for a range of time is wider by this much on both
// sides.
const timeSlack = 5 * time.Minute

// within narrows the seqs to those that may have been decided between from and to, without reading the others. A zero
// time means no bound.
func (s *source) within(ctx context.Context, shard int, seqs stream.SeqRange, from, to time.Time) (stream.SeqRange,
	error) {
	if !from.IsZero() {
		low, _, err := s.around(ctx, shard, seqs, from.Add(-timeSlack))
		if err != nil {
			return seqs, err
		}
		seqs.First = max(seqs.First, low)
	}
	if !to.IsZero() {
		_, high, err := s.around(ctx, shard, seqs, to.Add(timeSlack))
		if err != nil {
			return seqs, err
		}
		seqs.Last = min(seqs.Last, high-1)
	}
	return seqs, nil
}

// around returns two seqs close to a time. All seqs below low were decided before when, and all seqs from high on were
// not.
func (s *source) around(ctx context.Context, shard int, seqs stream.SeqRange, when time.Time) (low, high int64,
	err error) {
	f, err := s.search(ctx, s.store.Shard(shard), func(e *stream.Entry) bool { return e.Time.Before(when) })
	if err != nil {
		return 0, 0, err
	}
	low, high = seqs.First, seqs.Last+1
	if f.next != nil {
		high = f.next.Seq
	}
	if f.last != nil {
		return f.last.Seq, high, nil
	}
	if s.ledger == nil {
		return low, high, nil
	}
	for top := high; low < high; { // the time is before the stream's first entry
		mid := low + (high-low)/2
		g, err := s.settledFrom(ctx, shard, stream.SeqRange{First: mid, Last: top - 1})
		if err != nil {
			return 0, 0, err
		}
		if g != nil && g.Time.Before(when) {
			low = g.Seq + 1
		} else {
			high = mid
		}
	}
	return low, high, nil
}

var errFound = errors.New("found")

func (s *source) settledFrom(ctx context.Context, shard int, seqs stream.SeqRange) (first *hongbao.Grant, err error) {
	err = s.ledger.EachGrantBySeq(ctx, shard, seqs, func(g hongbao.Grant) error {
		first = &g
		return errFound
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return first, err
}
