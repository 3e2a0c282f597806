package simulation

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// thinking is how long a person reads a report before they decide.
const thinking = 5 * time.Second

// person does what the alarm redis_went_back names, or a worker that does not start, until ctx ends: they run `hongbao
// recover`, and then `hongbao recover --accept-loss` with the digest that it has printed. Then they end or load the
// campaigns that it names.
func (w *world) person(ctx context.Context) {
	seen := 0
	for round := 0; virtual.Sleep(ctx, thinking) == nil; round++ {
		w.decideLetters(ctx, round)
		w.payQuarantine(ctx)
		w.mu.Lock()
		n, todo := w.alarms["redis_went_back"]+w.unfounded, slices.Sorted(maps.Keys(w.todo))
		w.mu.Unlock()
		if n != seen {
			seen = n
			if err := w.command(ctx, w.recover); err != nil {
				w.note("hongbao recover: %v", err)
				seen-- // they run it again
			}
			continue
		}
		for _, id := range todo {
			if err := w.command(ctx, func(ctx context.Context, a *app.App) error { return w.finish(ctx, a, id) }); err != nil {
				w.note("%s %s: %v", w.todo[id], id, err)
			}
		}
	}
}

// command runs a command as the CLI does: in a process of its own.
func (w *world) command(ctx context.Context, do func(context.Context, *app.App) error) (err error) {
	cfg, err := w.config(w.net.NewProc("person"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	a, err := app.New(cfg, zap.NewNop(), app.Hooks{})
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	return do(ctx, a)
}

func (w *world) recover(ctx context.Context, a *app.App) error {
	report, err := losses.Of(a).Recover(ctx, losses.RecoverOptions{})
	if report == nil {
		return err
	}
	for _, s := range report.Shards {
		if s.Digest == "" {
			continue
		}
		w.note("hongbao recover: shard %d: %v", s.Shard, s.ShardReport)
		if err := virtual.Sleep(ctx, thinking); err != nil {
			return err
		}
		opts := losses.RecoverOptions{Accept: &losses.Acceptance{Shard: s.Shard, Expect: s.Digest, Decision: ann}}
		if _, err := losses.Of(a).Recover(ctx, opts); err != nil {
			return err
		}
		w.accept(a, s)
	}
	if hongbao.IsOutage(err) {
		return err // the report was incomplete, so it has no digest
	}
	return nil
}

// accept notes that a person has accepted the loss of a shard: which campaigns it concerns, and what is left to do.
func (w *world) accept(a *app.App, s *losses.ShardLoss) {
	w.note("a person has accepted the loss of shard %d", s.Shard)
	w.cover.note("opening", "a person")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted = append(w.accepted, s.Shard)
	w.named += s.Unknown
	for i := range s.Unpaid {
		w.named += s.Unpaid[i].Grants
	}
	for _, c := range w.plan.Campaigns {
		if a.Store().Has(c.ID, c.Shards, s.Shard) {
			w.lost[c.ID] = true
		}
	}
	for _, c := range s.Campaigns {
		w.todo[c.Campaign] = refundLost
	}
	for _, id := range s.Unloaded {
		w.todo[id] = load
	}
}
