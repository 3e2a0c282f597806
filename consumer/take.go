package consumer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// prepare reads the shard's epoch and creates the group, if that is not done yet.
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
	// A Redis that is out of memory creates no group. An existing group's entries must be finished all the same, or
	// memory would never be freed. If the group does not exist, the next read reports it.
	if _, err := s.redis.CreateGroup(ctx, s.cfg.Group); err != nil && !store.IsOutOfMemory(err) {
		return err
	}
	s.hasGroup = true
	return nil
}

// take reclaims entries that are due. If there are none, it reads new ones. After a reclaim it reads new ones first.
// It may return items together with an error; the worker owns them by then.
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

// read reads new entries. It waits for a read that was sent, even when ctx ends, because the worker owns its entries
// from then on. If the last read had entries, the next one also reads the progress of the events that are likely to
// come.
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

// ahead is the progress that came with the present entries.
type ahead struct {
	events   stream.SeqRange
	progress *store.Progress // nil if none came, or if it was used
}

// likely returns the events that the next read probably has: those after the last event, as many as two batches have.
// It returns none if the last read was empty.
func (s *shard) likely() stream.SeqRange {
	if s.lastSeq == 0 {
		return stream.SeqRange{}
	}
	return stream.SeqRange{First: s.lastSeq + 1, Last: s.lastSeq + 2*int64(s.cfg.BatchGrants)}
}

// reclaimUpTo takes up to n entries: parked ones whose backoff is over, and those of workers that stopped renewing.
// One worker leads in that. The others ask again when its lead may be over. The lead ends if the leader is busy for
// long, or was killed.
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

// lead returns how long a worker leads after each reclaim.
func (s *shard) lead() time.Duration { return min(10*s.cfg.Poll, s.cfg.Lease) }

func hold(entries []store.RawEntry) []item {
	items := make([]item, len(entries))
	for i := range entries {
		items[i].RawEntry = entries[i]
	}
	return items
}

// vanished reports entries that were deleted from the stream while they were pending. A reclaim has dropped them from
// the pending list, and a renewal leaves them there. The audit finds their grants by the gap and names them.
func (s *shard) vanished(ids []string) {
	if len(ids) == 0 {
		return
	}
	s.c.count.vanished.Add(int64(len(ids)))
	s.log.Error("INCIDENT: entries were deleted from the stream while they were pending, someone trimmed it by hand; "+
		"run `hongbao audit`, the receipts still have their grants", zap.String("code", eventsLost),
		zap.Strings("entries", ids))
}

// room returns how many entries the worker can start at once.
func (s *shard) room() int {
	grants := s.portion(s.cfg.BatchGrants) // no worker should have entries that wait longer for their turn
	return min(max(1, int(float64(grants)/s.perEntry)), s.cfg.MaxEntries)
}

// measure records how many grants an entry has, so that the next read takes no more than the worker can start.
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
