package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Begin waits for the pending rows of another worker, which deletes them meanwhile. Begin inserts rows for all its
// grants anyway.
func TestPostgresRowsForgottenWhileBeginning(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 10)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 4, 6)))
	require.NoError(t, err)
	conn := connect(t, f.config.dsn())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `DELETE FROM pending WHERE packet = 5`)
	require.NoError(t, err)
	type answer struct {
		before []payment.Pending
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		_, before, err := f.Settler.Begin(t.Context(), asking("w2", 2), testkit.Batch(grantsOf("rain", 4, 6)))
		answered <- answer{before, err}
	}()
	testkit.Eventually(t, 20*time.Second, func() bool {
		var waits int
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_locks WHERE NOT granted`).Scan(&waits))
		return waits > 0
	}, "the second worker waits for packet 5, after packet 4")
	_, err = tx.Exec(t.Context(), `DELETE FROM pending`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	a := <-answered
	require.NoError(t, a.err)
	require.Empty(t, a.before)
	require.Equal(t, []int64{4, 5, 6}, f.pending(t))
}

// between is a store that calls a hook before statement number at.
type between struct {
	db.Store
	at   int
	hook func()
}

type betweenTxn struct {
	db.Txn
	b *between
}

func (b *between) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return b.Store.Write(ctx, func(t db.Txn) ([]db.Stmt, error) { return fn(&betweenTxn{t, b}) })
}

func (b *between) next() {
	if b.at--; b.at == -1 {
		b.hook()
	}
}

func (t *betweenTxn) Run(ctx context.Context, stmts ...db.Stmt) error {
	t.b.next()
	return t.Txn.Run(ctx, stmts...)
}

func (t *betweenTxn) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	t.b.next()
	return t.Txn.Query(ctx, sql, args, row)
}

// Another worker records or forgets a grant between any two statements of Begin. Begin never begins a recorded grant,
// and every begun grant has a pending row.
func TestPostgresBetweenTheStatementsOfABegin(t *testing.T) {
	t.Parallel()
	f := newFixture(t, postgresConfig(t))
	f.create(t, "rain", 100)
	store, fired := f.ledger.tables.Store, 0
	for n := range 10 {
		list := grantsOf("rain", int64(n*2+1), int64(n*2+2))
		_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(list))
		require.NoError(t, err)
		b := &between{Store: store, at: n / 2}
		b.hook = func() {
			fired++
			f.ledger.tables.Store = store
			if n%2 == 0 {
				require.Nil(t, f.Settler.Record(t.Context(), testkit.Batch(list[:1])))
			} else {
				require.NoError(t, f.Settler.Forget(t.Context(), 1, time.Time{}, list[:1]))
			}
			f.ledger.tables.Store = b
		}
		f.ledger.tables.Store = b
		held, before, err := f.Settler.Begin(t.Context(), asking("w2", 2), testkit.Batch(list))
		f.ledger.tables.Store = store
		require.NoError(t, err)
		if len(held)+len(before) == len(list) {
			continue // no grant is begun
		}
		require.Contains(t, f.pending(t), list[0].Packet, "%d: the grant is begun, so it must have a row", n)
		require.NoError(t, f.ledger.EachGrant(t.Context(), "rain", func(g hongbao.Grant) error {
			require.NotEqual(t, list[0].Packet, g.Packet, "%d: the grant is begun, although it is recorded", n)
			return nil
		}))
	}
	require.GreaterOrEqual(t, fired, 6)
}
