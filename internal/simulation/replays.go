package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// dies runs a command as command does, in a process that dies after a while.
func (w *world) dies(ctx context.Context, after time.Duration, do func(context.Context, *app.App) error) (err error) {
	p := w.net.NewProc("leaver")
	cfg, err := w.config(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, after)
	defer cancel()
	defer context.AfterFunc(ctx, p.Kill)()
	a, err := app.New(cfg, zap.NewNop(), app.Hooks{})
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	return do(ctx, a)
}

// replay runs `hongbao replay`. The command dies on the way, and a person runs it again until it ends.
func (w *world) replay(ctx context.Context, d *Deed) error {
	to, only := strings.CutSuffix(d.Who, missing)
	o := deliveries.Replay{Name: fmt.Sprintf("again-%d", d.At), To: to, Missing: only, Patience: 5 * time.Second}
	if d.For%2 == 0 {
		o.Filter = replay.Filter{Campaign: w.plan.Campaigns[0].ID}
	}
	what := replayed(d.Who)
	run := func(ctx context.Context, a *app.App) error {
		if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
			return err
		}
		report, err := deliveries.Of(a).Replay(ctx, o)
		if report != nil && report.Delivered > 0 {
			w.cover.note("person", what+", which delivers")
		}
		return err
	}
	if err := w.dies(ctx, d.For, run); err != nil {
		w.cover.note("person", what+", which dies")
		w.note("%s: %v", what, err)
	}
	var err error
	for end := time.Now().Add(w.plan.Faulty + w.longest() + patience); time.Now().Before(end); {
		if slices.Contains(w.present(), to) {
			if err = w.command(ctx, run); err == nil {
				w.cover.note("person", what)
				w.note("%s: done", what)
				return nil
			}
			w.note("%s: %v", what, err)
		}
		if ended := virtual.Sleep(ctx, 3*time.Second); ended != nil {
			return ended
		}
	}
	w.mu.Lock()
	lost := len(w.accepted) > 0
	w.mu.Unlock()
	if !lost {
		w.bug("%s: not done: %v", what, err)
	}
	return err
}
