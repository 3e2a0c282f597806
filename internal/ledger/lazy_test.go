package ledger

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

// lazyLedger returns a lazy ledger over its own file, and counts how often it was opened.
func lazyLedger(t *testing.T, fails *atomic.Bool) (*Ledger, *atomic.Int64) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Database = sqlite.Database{Path: filepath.Join(t.TempDir(), "ledger.db")}
	_, err := Migrate(t.Context(), cfg)
	require.NoError(t, err)
	opened := &atomic.Int64{}
	l := Lazy(cfg, func(ctx context.Context) (*Ledger, error) {
		opened.Add(1)
		if fails.Load() {
			return nil, errors.New("it is down")
		}
		o, err := Open(ctx, cfg)
		if err == nil {
			_, err = o.Controls(ctx) // like an App, which reads the deployment while it opens the ledger
		}
		return o, err
	})
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, opened
}

// Concurrent calls, some within Together, open a lazy ledger only once.
func TestLazyOpensOnce(t *testing.T) {
	t.Parallel()
	l, opened := lazyLedger(t, &atomic.Bool{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := l.tables.Together(t.Context(), func(ctx context.Context) error {
				return l.KeepControls(ctx)
			})
			_, reads := l.Controls(t.Context())
			if err != nil || reads != nil {
				t.Error(err, reads)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, opened.Load())
}

// The first use of a lazy ledger is a write within Together: opening the ledger does not deadlock with it.
func TestLazyOpensWithinTogether(t *testing.T) {
	t.Parallel()
	l, _ := lazyLedger(t, &atomic.Bool{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := l.tables.Together(ctx, func(ctx context.Context) error {
		return l.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) { return nil, nil })
	})
	require.NoError(t, err)
}

// After a failure a lazy ledger returns the same error for a second, and then tries again.
func TestLazyRemembersAFailure(t *testing.T) {
	t.Parallel()
	fails := &atomic.Bool{}
	fails.Store(true)
	l, opened := lazyLedger(t, fails)
	first := l.Ready(t.Context())
	require.Error(t, first)
	require.Same(t, first, l.Ready(t.Context()))
	require.EqualValues(t, 1, opened.Load())
	fails.Store(false)
	require.Eventually(t, func() bool { return l.Ready(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
}

// Close cancels an attempt to open the ledger that hangs, and does not return its error.
func TestLedgerThatHangsIsClosed(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	l := Lazy(Config{Database: sqlite.Database{}}, func(ctx context.Context) (*Ledger, error) {
		close(began)
		<-ctx.Done()
		return nil, errors.New("it hung")
	})
	ready := make(chan error, 1)
	go func() { ready <- l.Ready(context.Background()) }()
	<-began
	require.NoError(t, l.Close())
	require.Error(t, <-ready)
	require.Error(t, l.Ready(t.Context()), "the ledger is closed")
}
