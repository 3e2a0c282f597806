package consumer

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// shard is the worker's loop over one shard.
type shard struct {
	c              *Consumer
	cfg            *Config
	keys           shards.Keys
	log            *zap.Logger
	nextReclaim    time.Time
	epoch          int64   // of the shard, before the last entries were read; 0: it is to be read
	lastWasReclaim bool    // the last entries were taken, not read
	hasGroup       bool    // the group was there
	perEntry       float64 // grants an entry lately has
	failures       int64   // in a row, of calls to Redis
	left           int     // entries that the last step did not finish
	reclaimLimit   int     // entries at once; small after some that may kill their worker

	timesBroken int64 // lately, in a row
	brokenAt    time.Time
}

func newShard(c *Consumer, i int) *shard {
	return &shard{
		c: c, cfg: &c.cfg, keys: c.layout.Shard(i), log: c.cfg.Log.With(zap.Int("shard", i)),
		perEntry: hongbao.MaxEntryGrants, reclaimLimit: c.cfg.MaxEntries,
	}
}

// run takes, reads and works until ctx ends.
func (s *shard) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.left = 0
		switch err := s.step(ctx); {
		case err == nil:
			s.stands(Working, nil)
		case !s.survive(ctx, err):
			s.rest(ctx, err)
		}
	}
}

// A broken shard rests this long at first, and twice as long each time, up to the second one.
const brokenPause, maxBrokenPause = time.Second, 30 * time.Second

// rest pauses a broken shard. What broke it comes first then: entries that it handed back are taken before new ones are
// read.
func (s *shard) rest(ctx context.Context, err error) {
	s.stands(ShardBroken, err)
	if time.Since(s.brokenAt) > 2*maxBrokenPause {
		s.timesBroken = 0
	}
	s.timesBroken++
	s.brokenAt, s.lastWasReclaim, s.nextReclaim = time.Now(), false, time.Time{}
	pause := min(s.c.backoffOf(s.timesBroken, brokenPause), maxBrokenPause)
	s.log.Error("ALARM: shard is broken, a person has to look; it is tried again", zap.String("code", ShardBroken),
		zap.Duration("pause", pause), zap.Error(err))
	sleep(ctx, pause)
}

func (s *shard) step(ctx context.Context) error {
	if s.epoch == 0 {
		head, err := shards.Of(s.cfg.Redis, s.keys).OpenHead(ctx)
		if err != nil {
			return err
		}
		s.epoch = head.Epoch
	}
	if !s.hasGroup {
		err := s.createGroup(ctx, false)
		if err != nil && !shards.IsOutOfMemory(err) {
			return err
		}
		// A Redis that is out of memory makes no group. If it is there all the same, its entries must be brought to their
		// end, or memory would never be freed; if it is not, the next read tells.
		s.hasGroup = true
	}
	entries, err := s.next(ctx)
	if err != nil || len(entries) == 0 {
		return err
	}
	if ctx.Err() != nil { // they came when nothing more was to be taken
		return s.handBack(ctx, hold(entries))
	}
	return s.work(ctx, entries)
}

// next takes what is due, else reads what is new. After what was taken it is the turn of what is new.
func (s *shard) next(ctx context.Context) ([]shards.RawEntry, error) {
	if s.lastWasReclaim {
		s.lastWasReclaim = false
		if entries, err := s.read(ctx, 0); err != nil || len(entries) > 0 {
			return entries, err
		}
	}
	if now := time.Now(); !now.Before(s.nextReclaim) {
		entries, err := s.reclaim(ctx)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			s.lastWasReclaim = true // and look again soon: there may be more
			return entries, nil
		}
		s.nextReclaim = now.Add(jitter(s.cfg.Poll))
	}
	return s.read(ctx, s.cfg.Block)
}

// room is how many entries can be started at once.
func (s *shard) room() int {
	return min(max(1, int(float64(s.cfg.BatchGrants)/s.perEntry)), s.cfg.MaxEntries)
}

// read reads what is new. A read that was sent is waited for, even when ctx ends: its entries are ours from then on.
func (s *shard) read(ctx context.Context, block time.Duration) ([]shards.RawEntry, error) {
	entries, err := shards.Of(s.cfg.Reads, s.keys).ReadNew(context.WithoutCancel(ctx), s.cfg.Group, s.cfg.Consumer,
		s.room(), block)
	if err == nil {
		s.failures = 0
	}
	return entries, err
}

func (s *shard) reclaim(ctx context.Context) ([]shards.RawEntry, error) {
	levels := make([]time.Duration, s.c.topLevel()+1)
	for i := range levels {
		levels[i] = s.c.backoff(int64(i))
	}
	entries, gone, err := shards.Of(s.cfg.Redis, s.keys).Reclaim(context.WithoutCancel(ctx), shards.ReclaimCall{
		Group: s.cfg.Group, Consumer: s.cfg.Consumer, Count: min(s.room(), s.reclaimLimit),
		Lease: s.cfg.Lease, Backoff: levels,
	})
	s.vanished(gone)
	s.c.count.taken.Add(int64(len(entries)))
	if len(entries) > 0 {
		s.log.Info("took entries whose time had come: parked ones, or a dead worker's", zap.Int("entries", len(entries)))
	}
	return entries, err
}

// vanished reports entries that were deleted from the stream while they were pending. Redis has dropped them from the
// pending list; the audit finds their grants by the gap and names them.
func (s *shard) vanished(ids []string) {
	if len(ids) == 0 {
		return
	}
	s.c.count.vanished.Add(int64(len(ids)))
	s.log.Error("INCIDENT: entries were deleted from the stream while they were pending, somebody trimmed it by hand; "+
		"run `hongbao audit`, the receipts still have their grants", zap.String("code", EventsLost),
		zap.Strings("entries", ids))
}

// survive deals with an error of a call to Redis; false if the shard is broken.
func (s *shard) survive(ctx context.Context, err error) bool {
	broken := func() bool { return hongbao.ClassOf(err) == hongbao.ClassBroken }
	if !broken() && errors.Is(err, shards.ErrNoGroup) {
		if err = s.createGroup(ctx, true); err == nil {
			return true
		}
	}
	if broken() {
		return false
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return true
	}
	s.failures++
	if s.epoch = 0; errors.Is(err, shards.ErrStale) {
		s.log.Info("the shard was opened anew; the batch in hand begins anew", zap.Error(err))
		return true
	}
	s.stands(s.waits(err), err)
	pause := min(s.c.backoffOf(s.failures, 50*time.Millisecond), 5*time.Second)
	s.log.Warn("shard waits: a call to Redis failed", zap.Error(err), zap.Duration("pause", pause))
	sleep(ctx, pause)
	return true
}

// waits tells why the shard waits, and raises the alarm of a frozen one: once, until it works again.
func (s *shard) waits(err error) string {
	if !errors.Is(err, shards.ErrFrozen) {
		return RedisDown
	}
	if s.c.Health()[s.keys.Index()].Code != ShardFrozen {
		s.log.Error("ALARM: the shard is frozen: Redis was started anew, or has lost something; grabs are answered frozen, "+
			"and nothing is lost by waiting; it opens by itself within seconds if nothing is missing, else see `hongbao "+
			"recover`",
			zap.String("code", ShardFrozen), zap.Error(err))
	}
	return ShardFrozen
}

// createGroup makes the group if it is not there, from the first entry kept: sinks are idempotent.
func (s *shard) createGroup(ctx context.Context, vanished bool) error {
	made, err := shards.Of(s.cfg.Redis, s.keys).CreateGroup(ctx, s.cfg.Group)
	if err != nil {
		return err
	}
	if made && vanished {
		s.c.count.groups.Add(1)
		s.log.Error("the consumer group had vanished and was created again; it reads from the first entry kept")
	}
	return nil
}

// backoffOf doubles base with each failure, with jitter.
func (c *Consumer) backoffOf(failures int64, base time.Duration) time.Duration {
	return jitter(base << min(failures-1, 10))
}
