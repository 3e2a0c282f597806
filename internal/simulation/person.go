package simulation

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// thinking is how long a person reads a report before they decide.
const thinking = 5 * time.Second

// person does what the alarm redis_went_back names, until ctx ends: they run `hongbao recover`, and then `hongbao
// recover --accept-loss` with the digest that it has printed.
func (w *world) person(ctx context.Context) {
	seen := 0
	for sleep(ctx, thinking) == nil {
		w.mu.Lock()
		n := w.alarms["redis_went_back"]
		w.mu.Unlock()
		if n == seen {
			continue
		}
		seen = n
		if err := w.command(ctx, w.recover); err != nil {
			w.note("hongbao recover: %v", err)
			seen-- // they run it again
		}
	}
}

// command runs a command as the CLI does: in a process of its own.
func (w *world) command(ctx context.Context, do func(context.Context, *app.App) error) (err error) {
	cfg, err := w.config(w.net.proc("person"))
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
	report, err := a.Recover(ctx, app.RecoverOptions{})
	if report == nil {
		return err
	}
	for _, s := range report.Shards {
		if s.Digest == "" {
			continue
		}
		w.note("hongbao recover: shard %d: %v", s.Shard, s.Verdict)
		if err := sleep(ctx, thinking); err != nil {
			return err
		}
		opts := app.RecoverOptions{Accept: &app.Acceptance{Shard: s.Shard, Expect: s.Digest,
			Decision: stream.Decision{By: "ann", Why: "the alarm says so"}}}
		if _, err := a.Recover(ctx, opts); err != nil {
			return err
		}
		w.note("a person has accepted the loss of shard %d", s.Shard)
		w.cover.note("opening", "a person")
		w.mu.Lock()
		w.accepted = append(w.accepted, s.Shard)
		w.mu.Unlock()
	}
	return nil
}
