package consumer

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// shard is a worker's loop over one shard.
type shard struct {
	c     *Consumer
	cfg   *Config
	index int
	redis *store.Shard
	at    *store.Shard // the same shard in the epoch of the last read
	log   *zap.Logger

	epoch    int64 // the shard's epoch before the last read of entries; 0 if it must be read again
	hasGroup bool  // the group existed
	failures int64 // failed calls to Redis in a row

	control   store.SinkControl // the operators' decisions about the sink
	controlAt time.Time         // when control was read
	campaigns pausedCampaigns   // the campaigns that are paused for the sink
	turnIn    time.Duration     // the wait until the shard's turn at the sink's rate; 0 if it need not wait

	nextReclaim    time.Time
	lastWasReclaim bool    // the last entries were reclaimed, not read
	reclaimLimit   int     // of entries per reclaim; small after entries that may have crashed their workers
	perEntry       float64 // recent average of grants per entry
	lastSeq        int64   // the last event that was read; 0 if the last read was empty
	ahead          ahead

	timesBroken int64 // how often in a row the shard was broken
	brokenAt    time.Time
}

func newShard(c *Consumer, i int) *shard {
	return &shard{
		c: c, cfg: &c.cfg, index: i, log: c.log.With(zap.Int("shard", i)),
		redis:    c.store.Shard(i),
		perEntry: stream.MaxEntryGrants, reclaimLimit: c.cfg.MaxEntries,
	}
}

// group returns the consumer group in the epoch of the last read.
func (s *shard) group() store.Group { return s.at.Group(s.cfg.Group) }

// run repeats step until ctx ends. left is the number of entries that the last step did not finish.
func (s *shard) run(ctx context.Context) (left int) {
	for ctx.Err() == nil {
		var err error
		switch left, err = s.step(ctx); {
		case err == nil:
			s.setHealth(Working, nil)
		case errors.Is(err, errPaused):
			s.pause(ctx, err)
		case errors.Is(err, errNoCall):
			s.awaitCall(ctx)
		case errors.Is(err, errLater):
			s.setHealth(Working, nil)
			retry.Pause(ctx, jitter(s.turnIn))
		case !s.handleError(ctx, err):
			s.backOff(ctx, err)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.redis.EndLead(ending, s.cfg.Group, s.cfg.Consumer); err != nil {
		s.log.Info("the lead could not be released; it expires by itself", zap.Error(err))
	}
	return left
}

// A broken shard waits brokenPause before its first retry, and twice as long before each further retry, up to
// maxBrokenPause.
const brokenPause, maxBrokenPause = time.Second, 30 * time.Second

// backOff pauses a broken shard. Afterwards the shard first reclaims the entries that it has handed back, and then
// reads new ones.
func (s *shard) backOff(ctx context.Context, err error) {
	s.setHealth(ShardBroken, err)
	if time.Since(s.brokenAt) > 2*maxBrokenPause {
		s.timesBroken = 0
	}
	s.timesBroken++
	s.brokenAt, s.lastWasReclaim, s.nextReclaim = time.Now(), false, time.Time{}
	pause := min(s.c.backoffOf(s.timesBroken, brokenPause), maxBrokenPause)
	s.log.Error("ALARM: shard is broken, a person has to look; it will be retried", zap.String("code", ShardBroken),
		zap.Duration("pause", pause), zap.Error(err))
	retry.Pause(ctx, pause)
}

// handleError handles an error of a step, and waits before the next step if Redis failed. It returns false if the shard
// is broken.
func (s *shard) handleError(ctx context.Context, err error) bool {
	if hongbao.ClassOf(err) != hongbao.ClassBroken && errors.Is(err, store.ErrNoGroup) {
		if err = s.recreateGroup(ctx); err == nil {
			return true
		}
	}
	if hongbao.ClassOf(err) == hongbao.ClassBroken {
		return false
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return true
	}
	s.failures++
	if s.epoch = 0; errors.Is(err, store.ErrStale) && s.failures == 1 { // a repeat: two servers, so it waits
		s.log.Info("the shard was opened again; its entries are read again", zap.Error(err))
		return true
	}
	s.setHealth(s.waits(err), err)
	pause := min(s.c.backoffOf(s.failures, 50*time.Millisecond), 5*time.Second)
	s.log.Warn("shard waits: a call to Redis or the ledger failed", zap.Error(err), zap.Duration("pause", pause))
	retry.Pause(ctx, pause)
	return true
}

// waits returns the Health code for an error of a call to Redis. When the shard becomes frozen, it raises the alarm
// once.
func (s *shard) waits(err error) string {
	if errors.Is(err, store.ErrUnrecorded) || errors.Is(err, errUnowed) {
		return SinkDown // something is not yet in the ledger, which is probably down
	}
	if !errors.Is(err, store.ErrFrozen) {
		return RedisDown
	}
	if s.c.Health()[s.index].Code != ShardFrozen {
		s.log.Error("ALARM: the shard is frozen: Redis was restarted, or has lost writes; grabs get the answer frozen, and "+
			"waiting loses nothing; the shard opens by itself within seconds if nothing is missing; otherwise see `hongbao "+
			"recover`",
			zap.String("code", ShardFrozen), zap.Error(err))
	}
	return ShardFrozen
}

// recreateGroup creates a consumer group that has vanished. The new group starts at the first entry in the stream,
// because sinks are idempotent.
func (s *shard) recreateGroup(ctx context.Context) error {
	made, err := s.redis.Group(s.cfg.Group).Create(ctx)
	if s.hasGroup = false; made { // prepare records what it owes
		s.c.count.groups.Add(1)
		s.log.Error("the consumer group had vanished and was created again; it starts at the first entry in the stream",
			zap.String("code", "group_vanished"))
	}
	return err
}

// backoffOf returns base for the first failure and twice as long for each further failure, with jitter.
func (c *Consumer) backoffOf(failures int64, base time.Duration) time.Duration {
	return jitter(base << min(failures-1, 10))
}
