package consumer

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// An entry passes through these steps:
//
//	take (read or reclaim) -> decode -> skipDone -> refuse, deadLetterAll, isolateSuspect -> deliver -> finish (ack, park, dead letter)
//
// Each step gets items and returns the items that go on. step hands back the items that no step has finished.

// item is one entry that this worker has.
type item struct {
	store.RawEntry
	entry stream.Entry    // set by decode
	open  []hongbao.Grant // the grants that the sink has not finished; set by skipDone
}

// step takes entries and works on them. left is the number of entries that were not finished.
func (s *shard) step(ctx context.Context) (left int, err error) {
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	if err := s.awaitTurn(ctx); err != nil {
		return 0, err
	}
	items, err := s.take(ctx)
	if len(items) == 0 {
		return 0, err
	}
	if err == nil && ctx.Err() == nil { // an entry that arrived after ctx ended is only handed back
		// If the shard is opened again meanwhile, its epoch changes. Writes of this batch then have no effect, and its
		// entries are read again.
		items, err = s.work(ctx, items)
	}
	return len(items), errors.Join(err, s.handBack(ctx, items))
}

// work delivers the items and records the results. It returns the items that were not finished; the worker still owns
// them.
func (s *shard) work(ctx context.Context, items []item) (left []item, err error) {
	readable, unreadable, err := s.decode(items)
	if err != nil {
		return items, err
	}
	live, forged, err := s.skipDone(ctx, readable)
	if err != nil {
		return items, err
	}
	if err := s.refuse(ctx, append(unreadable, forged...)); err != nil {
		return items, err
	}
	live, hopeless := s.splitExhausted(live)
	if err := s.deadLetterAll(ctx, hopeless); err != nil {
		return append(hopeless, live...), err
	}
	live, others := s.isolateSuspect(live)
	if err := s.handBack(ctx, others); err != nil {
		return append(live, others...), err
	}
	s.measure(live)
	return s.deliverAll(ctx, live)
}

// deliverAll delivers the items in batches until the lease is lost.
func (s *shard) deliverAll(ctx context.Context, items []item) (left []item, err error) {
	l := s.lease(ctx, items)
	defer l.end()
	for len(items) > 0 && err == nil && l.ctx.Err() == nil {
		batch := items[:s.batch(items)]
		results, stopped := s.deliver(l, batch)
		if l.lost() { // another worker may own the entries now, so write nothing
			if l.stuck() { // the batch stays pending: handing it back would retry it at once and not count the attempt
				items = items[len(batch):]
			}
			return append(left, items...), stopped
		}
		l.drop(batch)
		unfinished, failed := s.finish(l, batch, results, stopped)
		left, items, err = append(left, unfinished...), items[len(batch):], errors.Join(stopped, failed)
	}
	return append(left, items...), err
}
