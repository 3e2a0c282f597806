package app

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao/internal/configs"
)

// Needs are the servers that a command can't do without.
type Needs struct{ Redis, Ledger bool }

// With opens what a command needs, and closes it when do has returned. A server that is out of reach does not hide
// another that is, and what fails while closing fails the command: an answer that was not written is none.
func With(ctx context.Context, cfg *configs.Config, n Needs, do func(a *App) error) (err error) {
	a, err := New(cfg)
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	var redis, ledger error
	if n.Redis {
		redis = a.openRedis(ctx)
	}
	if n.Ledger {
		ledger = a.openLedger(ctx)
	}
	if err := errors.Join(redis, ledger); err != nil {
		return err
	}
	return do(a)
}

// Within gives one call of a long-lived process, such as a request, an App of its own. It uses the parent's Redis,
// which is open, and its ledger, which is opened when somebody first needs it; what the call opens besides is closed
// with it. Calls may come at once.
func (a *App) Within(ctx context.Context, n Needs, do func(a *App) error) (err error) {
	own := &App{Config: a.Config, log: a.log, worker: workerName(), parent: a, redis: a.redis, store: a.store,
		scans: a.scans}
	defer own.Shut(&err)
	if n.Ledger {
		if err := own.openLedger(ctx); err != nil {
			return err
		}
	}
	return do(own)
}
