package app

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// With closes in reverse order, even if do fails. It returns the error of do and every error of closing.
func TestWithClosesAndTellsEveryError(t *testing.T) {
	t.Parallel()
	cfg := configstest.Config(t, "HONGBAO_LEDGER_DSN="+filepath.Join(t.TempDir(), "ledger.db"))
	configstest.Initialize(t, cfg)
	failed, first, second := errors.New("do failed"), errors.New("the first did not close"),
		errors.New("the second did not close")
	var order []string
	var kept *App
	err := With(t.Context(), cfg, Needs{Ledger: true}, func(a *App) error {
		kept = a
		_, _, err := a.ledger.Campaign(t.Context(), "rain")
		require.NoError(t, err)
		require.False(t, a.redisOpen.Load(), "With opens only what the command needs")
		a.atEnd(func() error { order = append(order, "first"); return first })
		a.atEnd(func() error { order = append(order, "second"); return second })
		return failed
	})
	for _, e := range []error{failed, first, second} {
		require.ErrorIs(t, err, e)
	}
	require.Equal(t, []string{"second", "first"}, order)
	_, _, err = kept.ledger.Campaign(t.Context(), "rain")
	require.Error(t, err, "the ledger is closed")

	require.ErrorIs(t, With(t.Context(), cfg, Needs{}, func(a *App) error {
		a.atEnd(func() error { return first })
		return nil
	}), first, "the error of closing is returned although do succeeded")
}

// Two servers can't be reached. The error names both, and do is not called.
func TestWithNamesEveryServerThatIsAway(t *testing.T) {
	t.Parallel()
	cfg := configstest.Config(t, "HONGBAO_REDIS_ADDRS=127.0.0.1:1", "HONGBAO_LEDGER_DRIVER=postgres",
		"HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1:2/d")
	err := With(t.Context(), cfg, Needs{Redis: true, Ledger: true}, func(*App) error {
		t.Error("do was called")
		return nil
	})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "127.0.0.1:2")
}

// The ledger can be opened while the process is running. Before that, only calls that need the ledger fail; afterwards
// all calls share it.
func TestReady(t *testing.T) {
	t.Parallel()
	a, err := New(configstest.Config(t, "HONGBAO_LEDGER_DSN="+filepath.Join(t.TempDir(), "ledger.db")), zap.NewNop(), Hooks{})
	require.NoError(t, err)
	defer func() { a.Shut(&err); require.NoError(t, err) }()
	require.NoError(t, a.Ready(t.Context(), Needs{}))
	require.Error(t, a.Ready(t.Context(), Needs{Ledger: true}), "the ledger was never founded")

	configstest.Initialize(t, a.Config)
	testkit.EventuallyOK(t, 30*time.Second, func() error { return a.Ready(t.Context(), Needs{Ledger: true}) },
		"a failure is cached only for a moment")
	for range 2 {
		_, _, err = a.ledger.Campaign(t.Context(), "rain")
		require.NoError(t, err, "the ledger is open")
	}
}
