package app

import (
	"context"
	"errors"
	"os"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// Needs are the servers that a command needs.
type Needs struct {
	Redis, Ledger bool
	// Either is for a command that works as long as Redis or the ledger answers.
	Either bool
	// Keys is the database of API keys: either the deployment's ledger or the database of `hongbao balance`.
	Keys bool
}

// With opens the servers that a command needs, runs do, and closes the servers. If closing fails, With returns the
// error.
func With(ctx context.Context, cfg *configs.Config, n Needs, do func(a *App) error) error {
	return WithHooks(ctx, cfg, n, Hooks{}, do)
}

// WithHooks is With for an App with hooks.
func WithHooks(ctx context.Context, cfg *configs.Config, n Needs, hooks Hooks, do func(a *App) error) (err error) {
	log, err := cfg.Logger(os.Stderr)
	if err != nil {
		return err
	}
	a, err := New(cfg, log, hooks)
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	if err := a.Ready(ctx, n); err != nil {
		return err
	}
	return do(a)
}

// Ready connects to the given servers. Its error names every server that failed.
func (a *App) Ready(ctx context.Context, n Needs) error {
	var redis, ledger error
	if n.Redis || n.Either {
		redis = a.OpenRedis(ctx)
	}
	switch {
	case n.Ledger:
		ledger = a.ledger.Ready(ctx)
	case n.Either && hongbao.IsOutage(redis):
		if ledger = a.ledger.Ready(ctx); ledger == nil {
			return nil
		}
	case n.Keys:
		ledger = a.openKeys(ctx)
	}
	return errors.Join(redis, ledger)
}

// openKeys opens the database of API keys. That is either this deployment's ledger or the database of `hongbao
// balance`. It refuses another deployment's ledger.
func (a *App) openKeys(ctx context.Context) error {
	if err := a.OpenBook(ctx); err != nil {
		return err
	}
	has, err := a.ledger.Deployment(ctx)
	if errors.Is(err, ledger.ErrNotInitialized) {
		return nil
	}
	if err == nil {
		err = has.Is(a.Config.DeploymentRow())
	}
	return withHint("ledger.dsn", err)
}
