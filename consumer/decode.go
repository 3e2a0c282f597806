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

// refusal is an entry that no handler may see, and why.
type refusal struct {
	item
	why error // Permanent if it can't be read, Conflict if it is forged
}

// decode reads the entries. One from a newer build is an error: it stops the shard.
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

// skipDone leaves out the grants that the sink has finished in an earlier delivery. It asks once, for all items, unless
// the answer came with them. The head of the shard refutes a forged entry. The error may be that the sink is paused.
func (s *shard) skipDone(ctx context.Context, items []item) (live []item, forged []refusal, err error) {
	p, of := s.known(items), make([]int, len(items)) // one range has all
	if p == nil {
		var ranges []stream.SeqRange
		ranges, of = neighbours(items)
		asked, err := s.redis.Progress(context.WithoutCancel(ctx), s.cfg.Group, ranges...)
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

// known gives the progress that came with the items, if it tells of all of them. One that refutes an item is not
// believed: while a slot moves it may be older than the entries.
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

// neighbours gives the ranges of grants that the items have, one for items that lie close together; of gives for
// each item the index of its range. What else an item claims is not looked up: until the head has refuted it, it may be
// any number.
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

// refuse makes a dead letter of each refused entry, whole. If the events of a forged one were handled, or dead-lettered
// one by one, their done bits would be set, and the real events of those seqs would be skipped when they come.
//
// It writes none, and raises no alarm, if the entry is not ours any more: what a worker that slept holds, others may
// have finished and trimmed, and then it looks like a forged one.
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
			s.log.Error("ALARM: a forged entry is in the stream, it becomes a dead letter",
				zap.String("code", "forged_entry"), entry, why)
		default:
			s.log.Error("an entry can't be read, it becomes a dead letter", zap.String("code", "unreadable_entry"), entry,
				why)
		}
	}
	return nil
}

var errNoAnswer = errors.New("its deliveries ended without an answer: the workers that had it died or were stopped " +
	"under way")

// divide tells the items that were delivered too often. Only entries whose workers died each time are among them: what
// a handler refused too often is a dead letter already.
func (s *shard) divide(items []item) (live, hopeless []item) {
	for _, it := range items {
		if it.Attempt > s.cfg.MaxAttempts && len(it.open) > 0 {
			hopeless = append(hopeless, it)
		} else {
			live = append(live, it)
		}
	}
	return live, hopeless
}

// bury makes dead letters of all open grants of hopeless items.
func (s *shard) bury(ctx context.Context, items []item) error {
	for i := range items {
		results := slices.Repeat([]error{errNoAnswer}, len(items[i].open))
		if _, err := s.parkOrDeadLetter(ctx, &items[i], results, false); err != nil {
			return err
		}
	}
	return nil
}

// isolate sees to it that an item that came many times is handled with nothing else in hand: it may be what kills the
// workers, and what a worker holds when it dies loses an attempt. The items from the first such one on are others, to
// be handed back; if it comes first it is handled alone. The next reclaims begin small again.
func (s *shard) isolate(items []item) (live, others []item) {
	n := slices.IndexFunc(items, func(it item) bool { return it.Attempt > (s.cfg.MaxAttempts+1)/2 })
	if n < 0 {
		s.reclaimLimit = min(2*s.reclaimLimit, s.cfg.MaxEntries)
		return items, nil
	}
	s.reclaimLimit = 1
	n = max(n, 1)
	return items[:n:n], items[n:]
}
