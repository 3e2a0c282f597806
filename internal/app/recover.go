package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/recovery"
	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// recoverer opens the ledger and the topic by connections of its own.
func (a *App) recoverer(ctx context.Context) (*recovery.Recoverer, error) {
	l, err := a.newLedger(ctx)
	if err != nil {
		return nil, err
	}
	cfg := recovery.Config{Redis: a.redis, Space: a.space, Ledger: l, Sinks: a.Config.Deployment.Sinks, Log: a.log,
		Check: func(s *shards.Server) error { return a.checkServer(s, hongbao.DurabilityFast) }}
	if a.has(configs.SinkKafka) {
		if cfg.Topic, err = a.openTopic(ctx); err != nil {
			return nil, err
		}
	}
	return recovery.New(cfg), nil
}

// tendShards opens shards that are frozen and have lost nothing, until ctx ends.
func (a *App) tendShards(ctx context.Context, frozen <-chan int) error {
	policy := retry.Backoff(time.Second, 30*time.Second, 0)
	for {
		r, err := a.recoverer(ctx)
		if err == nil {
			return r.Run(ctx, frozen)
		}
		var misused UsageError
		if errors.As(err, &misused) {
			a.log.Warn("this worker can't open a shard that is frozen, others have to", zap.Error(err))
			<-ctx.Done()
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken && ctx.Err() == nil {
			a.log.Warn("this worker can't look after frozen shards yet, it is tried again", zap.Error(err))
		}
		if !retry.Pause(ctx, policy.NextBackOff()) {
			return nil
		}
	}
}

// Acceptance is a person's word that what Redis has lost may stay lost.
type Acceptance struct{ By, Why string }

// Recovery is how the shards stand.
type Recovery struct {
	Shards []*recovery.Verdict `json:"shards"`
	// Accepted are the last losses that persons have accepted.
	Accepted []ledger.AcceptedLoss `json:"accepted"`
}

// Recover tells what Redis has lost. With a person's word it opens the shards that have lost something; nil changes
// nothing.
func (a *App) Recover(ctx context.Context, word *Acceptance) (*Recovery, error) {
	if err := a.reachRedis(ctx); err != nil {
		return nil, err
	}
	r, err := a.recoverer(ctx)
	if err != nil {
		return nil, err
	}
	out := &Recovery{}
	if out.Shards, err = r.Verdicts(ctx); err != nil {
		return nil, err
	}
	lost := slices.DeleteFunc(slices.Clone(out.Shards), func(v *recovery.Verdict) bool { return !v.Frozen || !v.Lost() })
	if word != nil {
		for _, v := range lost {
			e := about(ctx, access.AcceptLoss, "")
			e.Details = map[string]any{"shard": v.Shard, "by": word.By, "why": word.Why}
			if err := a.recorded(ctx, e, func(ctx context.Context, _ *access.Entry) error {
				return r.Accept(ctx, v, word.By, word.Why)
			}); err != nil {
				return nil, err
			}
			a.log.Warn("a person accepted the loss of a shard", zap.Int("shard", v.Shard), zap.String("by", word.By),
				zap.String("why", word.Why),
				zap.Stringer("lost", v))
		}
	}
	if out.Accepted, err = r.Accepted(ctx); err != nil {
		return nil, err
	}
	if len(lost) > 0 && word == nil {
		err = Found("%d shards have lost something and stay frozen. Let nobody write to this Redis and keep its files. If "+
			"there is a newer append-only file, or a replica that has more, start Redis from that; else `hongbao recover "+
			"--accept-loss --by NAME --why TEXT` opens the shards without what is lost", len(lost))
	}
	refused := slices.IndexFunc(out.Shards, func(v *recovery.Verdict) bool { return v.Refused != "" })
	if refused >= 0 && err == nil {
		err = Found("shard %d stays frozen until the settings of its Redis are right", refused)
	}
	return out, err
}
