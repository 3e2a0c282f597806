package faults

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// tellEvery is how often the story of a fault that lasts goes on.
const tellEvery = 3 * time.Second

// standing is how a sink stands on all shards.
type standing struct {
	waiting, parked, dead int64
	oldest                time.Duration
}

func (f *Faults) standing(ctx context.Context, sink string) (s standing, err error) {
	for i := range f.cfg.Store.Len() {
		on, err := f.cfg.Store.Shard(i).Status(ctx, sink)
		if err != nil {
			return s, err
		}
		s.waiting, s.parked, s.dead = s.waiting+on.Waiting, s.parked+on.Parked, s.dead+on.Dead
		s.oldest = max(s.oldest, on.Oldest)
	}
	return s, nil
}

// cutKafka closes every connection to Kafka and lets nobody connect.
func (f *Faults) cutKafka(ctx context.Context) error {
	f.mu.Lock()
	already := !f.cutSince.IsZero()
	if !already {
		f.cutSince = time.Now()
	}
	f.mu.Unlock()
	if already {
		return hongbao.Errorf(hongbao.ClassConflict, "kafka is cut off already")
	}
	before := f.cfg.KafkaProxy.Fired()
	f.cfg.KafkaProxy.Refuse(true)
	f.cfg.KafkaProxy.CutAll()
	closed := int64(f.cfg.KafkaProxy.Fired().Cut - before.Cut)
	f.Tell("Kafka is cut off: %s closed, new ones are refused. Grabs and payments go on.", many(closed, "connection"))
	return f.begin(ctx, func(ctx context.Context) {
		f.failed(ctx, "How the sinks stand can't be told", f.without(ctx, before.Refused))
	})
}

// without tells how the sinks stand while Kafka is cut off.
func (f *Faults) without(ctx context.Context, refused int) error {
	for retry.Pause(ctx, tellEvery) {
		f.mu.Lock()
		since := f.cutSince
		f.mu.Unlock()
		if since.IsZero() {
			return nil
		}
		kafka, err := f.standing(ctx, f.cfg.Kafka)
		if err != nil {
			return err
		}
		balance, err := f.standing(ctx, f.cfg.Balance)
		if err != nil {
			return err
		}
		f.Tell("Kafka is cut off for %s: %s for sink %s, %s for sink %s; %s to Kafka refused so far.",
			lasts(time.Since(since)), waits(&kafka), f.cfg.Kafka, waits(&balance), f.cfg.Balance,
			many(int64(f.cfg.KafkaProxy.Fired().Refused-refused), "connection"))
	}
	return nil
}

func waits(s *standing) string {
	switch s.waiting {
	case 0:
		return "nothing waits"
	case 1:
		return fmt.Sprintf("1 grant waits, for %s", lasts(s.oldest))
	}
	return fmt.Sprintf("%d grants wait, the oldest for %s", s.waiting, lasts(s.oldest))
}

// mendKafka lets connections to Kafka in again.
func (f *Faults) mendKafka(ctx context.Context) error {
	f.mu.Lock()
	since := f.cutSince
	f.cutSince = time.Time{}
	f.mu.Unlock()
	if since.IsZero() {
		return hongbao.Errorf(hongbao.ClassConflict, "kafka is not cut off")
	}
	waiting, err := f.standing(ctx, f.cfg.Kafka)
	f.cfg.KafkaProxy.Refuse(false)
	if err != nil {
		return err
	}
	mended := time.Now()
	f.Tell("Kafka is back after %s: %s for sink %s.", lasts(mended.Sub(since)), waits(&waiting), f.cfg.Kafka)
	return f.begin(ctx, func(ctx context.Context) {
		f.failed(ctx, "How the sink catches up can't be told", f.catchUp(ctx, &waiting, mended))
	})
}

// catchUp tells when the sink has finished what had come until Kafka was back.
func (f *Faults) catchUp(ctx context.Context, was *standing, mended time.Time) error {
	upTo := make([]int64, f.cfg.Store.Len())
	for i := range upTo {
		var err error
		if upTo[i], err = f.cfg.Store.Shard(i).LastSeq(ctx); err != nil {
			return err
		}
	}
	err := retry.Poll(ctx, lookEvery, func() (bool, error) {
		for i, seq := range upTo {
			shard := f.cfg.Store.Shard(i)
			finished, _, err := shard.GroupFinished(ctx, f.cfg.Kafka, seq) // 0 before its workers have made the group
			if err != nil || finished < seq {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	now, err := f.standing(ctx, f.cfg.Kafka)
	if err != nil {
		return err
	}
	f.Tell("Sink %s has caught up, %s after Kafka was back: %s that waited %s in the topic. Dead letters: %d.", f.cfg.Kafka,
		lasts(time.Since(mended)), many(was.waiting, "grant"), isOrAre(was.waiting), now.dead)
	f.audit(ctx)
	return nil
}

func isOrAre(n int64) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
