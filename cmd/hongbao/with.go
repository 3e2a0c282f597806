package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
)

// needs are the servers that a command can't do without.
type needs struct{ redis, ledger bool }

// with reads the configuration, opens what the command needs, and closes it when do has returned. A server that is out of
// reach does not hide another that is, and what fails while closing fails the command: an answer that was not written is none.
func with(cmd *cobra.Command, n needs, do func(a *app.App) error) (err error) {
	cfg, err := load(cmd)
	if err != nil {
		return err
	}
	a, err := app.New(cfg)
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	var redis, ledger error
	if n.redis {
		redis = a.OpenRedis(cmd.Context())
	}
	if n.ledger {
		ledger = a.OpenLedger(cmd.Context())
	}
	if err := errors.Join(redis, ledger); err != nil {
		return err
	}
	return do(a)
}
