package main

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// command is a command whose line was read.
func command(t *testing.T) *cobra.Command {
	t.Helper()
	cmd := root()
	cmd.SetContext(t.Context())
	require.NoError(t, cmd.ParseFlags(nil))
	return cmd
}

// with closes in reverse order, whatever do says, and loses no error on the way.
func TestWithClosesAndTellsEveryError(t *testing.T) {
	t.Setenv("HONGBAO_LEDGER_DSN", filepath.Join(t.TempDir(), "ledger.db"))
	cmd := command(t)
	cfg, err := load(cmd)
	require.NoError(t, err)
	_, err = ledger.Migrate(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	_, err = l.Found(t.Context(), ledger.Deployment{ID: cfg.Deployment.ID, KeyPrefix: cfg.Deployment.KeyPrefix, Shards: 1})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	failed, first, second := errors.New("do failed"), errors.New("the first did not close"), errors.New("the second did not close")
	var order []string
	var kept *app.App
	err = with(cmd, needs{ledger: true}, func(a *app.App) error {
		kept = a
		require.NotNil(t, a.Ledger)
		require.Nil(t, a.Redis, "nobody asked for it")
		a.AtEnd(func() error { order = append(order, "first"); return first })
		a.AtEnd(func() error { order = append(order, "second"); return second })
		return failed
	})
	for _, e := range []error{failed, first, second} {
		require.ErrorIs(t, err, e)
	}
	require.Equal(t, []string{"second", "first"}, order)
	_, _, err = kept.Ledger.Campaign(t.Context(), "rain")
	require.Error(t, err, "the ledger is closed")

	require.ErrorIs(t, with(cmd, needs{}, func(a *app.App) error {
		a.AtEnd(func() error { return first })
		return nil
	}), first, "a command that did all it should fails if closing does")
}

// Servers that are out of reach are named together, and nothing is done.
func TestWithNamesEveryServerThatIsAway(t *testing.T) {
	t.Setenv("HONGBAO_REDIS_ADDRS", "127.0.0.1:1")
	t.Setenv("HONGBAO_LEDGER_DRIVER", "postgres")
	t.Setenv("HONGBAO_LEDGER_DSN", "postgres://u@127.0.0.1:2/d")
	cmd := command(t)
	err := with(cmd, needs{redis: true, ledger: true}, func(*app.App) error {
		t.Error("do was called")
		return nil
	})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "127.0.0.1:2")
}
