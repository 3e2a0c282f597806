package consumer

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// prepare checks that this is the deployment's Redis and reads the shard's epoch, if the epoch is not known. It creates
// the consumer group once, and records what it owes.
func (s *shard) prepare(ctx context.Context) error {
	if s.epoch == 0 {
		if err := s.redis.Belongs(ctx); err != nil {
			return err
		}
		head, err := s.redis.OpenHead(ctx)
		if err != nil {
			return err
		}
		if err := s.redis.CheckRecorded(ctx); err != nil {
			return err
		}
		s.epoch, s.campaigns.version = head.Epoch, -1 // -1: Redis may have lost pauses, so read them
		s.at = s.redis.At(s.epoch)
	}
	if s.hasGroup {
		return nil
	}
	// Without free memory Redis creates no group. That must not stop the shard: memory is only freed when the entries
	// of existing groups are finished. If this group does not exist, the next read returns ErrNoGroup.
	if _, err := s.redis.Group(s.cfg.Group).Create(ctx); err != nil && !store.IsOutOfMemory(err) {
		return err
	}
	if err := s.owe(ctx); err != nil {
		return err
	}
	s.hasGroup = true
	return nil
}

// take reclaims entries that are due, or reads new entries if none are due. After a reclaim it first tries to read, so
// that retries do not starve new entries. Items that come with an error are owned by the worker too.
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
			s.lastWasReclaim = true // do not set nextReclaim: more entries may be due
			return items, nil
		}
	}
	return s.read(ctx, s.cfg.Block)
}

// read reads new entries. It does not stop when ctx ends, because the worker owns the entries of a read that Redis has
// carried out. If the last read had entries, the read also fetches the progress of the events that probably come next.
// If the connection still leads to an old primary, the epoch there differs from s.epoch: the read returns ErrStale, and
// no entry is delivered.
func (s *shard) read(ctx context.Context, block time.Duration) (items []item, err error) {
	ctx = context.WithoutCancel(ctx)
	var entries []store.RawEntry
	a := &s.ahead
	a.events = s.likely()
	entries, a.progress, err = s.group().ReadNewAhead(ctx, s.cfg.Consumer, s.room(), block, a.events)
	if len(entries) == 0 {
		s.lastSeq = 0
	}
	if err == nil {
		s.failures = 0
	}
	return own(entries), err
}

// ahead is the progress that was fetched together with the last entries.
type ahead struct {
	events   stream.SeqRange
	progress *store.Progress // nil if none was fetched, or after its use
}

// likely returns the events that the next read will probably have: two batches from the last read event on. It returns
// an empty range if the last read was empty.
func (s *shard) likely() stream.SeqRange {
	if s.lastSeq == 0 {
		return stream.SeqRange{}
	}
	return stream.SeqRange{First: s.lastSeq + 1, Last: s.lastSeq + 2*int64(s.cfg.BatchGrants)}
}

// reclaimUpTo takes up to n entries: parked entries whose backoff is over, and entries of workers that stopped
// renewing. Only the worker with the lead reclaims; the others ask again when the lead may have ended. The lead ends
// if its worker is busy for long or was killed.
func (s *shard) reclaimUpTo(ctx context.Context, n int) ([]item, error) {
	r, err := s.at.Reclaim(context.WithoutCancel(ctx), store.ReclaimCall{
		Group: s.cfg.Group, Consumer: s.cfg.Consumer, Count: n,
		Lease: s.cfg.Lease, Lead: s.lead(), Longest: 2 * s.cfg.MaxBackoff,
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
		s.log.Info("reclaimed entries whose time had come: parked entries, or entries of a dead worker",
			zap.Int("entries", len(r.Entries)))
	}
	return own(r.Entries), err
}

// lead returns how long a worker has the lead after each reclaim.
func (s *shard) lead() time.Duration { return min(10*s.cfg.Poll, s.cfg.Lease) }

func own(entries []store.RawEntry) []item {
	items := make([]item, len(entries))
	for i := range entries {
		items[i].RawEntry = entries[i]
	}
	return items
}

// vanished counts and logs entries that were deleted from the stream while they were pending. A reclaim removes such
// entries from the pending list, and a renewal does not. `hongbao audit` names their grants.
func (s *shard) vanished(ids []string) {
	if len(ids) == 0 {
		return
	}
	s.c.count.vanished.Add(int64(len(ids)))
	s.log.Error("INCIDENT: entries were deleted from the stream while they were pending, so someone trimmed the "+
		"stream by hand; run `hongbao audit`: the receipts still have the grants", zap.String("code", eventsLost),
		zap.Strings("entries", ids))
}

// room returns how many entries the worker should take at once.
func (s *shard) room() int {
	grants := s.portion(s.cfg.BatchGrants) // few at a low rate: do not hoard entries
	return min(max(1, int(float64(grants)/s.perEntry)), s.cfg.MaxEntries)
}

// measure updates perEntry, the average from which room computes how many entries the next read takes.
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
