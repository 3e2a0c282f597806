package consumer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// prepare reads the shard's epoch and makes the group, if that is still to be done.
func (s *shard) prepare(ctx context.Context) error {
	if s.epoch == 0 {
		head, err := s.redis.OpenHead(ctx)
		if err != nil {
			return err
		}
		if err := s.redis.CheckRecorded(ctx); err != nil {
			return err
		}
		s.epoch, s.campaigns.version = head.Epoch, -1 // to be read again: Redis may have lost some
	}
	if s.hasGroup {
		return nil
	}
	// A Redis that is out of memory makes no group. If it is there all the same, its entries must be brought to their
	// end, or memory would never be freed; if it is not, the next read tells.
	if _, err := s.redis.CreateGroup(ctx, s.cfg.Group); err != nil && !store.IsOutOfMemory(err) {
		return err
	}
	s.hasGroup = true
	return nil
}

// take reclaims entries that are due, else it reads new ones. After a reclaim it reads new ones first. With an error it
// may give items all the same: they are the worker's by then.
func (s *shard) take(ctx context.Context) ([]item, error) {
	s.ahead = ahead{}
	if s.lastWasReclaim {
		s.lastWasReclaim = false
		if items, err := s.read(ctx, 0); err != nil || len(items) > 0 {
			return items, err
		}
	}
	if !time.Now().Before(s.nextReclaim) {
		items, err := s.reclaimUpTo(ctx, min(s.room(), s.reclaimLimit))
		if err != nil {
			return items, err
		}
		if len(items) > 0 {
			s.lastWasReclaim = true // and look again soon: there may be more
			return items, nil
		}
	}
	return s.read(ctx, s.cfg.Block)
}

// read reads what is new. A read that was sent is waited for, even when ctx ends: its entries are ours from then on.
// While entries come read after read, each brings the progress of the events that are likely to come with it.
func (s *shard) read(ctx context.Context, block time.Duration) (items []item, err error) {
	ctx = context.WithoutCancel(ctx)
	var entries []store.RawEntry
	if likely := s.likely(); likely.Last == 0 {
		entries, err = s.reads.ReadNew(ctx, s.cfg.Group, s.cfg.Consumer, s.room(), block)
	} else {
		s.ahead.events = likely
		entries, s.ahead.progress, err = s.reads.ReadNewAhead(ctx, s.cfg.Group, s.cfg.Consumer, s.room(), block, likely)
	}
	if len(entries) == 0 {
		s.lastSeq = 0
	}
	if err == nil {
		s.failures = 0
	}
	return hold(entries), err
}

// ahead is the progress that came with the entries in hand.
type ahead struct {
	events   stream.SeqRange
	progress *store.Progress // nil: none came, or it was used
}

// likely are the events that the next read brings, if it brings any: those behind the last one, as many as two batches
// have. None if nothing came lately.
func (s *shard) likely() stream.SeqRange {
	if s.lastSeq == 0 {
		return stream.SeqRange{}
	}
	return stream.SeqRange{First: s.lastSeq + 1, Last: s.lastSeq + 2*int64(s.cfg.BatchGrants)}
}

// reclaimUpTo takes so many of the parked entries whose backoff is over, and those of workers that stopped renewing.
// One worker leads in that, and the others ask again when its lead may be over. A leader that is busy for long, or
// was killed, lets it lapse.
func (s *shard) reclaimUpTo(ctx context.Context, n int) ([]item, error) {
	levels := make([]time.Duration, s.c.topLevel()+1)
	for i := range levels {
		levels[i] = s.c.backoff(int64(i))
	}
	r, err := s.redis.Reclaim(context.WithoutCancel(ctx), store.ReclaimCall{
		Group: s.cfg.Group, Consumer: s.cfg.Consumer, Count: n,
		Lease: s.cfg.Lease, Lead: s.lead(), Backoff: levels,
	})
	if err == nil {
		if len(r.Entries) == 0 && n > 0 {
			s.nextReclaim = time.Now().Add(jitter(max(s.cfg.Poll, r.Led)))
		}
		err = s.controlled(r.Sink)
	}
	s.vanished(r.Gone)
	s.c.count.taken.Add(int64(len(r.Entries)))
	if len(r.Entries) > 0 {
		s.log.Info("reclaimed entries whose time had come: parked ones, or a dead worker's",
			zap.Int("entries", len(r.Entries)))
	}
	return hold(r.Entries), err
}

// lead is how long a worker leads after each reclaim.
func (s *shard) lead() time.Duration { return min(10*s.cfg.Poll, s.cfg.Lease) }

func hold(entries []store.RawEntry) []item {
	items := make([]item, len(entries))
	for i := range entries {
		items[i].RawEntry = entries[i]
	}
	return items
}

// vanished reports entries that were deleted from the stream while they were pending. Redis has dropped them from the
// pending list; the audit finds their grants by the gap and names them.
func (s *shard) vanished(ids []string) {
	if len(ids) == 0 {
		return
	}
	s.c.count.vanished.Add(int64(len(ids)))
	s.log.Error("INCIDENT: entries were deleted from the stream while they were pending, somebody trimmed it by hand; "+
		"run `hongbao audit`, the receipts still have their grants", zap.String("code", eventsLost),
		zap.Strings("entries", ids))
}

// room is how many entries can be started at once.
func (s *shard) room() int {
	grants := s.portion(s.cfg.BatchGrants) // what waits longer for its turn is better held by nobody
	return min(max(1, int(float64(grants)/s.perEntry)), s.cfg.MaxEntries)
}

// measure keeps in mind how many grants an entry has, so that the next read takes no more than can be started.
func (s *shard) measure(items []item) {
	events := 0.0
	for i := range items {
		events += float64(max(1, len(items[i].entry.Grants)))
	}
	if len(items) > 0 {
		now := max(events/float64(len(items)), 1)
		s.perEntry = max(now, 0.7*s.perEntry+0.3*now)
	}
}
