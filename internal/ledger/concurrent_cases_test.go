package ledger

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// tap is a store that calls beforeCommit when a transaction is about to run its last statements.
type tap struct {
	db.Store
	beforeCommit func(ctx context.Context)
}

func (s *tap) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return s.Store.Write(ctx, func(t db.Txn) ([]db.Stmt, error) {
		last, err := fn(t)
		s.beforeCommit(ctx)
		return last, err
	})
}

// testOverlapping runs many settlers of two ledgers that settle overlapping batches in random order.
func testOverlapping(t *testing.T, f *fixture) {
	const packets, settlers = 400, 8
	f.create(t, "rain", packets)
	f.create(t, "snow", packets)
	second := newFixture(t, f.config)
	var group errgroup.Group
	for i := range settlers {
		who := []*fixture{f, second}[i%2]
		all := append(grantsOf("rain", 1, packets), grantsOf("snow", 1, packets)...)
		rand.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		group.Go(func() error {
			for len(all) > 0 {
				n := min(len(all), 1+rand.IntN(150))
				for _, err := range who.Handle(context.Background(), testkit.Batch(all[:n])) {
					if err != nil {
						return err
					}
				}
				all = all[n:]
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	f.holds(t, "rain", grantsOf("rain", 1, packets))
	f.holds(t, "snow", grantsOf("snow", 1, packets))
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
	require.Empty(t, f.open(t))
}

// testDeadlock runs two transactions that lock the same two rows in opposite order: the database aborts one, and the
// ledger retries it.
func testDeadlock(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 10)
	move := func(id string) db.Stmt {
		return db.Stmt{SQL: `UPDATE campaign SET granted = granted + 1 WHERE id = $1`, Args: []any{id}}
	}
	// SQLite needs no pause, since it never runs two write transactions at once.
	pause := map[string]string{postgres.Name: `SELECT pg_sleep(0.001)`, mysql.Name: `DO SLEEP(0.001)`}[f.config.kind()]
	var tries atomic.Int64
	met := make(chan struct{}, 2)
	cross := func(first, second string) error {
		return f.ledger.tables.Write(context.Background(), func(ctx context.Context, x db.Txn) ([]db.Stmt, error) {
			if err := x.Run(ctx, move(first)); err != nil {
				return nil, err
			}
			if tries.Add(1) <= 2 && pause != "" {
				met <- struct{}{}
				for len(met) < 2 {
					if err := x.Run(ctx, db.Stmt{SQL: pause}); err != nil {
						return nil, err
					}
				}
			}
			return []db.Stmt{move(second)}, nil
		})
	}
	var group errgroup.Group
	group.Go(func() error { return cross("rain", "snow") })
	group.Go(func() error { return cross("snow", "rain") })
	require.NoError(t, group.Wait())
	if pause != "" {
		require.Greater(t, tries.Load(), int64(2), "no deadlock happened")
	}
	for _, id := range []string{"rain", "snow"} {
		c, _, err := f.ledger.Campaign(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, hongbao.Amount(2), c.Granted)
	}
}

// testCancelled cancels the context right before COMMIT, and before the call: no grant is paid.
func testCancelled(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	ctx, cancel := context.WithCancel(t.Context())
	inner := f.ledger.tables.Store
	f.ledger.tables.Store = &tap{Store: inner, beforeCommit: func(context.Context) { cancel() }}
	errs := f.Handle(ctx, testkit.Batch(grantsOf("rain", 1, 5)))
	require.Len(t, errs, 5)
	require.ErrorIs(t, errs[0], context.Canceled)
	require.False(t, hongbao.IsOutage(errs[0]), "the database is not down")
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]), "COMMIT was not sent")
	f.ledger.tables.Store = inner
	f.holds(t, "rain", nil)

	errs = f.Handle(ctx, testkit.Batch(grantsOf("rain", 1, 5)))
	require.Len(t, errs, 5)
	require.ErrorIs(t, errs[4], context.Canceled)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[4]))
	f.holds(t, "rain", nil)
	f.settles(t, grantsOf("rain", 1, 5)...)
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}
