package consumer

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// item is one entry that this worker holds.
type item struct {
	id       string
	attempt  int64
	entry    hongbao.Entry
	open     []hongbao.Grant // not done yet
	failed   []failure       // what the handler could not do in this delivery
	done     []int64         // seqs done in this delivery
	finished bool            // acked, dead-lettered, parked or lost: nothing is to be done with it any more
}

type failure struct {
	grant hongbao.Grant
	err   error
}

// work brings entries to the handler and ends their delivery. All of them are the worker's own when it begins. If the
// shard is opened anew under way, nothing of the batch changes any more, and its entries go back to be read again.
func (s *shard) work(all context.Context, raw []shards.RawEntry) error {
	ctx := shards.WithEpoch(all, s.epoch)
	items, err := s.decode(ctx, raw)
	if err == nil {
		items, err = s.skipDone(ctx, items)
	}
	if err == nil {
		items, err = s.deadLetterHopeless(ctx, items)
	}
	if err == nil {
		items, err = s.isolate(ctx, items)
	}
	if err != nil {
		return errors.Join(err, s.handBack(all, items))
	}
	s.measure(items)
	l := s.lease(ctx, items)
	for len(items) > 0 && err == nil && l.ctx.Err() == nil {
		n := s.slice(items)
		err = s.deliver(l, items[:n])
		// A batch that the handler is stuck in stays pending: handed back it would come again at once and never count.
		if l.stuck() || err == nil && l.ctx.Err() == nil {
			items = items[n:]
		}
	}
	l.end()
	return errors.Join(err, s.handBack(all, items))
}

// isolate sees to it that an item that came many times is handled with nothing else in hand: it may be what kills the
// workers, and what a worker holds when it dies loses an attempt. Items from the first such one on are handed back;
// when it comes first it is handled alone. The next takes begin small again.
func (s *shard) isolate(ctx context.Context, items []*item) ([]*item, error) {
	n := slices.IndexFunc(items, func(it *item) bool { return it.attempt > (s.cfg.MaxAttempts+1)/2 })
	if n < 0 {
		s.reclaimLimit = min(2*s.reclaimLimit, s.cfg.MaxEntries)
		return items, nil
	}
	s.reclaimLimit = 1
	n = max(n, 1)
	if err := s.handBack(ctx, items[n:]); err != nil {
		return items[:n], err
	}
	return items[:n], nil
}

// slice is how many of the items make one batch for the handler.
func (s *shard) slice(items []*item) int {
	n, grants := 0, 0
	for n < len(items) && (n == 0 || grants+len(items[n].open) <= s.cfg.BatchGrants) {
		grants += len(items[n].open)
		n++
	}
	return n
}

var errNoAnswer = errors.New("its deliveries ended without an answer: the workers that had it died or were stopped " +
	"under way")

// deadLetterHopeless dead-letters what was delivered too often. Only entries come here whose workers died each time:
// what a handler refused too often is a dead letter already.
func (s *shard) deadLetterHopeless(ctx context.Context, items []*item) ([]*item, error) {
	for _, it := range items {
		if it.attempt <= s.cfg.MaxAttempts || len(it.open) == 0 {
			continue
		}
		for i := range it.open {
			it.failed = append(it.failed, failure{grant: it.open[i], err: errNoAnswer})
		}
		if err := s.parkOrDeadLetter(ctx, it); err != nil {
			return items, err
		}
	}
	return unfinished(items), nil
}

// measure keeps in mind how many grants an entry has, so that the next read takes no more than can be started.
func (s *shard) measure(items []*item) {
	events := 0.0
	for _, it := range items {
		events += float64(max(1, len(it.entry.Grants)))
	}
	if len(items) > 0 {
		now := max(events/float64(len(items)), 1)
		s.perEntry = max(now, 0.7*s.perEntry+0.3*now)
	}
}

func hold(raw []shards.RawEntry) []*item {
	items := make([]*item, len(raw))
	for i := range raw {
		items[i] = &item{id: raw[i].ID, attempt: raw[i].Attempt}
	}
	return items
}

// decode reads the entries. One that can't be read becomes a dead letter whole, at once; one from a newer build stops
// the shard.
func (s *shard) decode(ctx context.Context, raw []shards.RawEntry) ([]*item, error) {
	items := hold(raw)
	for i, it := range items {
		e, err := hongbao.ParseEntry(s.keys.Index(), raw[i].ID, raw[i].Values)
		if errors.Is(err, hongbao.ErrNewerEntry) {
			return items, err
		}
		if err == nil {
			it.entry, it.open = e, e.Grants
			continue
		}
		written, failed := s.deadLetterWhole(ctx, it, err)
		if written {
			s.log.Error("an entry can't be read, it is set aside as a dead letter", zap.String("code", "unreadable_entry"),
				zap.String("entry", it.id), zap.Error(err))
		}
		if failed != nil {
			return items, failed
		}
	}
	return unfinished(items), nil
}

// deadLetterWhole makes a dead letter of an entry, not of its events: no done bit is set. It writes none if the entry
// is not ours any more: what a worker that slept holds, others may have finished and trimmed, and then it looks like a
// forged one.
func (s *shard) deadLetterWhole(ctx context.Context, it *item, reason error) (written bool, err error) {
	written, err = s.deadLetter(ctx, it, nil, reason)
	it.finished = err == nil
	return written, err
}

func unfinished(items []*item) []*item {
	return slices.DeleteFunc(items, func(it *item) bool { return it.finished })
}

// skipDone leaves out the grants that the sink has finished in an earlier delivery. An entry that the shard's head
// refutes becomes a dead letter whole: if its events were handled, or dead-lettered one by one, their done bits would
// be set, and the real events of those seqs would be skipped when they come.
func (s *shard) skipDone(ctx context.Context, items []*item) ([]*item, error) {
	ranges, of := neighbours(items)
	p, err := shards.Of(s.cfg.Redis, s.keys).Progress(context.WithoutCancel(ctx), s.cfg.Group, ranges...)
	if err != nil {
		return items, err
	}
	for i, it := range items {
		if why := p.Refute(&it.entry); why != nil {
			if err := s.refuted(ctx, it, why); err != nil {
				return items, err
			}
			continue
		}
		done := func(g hongbao.Grant) bool { return p.Done[of[i]].Has(g.Seq) }
		if all := len(it.open); slices.ContainsFunc(it.open, done) {
			it.open = slices.DeleteFunc(slices.Clone(it.open), done)
			s.c.count.skipped.Add(int64(all - len(it.open)))
		}
	}
	return unfinished(items), nil
}

func (s *shard) refuted(ctx context.Context, it *item, why error) error {
	written, err := s.deadLetterWhole(ctx, it, why)
	if written {
		s.c.count.forged.Add(1)
		s.log.Error("ALARM: a forged entry is in the stream, it is set aside as a dead letter",
			zap.String("code", "forged_entry"),
			zap.String("entry", it.id), zap.Error(why))
	}
	return err
}

// neighbours gives the ranges of events that the items have, one for as many items as lie close together; of tells for
// each item in which range it is.
func neighbours(items []*item) (ranges []hongbao.SeqRange, of []int) {
	of = make([]int, len(items))
	for i, it := range items {
		first, last := it.entry.Seq, it.entry.Last()
		if n := len(ranges); n > 0 && first > ranges[n-1].Last && first < ranges[n-1].Last+shards.ChunkEvents {
			ranges[n-1].Last = last
		} else {
			ranges = append(ranges, hongbao.SeqRange{First: first, Last: last})
		}
		of[i] = len(ranges) - 1
	}
	return ranges, of
}

// handBack gives what is not finished to the other workers at once, and takes no attempt from it.
func (s *shard) handBack(ctx context.Context, items []*item) error {
	var list []shards.Parking
	for _, it := range items {
		if !it.finished {
			list = append(list, shards.Parking{ID: it.id, Level: 0, Attempts: it.attempt - 1})
		}
	}
	if len(list) == 0 {
		return nil
	}
	s.left += len(list)
	n, err := shards.Of(s.cfg.Redis, s.keys).Park(context.WithoutCancel(ctx), s.cfg.Group, s.cfg.Consumer, list)
	s.c.count.handedBack.Add(int64(n))
	if err != nil {
		return err // they are taken when the lease is over
	}
	s.log.Info("handed entries back for other workers", zap.Int("entries", n), zap.Int("lost", len(list)-n))
	return nil
}
