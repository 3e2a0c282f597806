package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/store"
)

// repairPause is the pause between two attempts to repair a shard that is frozen or does not answer.
const repairPause = 5 * time.Second

// repairAll repairs each shard once. It retries a shard until the repair succeeds.
func (r *Recoverer) repairAll(ctx context.Context) {
	left := make([]int, r.cfg.Store.Len())
	for i := range left {
		left[i] = i
	}
	for {
		left = slices.DeleteFunc(left, func(shard int) bool { return r.repaired(ctx, shard) })
		if len(left) == 0 || !retry.Pause(ctx, repairPause) {
			return
		}
	}
}

func (r *Recoverer) repaired(ctx context.Context, shard int) bool {
	done, err := r.repair(ctx, shard)
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrFrozen) {
		r.cfg.Log.Warn("checking a shard for openings that skipped nothing failed; the worker tries again",
			zap.Int("shard", shard), zap.Error(err))
	}
	return done && err == nil
}

// repair removes the effects of an opening that skipped no seq. Earlier builds made such an opening if a server
// restarted twice without an event in between. It removes an empty range and the dead letters of the opening's entry.
// The dead letters go first, so that the next repair continues if this one is killed. It returns false if another
// worker holds the shard's lock.
func (r *Recoverer) repair(ctx context.Context, shard int) (bool, error) {
	k := r.cfg.Store.Shard(shard)
	head, err := k.OpenHead(ctx)
	if err != nil {
		return false, err
	}
	if needed, err := k.SkipsNothing(ctx); err != nil || !needed {
		return err == nil, err
	}
	return r.withRecoveryLock(store.WithEpoch(ctx, head.Epoch), shard, func(ctx context.Context) error {
		letters := 0
		for _, sink := range r.cfg.Sinks {
			n, err := r.resolveEmpty(ctx, k, sink)
			if err != nil {
				return fmt.Errorf("resolve dead letters of sink %s: %w", sink, err)
			}
			letters += n
		}
		if err := k.Unskip(ctx); err != nil {
			return err
		}
		r.cfg.Log.Info("openings that skipped nothing were repaired", zap.Int("shard", shard),
			zap.Int("dead letters", letters))
		return nil
	})
}

func (r *Recoverer) resolveEmpty(ctx context.Context, k *store.Shard, sink string) (n int, err error) {
	letters := deadletter.New(r.cfg.Store)
	err = letters.Each(ctx, sink, k.Keys.Index(), "", func(page []deadletter.Letter) error {
		for i := range page {
			l := &page[i]
			e, err := stream.ParseEntry(l.Shard, l.Entry, l.Fields)
			if err != nil || l.Seq != 0 || e.Kind != stream.EntryEpoch || e.Events() > 0 {
				continue
			}
			_, _, id, err := deadletter.ParseID(l.ID)
			if err != nil {
				return err
			}
			_, err = k.ResolveLetter(ctx, &store.Resolution{
				Sink: sink, Letter: id, What: store.Dropped, Decision: stream.Decision{By: stream.ByWorker,
					Why: "the entry opened an epoch and skipped nothing: it has no event"}})
			if err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}
