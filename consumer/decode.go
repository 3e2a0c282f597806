package consumer

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// refusal is an entry that must not reach the handler, with the reason.
type refusal struct {
	item
	why error // Permanent if the entry is unreadable, Conflict if it is forged
}

// decode parses the entries. An entry of a newer build is an error, which stops the shard.
func (s *shard) decode(items []item) (readable []item, unreadable []refusal, err error) {
	for _, it := range items {
		it.entry, err = stream.ParseEntry(s.index, it.ID, it.Values)
		switch {
		case errors.Is(err, stream.ErrNewerEntry):
			return nil, nil, err
		case err != nil:
			unreadable = append(unreadable, refusal{it, err})
		default:
			readable = append(readable, it)
		}
	}
	return readable, unreadable, nil
}

// skipDone removes the grants that the sink finished in an earlier delivery. It makes one call to Redis for all items,
// unless the progress came with the read of the items. An item that contradicts the head of its shard is forged. The
// error can be errPaused, because the progress also has the state of the sink.
func (s *shard) skipDone(ctx context.Context, items []item) (live []item, forged []refusal, err error) {
	p, of := s.known(items), make([]int, len(items)) // a known progress has one range for all items
	if p == nil {
		var ranges []stream.SeqRange
		ranges, of = neighbours(items)
		asked, err := s.group().Progress(context.WithoutCancel(ctx), ranges...)
		if err != nil {
			return nil, nil, err
		}
		p = &asked
	}
	if err := s.controlled(p.Sink); err != nil {
		return nil, nil, err
	}
	for i, it := range items {
		if why := p.Refute(&it.entry); why != nil {
			forged = append(forged, refusal{it, why})
			continue
		}
		it.open = it.entry.Grants
		if done := func(g hongbao.Grant) bool { return p.Done[of[i]].Has(g.Seq) }; slices.ContainsFunc(it.open, done) {
			it.open = slices.DeleteFunc(slices.Clone(it.open), done)
			s.c.count.skipped.Add(int64(len(it.entry.Grants) - len(it.open)))
		}
		live = append(live, it)
		s.lastSeq = it.entry.Last()
	}
	return live, forged, nil
}

// known returns the progress that came with the read, or nil if it does not cover all items. While a cluster slot
// moves, the progress may be older than the items. known then returns nil too, because the progress contradicts an
// item.
func (s *shard) known(items []item) *store.Progress {
	a := s.ahead
	s.ahead = ahead{}
	if a.progress == nil {
		return nil
	}
	for i := range items {
		e := &items[i].entry
		if e.Seq < a.events.First || e.Last() > a.events.Last || a.progress.Refute(e) != nil {
			return nil
		}
	}
	return a.progress
}

// neighbours returns the ranges of seqs of the items' grants. Items that are close together share one range. of[i] is
// the index of the range of item i. neighbours uses only the first seq and the number of grants: an item that is not
// checked against the head may have any other number in its fields.
func neighbours(items []item) (ranges []stream.SeqRange, of []int) {
	of = make([]int, len(items))
	for i := range items {
		n := len(items[i].entry.Grants)
		if n == 0 {
			continue
		}
		first := items[i].entry.Seq
		last := first + int64(n) - 1
		if n = len(ranges); n > 0 && first > ranges[n-1].Last && first < ranges[n-1].Last+store.ChunkEvents {
			ranges[n-1].Last = last
		} else {
			ranges = append(ranges, stream.SeqRange{First: first, Last: last})
		}
		of[i] = len(ranges) - 1
	}
	return ranges, of
}

// refuse writes one dead letter for each refused entry as a whole. Delivering the grants of a forged entry, or writing
// a letter for each of them, would set done bits. The real events with the same seqs would later be skipped.
//
// If this worker no longer owns the entry, refuse writes no letter and raises no alarm. After a worker slept, other
// workers may have finished and trimmed its entries, which then look forged.
func (s *shard) refuse(ctx context.Context, refused []refusal) error {
	for _, r := range refused {
		written, err := s.deadLetter(ctx, &r.item, store.Letter{Last: true}, r.why)
		if err != nil {
			return err
		}
		entry, why := zap.String("entry", r.ID), zap.Error(r.why)
		switch {
		case !written:
		case hongbao.ClassOf(r.why) == hongbao.ClassConflict:
			s.c.count.forged.Add(1)
			s.log.Error("ALARM: a forged entry is in the stream; it becomes a dead letter",
				zap.String("code", "forged_entry"), entry, why)
		default:
			s.log.Error("an entry can't be read; it becomes a dead letter", zap.String("code", "unreadable_entry"), entry,
				why)
		}
	}
	return nil
}

var errNoAnswer = errors.New("no delivery of the grant was answered: its workers died or were stopped during " +
	"the delivery")

// splitExhausted separates the items that were delivered too often. The workers of such an item died during each
// delivery: a grant that the handler rejected that often would already be a dead letter.
func (s *shard) splitExhausted(items []item) (live, hopeless []item) {
	for _, it := range items {
		if it.Attempt > s.cfg.MaxAttempts && len(it.open) > 0 {
			hopeless = append(hopeless, it)
		} else {
			live = append(live, it)
		}
	}
	return live, hopeless
}

// deadLetterAll makes dead letters of all open grants of the items.
func (s *shard) deadLetterAll(ctx context.Context, items []item) error {
	for i := range items {
		results := slices.Repeat([]error{errNoAnswer}, len(items[i].open))
		if _, err := s.parkOrDeadLetter(ctx, &items[i], results, false); err != nil {
			return err
		}
	}
	return nil
}

// isolateSuspect makes sure that an item with many attempts is handled alone. Such an item may crash its workers, and a
// crash costs every entry of the worker an attempt. live ends before the first such item, or has only this item if it
// comes first. The other items are handed back. The next reclaim takes one entry only, and the limit doubles with each
// batch without such an item.
func (s *shard) isolateSuspect(items []item) (live, others []item) {
	n := slices.IndexFunc(items, func(it item) bool { return it.Attempt > (s.cfg.MaxAttempts+1)/2 })
	if n < 0 {
		s.reclaimLimit = min(2*s.reclaimLimit, s.cfg.MaxEntries)
		return items, nil
	}
	s.reclaimLimit = 1
	n = max(n, 1)
	return items[:n:n], items[n:]
}
