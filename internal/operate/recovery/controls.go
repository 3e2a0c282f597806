package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// keepEvery is the pause between two searches for decisions that the ledger does not have.
const keepEvery = time.Second

// keepControls copies people's decisions about campaigns and sinks from Redis to the ledger, until ctx ends. Redis
// keeps a decision until the ledger has it, so another worker can continue if this one is killed.
func (r *Recoverer) keepControls(ctx context.Context) {
	failed := false
	for {
		err := r.KeepControls(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			r.cfg.Log.Warn("a pause, resume or limit waits in Redis for the ledger; the worker tries again", zap.Error(err))
		}
		failed = err != nil
		if !retry.Pause(ctx, keepEvery) {
			return
		}
	}
}

// KeepControls copies to the ledger the decisions that only Redis has. It skips shards that can't be read.
func (r *Recoverer) KeepControls(ctx context.Context) error {
	unread, err := r.keepNew(ctx)
	return errors.Join(unread, err)
}

// keepNew does the work of KeepControls. unread has the errors of Redis, and err is the ledger's error.
func (r *Recoverer) keepNew(ctx context.Context) (unread, err error) {
	waiting, errs := r.cfg.Store.NewControls(ctx)
	var all []stream.Control
	var pauses []access.Entry
	for shard, list := range waiting {
		for i := range list {
			c := &list[i].Control
			all = append(all, *c)
			if c.By == stream.ByWorker && shard == r.cfg.Store.Home(c.Campaign).Index() {
				pauses = append(pauses, pauseByWorker(c))
			}
		}
	}
	if len(all) == 0 {
		return errors.Join(errs...), nil
	}
	if err := r.cfg.Ledger.KeepControls(ctx, all...); err != nil {
		return errors.Join(errs...), err
	}
	if len(pauses) > 0 {
		if err := r.cfg.Journal.Record(ctx, pauses...); err != nil {
			return errors.Join(errs...), err
		}
	}
	for shard, list := range waiting {
		k := r.cfg.Store.Shard(shard)
		for i := range list {
			if err := k.ControlKept(ctx, &list[i]); err != nil {
				errs = append(errs, fmt.Errorf("shard %d: %w", shard, err))
				break
			}
		}
	}
	return errors.Join(errs...), nil
}

// pauseByWorker returns the journal's entry about a pause that a worker made. Its id depends only on what was paused and
// when, so a repeat adds no second entry. Commands and requests write the entries of people's decisions.
func pauseByWorker(c *stream.Control) access.Entry {
	e := access.Entry{ID: "worker-" + access.Hash(fmt.Sprint(c.Name(), " ", c.At.UnixMilli())), Time: c.At, Who: stream.ByWorker,
		Action: access.PauseCampaign, Campaign: c.Campaign, Sink: c.Sink, Outcome: access.OutcomeDone,
		Details: map[string]any{"why": c.Why}}
	if c.Kind == stream.ControlSinkCampaign {
		e.Action = access.PauseSink
	}
	return e
}

// restoreControls restores people's decisions about campaigns and sinks from the ledger, because Redis may have lost
// them. First it copies the decisions that only Redis has to the ledger, from every shard that can be read. It does not
// overwrite a newer decision on this shard.
func (r *Recoverer) restoreControls(ctx context.Context, shard int) error {
	unread, err := r.keepNew(ctx)
	if err != nil {
		return err
	}
	if unread != nil {
		r.cfg.Log.Warn("a pause, resume or limit on another shard can't be read; the shard opens without it",
			zap.Int("shard", shard), zap.Error(unread))
	}
	controls, err := r.cfg.Ledger.Controls(ctx)
	if err != nil {
		return err
	}
	k := r.cfg.Store.Shard(shard)
	for i := range controls {
		restored, err := k.RestoreControl(ctx, &controls[i])
		if err != nil {
			return fmt.Errorf("restore the last decision about %s from the ledger: %w", &controls[i], err)
		}
		if restored {
			r.cfg.Log.Info("a decision that Redis had lost was restored from the ledger", zap.Int("shard", shard),
				zap.Stringer("about", &controls[i]), zap.String("value", controls[i].Value), zap.String("by", controls[i].By))
		}
	}
	return nil
}
