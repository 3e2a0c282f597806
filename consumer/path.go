package consumer

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The life of an entry, from top to bottom:
//
//	take (read or reclaim) -> decode -> skipDone -> refuse, bury, isolate -> deliver -> finish (ack, park, dead letter)
//
// Each step gets items and returns their results. Items that no step finished are handed back at the bottom.

// item is one entry that this worker has.
type item struct {
	store.RawEntry
	entry stream.Entry    // set by decode
	open  []hongbao.Grant // the grants that the sink has not finished; set by skipDone
}

// step takes entries and works on them. It returns how many entries it did not finish.
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
	if err == nil && ctx.Err() == nil { // else the entries came after the end
		// If the shard is opened again under way, the batch changes nothing any more, and its entries are read again.
		items, err = s.work(store.WithEpoch(ctx, s.epoch), items)
	}
	return len(items), errors.Join(err, s.handBack(ctx, items))
}

// work delivers items and ends their delivery. The worker owns all of them when work begins. It returns the items
// whose delivery did not end.
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
	live, hopeless := s.divide(live)
	if err := s.bury(ctx, hopeless); err != nil {
		return append(hopeless, live...), err
	}
	live, others := s.isolate(live)
	if err := s.handBack(ctx, others); err != nil {
		return append(live, others...), err
	}
	s.measure(live)
	return s.deliverAll(ctx, live)
}

// deliverAll delivers items, batch by batch, as long as their lease is valid.
func (s *shard) deliverAll(ctx context.Context, items []item) (left []item, err error) {
	l := s.lease(ctx, items)
	defer l.end()
	for len(items) > 0 && err == nil && l.ctx.Err() == nil {
		batch := items[:s.batch(items)]
		results, stopped := s.deliver(l, batch)
		if l.lost() { // another worker may have the entries by now: this one writes nothing more
			if l.stuck() { // the batch stays pending: handed back, it would return at once without counting an attempt
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
