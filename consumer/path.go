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
// Each step gets items and returns what became of them. What no step brought to its end is handed back at the bottom.

// item is one entry that this worker holds.
type item struct {
	store.RawEntry
	entry stream.Entry    // set by decode
	open  []hongbao.Grant // the grants that the sink has not finished; set by skipDone
}

// step takes entries and works on them. It returns how many it did not bring to their end.
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
	if err == nil && ctx.Err() == nil { // else they came when nothing more was to be taken
		// If the shard is opened anew under way, nothing of the batch changes any more, and its entries are read again.
		items, err = s.work(store.WithEpoch(ctx, s.epoch), items)
	}
	return len(items), errors.Join(err, s.handBack(ctx, items))
}

// work brings items to the handler and ends their delivery. All of them are the worker's own when it begins. It returns
// the ones whose delivery did not end.
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

// deliverAll brings items to the handler, batch by batch, for as long as the lease on them holds.
func (s *shard) deliverAll(ctx context.Context, items []item) (left []item, err error) {
	l := s.lease(ctx, items)
	defer l.end()
	for len(items) > 0 && err == nil && l.ctx.Err() == nil {
		batch := items[:s.batch(items)]
		results, stopped := s.deliver(l, batch)
		if l.lost() { // the entries may be another worker's by now: nothing more is written
			if l.stuck() { // the batch stays pending: handed back it would come again at once, and never count an attempt
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
