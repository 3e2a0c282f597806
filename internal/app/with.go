package app

import (
	"context"
	"errors"
	"os"

	"github.com/hongbao-project/hongbao/internal/configs"
)

// Needs are the servers that a command requires.
type Needs struct {
	Redis, Ledger bool
	// Keys is the database of API keys: the deployment's ledger, or one that only `hongbao balance` uses.
	Keys bool
}

// With opens the servers that a command needs, and closes them when do has returned. A failed close fails the command.
func With(ctx context.Context, cfg *configs.Config, n Needs, do func(a *App) error) (err error) {
	log, err := cfg.Logger(os.Stderr)
	if err != nil {
		return err
	}
	a, err := New(cfg, log, Hooks{})
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	if err := a.Ready(ctx, n); err != nil {
		return err
	}
	return do(a)
}

// Ready opens servers. Its error names every server that failed.
func (a *App) Ready(ctx context.Context, n Needs) error {
	var redis, ledger error
	if n.Redis {
		redis = a.openRedis(ctx)
	}
	switch {
	case n.Ledger:
		ledger = a.ledger.Ready(ctx)
	case n.Keys:
		ledger = a.openKeys(ctx)
	}
	return errors.Join(redis, ledger)
}
