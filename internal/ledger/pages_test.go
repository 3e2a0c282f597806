package ledger

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// many creates a campaign with n grants of amount 1, each to a different user. It writes the rows directly, as n/100
// settled batches would leave them.
func many(t *testing.T, f *fixture, id string, n int64) {
	t.Helper()
	c := testCampaign(t, id, 1)
	c.Spec.Packets, c.Spec.Total = n, hongbao.Amount(n)
	_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, c.Spec))
	require.NoError(t, err)
	const numbers = `WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < $1) `
	f.tamper(t,
		db.Stmt{SQL: numbers + `INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
			SELECT $2, n, 'u' || n, 1, 0, n, 1, '', 0, n / 100 FROM k`, Args: []any{n, id}},
		db.Stmt{SQL: numbers + `INSERT INTO account (id, kind, currency, balance) SELECT 'user:CNY:u' || n, 'user', 'CNY', 1 FROM k WHERE true
			ON CONFLICT (id) DO UPDATE SET balance = account.balance + 1`, Args: []any{n}},
		db.Stmt{SQL: `INSERT INTO transfer (id, kind, campaign, debit, amount, grants, batch, created_at)
			SELECT 'grants:' || campaign || ':' || batch, 'grants', campaign, 'pool:' || campaign, COUNT(*), COUNT(*), batch, 0
			FROM grants WHERE campaign = $1 GROUP BY campaign, batch`, Args: []any{id}},
		db.Stmt{SQL: `UPDATE account SET balance = 0 WHERE id = $1`, Args: []any{tables.PoolAccount(id)}},
		db.Stmt{SQL: `UPDATE campaign SET granted = $2, grants = $3 WHERE id = $1`, Args: []any{id, n, n}})
}

// CheckConservation reads in pages: each query has a limit of rows and its own time limit. Its memory does not grow
// with the number of grants.
func TestSumsAreReadInPages(t *testing.T) { // not parallel: it measures the heap
	f := newFixture(t, sqliteConfig(t))
	weigh := func() (queries int, bytes uint64) {
		var deadline time.Time
		inner := f.ledger.tables.Store
		f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Query: func(ctx context.Context, sql string, rows int) {
			queries++
			require.Contains(t, sql, "LIMIT", "a query without a limit")
			require.LessOrEqual(t, rows, tables.PageRows)
			until, ok := ctx.Deadline()
			require.True(t, ok)
			require.True(t, until.After(deadline), "the pages share one time limit: %s", sql)
			deadline = until
			if strings.Contains(sql, "transfer") || queries%10 == 0 { // at the transfers and at every tenth query
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				bytes = max(bytes, m.HeapAlloc)
			}
		}}
		differences, err := f.books().CheckConservation(t.Context())
		f.ledger.tables.Store = inner
		require.NoError(t, err)
		require.Empty(t, differences)
		return queries, bytes
	}
	many(t, f, "small", 10_000)
	few, light := weigh()
	many(t, f, "large", 200_000)
	lots, heavy := weigh()
	require.Greater(t, lots, few+40, "20 pages of grants, 20 of accounts")
	require.InDelta(t, light, heavy, 1<<20, "10,000 grants take %d bytes, 210,000 take %d", light, heavy)
	f.tamper(t, db.Stmt{SQL: `UPDATE account SET balance = balance - 1 WHERE id = 'user:CNY:u77'`},
		db.Stmt{SQL: `UPDATE account SET balance = balance + 1 WHERE id = 'user:CNY:u150000'`})
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Equal(t, []books.Difference{
		{Where: "account user:CNY:u150000", What: "its grants + paid from the reserve = balance", Want: 1, Got: 2},
		{Where: "account user:CNY:u77", What: "its grants + paid from the reserve = balance", Want: 2, Got: 1},
	}, differences)
}

// manyCredits books 2n credits of amount 1: n to accounts with ten credits each, and n to one account.
func manyCredits(t *testing.T, f *fixture, n int64) {
	t.Helper()
	f.fund(t, "c1", testCurrency, hongbao.Amount(2*n))
	const numbers = `WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < $1) `
	const credit = `INSERT INTO credit (client, reference, idempotency_key, payload_hash, account, currency, line_no, amount,
		created_at) `
	f.tamper(t,
		db.Stmt{SQL: numbers + credit + `SELECT 'c1', 'r' || n, 'k' || n, '', 'u' || ((n - 1) / 10), 'CNY', (n - 1) % 10 + 1, 1, 0 FROM k`,
			Args: []any{n}},
		db.Stmt{SQL: numbers + credit + `SELECT 'c1', 's' || n, 'l' || n, '', 'u5x', 'CNY', n, 1, 0 FROM k`, Args: []any{n}},
		db.Stmt{SQL: `INSERT INTO credit_account (id, currency, balance, credits)
			SELECT account, currency, SUM(amount), COUNT(*) FROM credit GROUP BY account, currency`},
		db.Stmt{SQL: `UPDATE credit_fund SET credited = $1, credits = $1`, Args: []any{2 * n}})
}

// CheckCredits reads in pages, too: both many accounts and one account with very many credits.
func TestCreditsAreReadInPages(t *testing.T) { // not parallel: it measures the heap
	weigh := func(n int64) (queries int, bytes uint64) {
		f := newFixture(t, sqliteConfig(t))
		manyCredits(t, f, n)
		inner := f.ledger.tables.Store
		var deadline time.Time
		f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Query: func(ctx context.Context, sql string, rows int) {
			queries++
			require.LessOrEqual(t, rows, tables.PageRows)
			require.True(t, strings.Contains(sql, "LIMIT") || strings.Contains(sql, "credit_fund"), sql)
			until, ok := ctx.Deadline()
			require.True(t, ok)
			require.True(t, until.After(deadline), "the pages share one time limit: %s", sql)
			deadline = until
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			bytes = max(bytes, m.HeapAlloc)
		}}
		differences, err := f.books().CheckCredits(t.Context())
		f.ledger.tables.Store = inner
		require.NoError(t, err)
		require.Empty(t, differences)
		f.tamper(t, db.Stmt{SQL: `UPDATE credit SET amount = 2 WHERE reference = $1`, Args: []any{fmt.Sprint("s", n-1)}})
		differences, err = f.books().CheckCredits(t.Context())
		require.NoError(t, err)
		require.Len(t, differences, 2, "its account, and its fund")
		return queries, bytes
	}
	few, light := weigh(20_000)
	lots, heavy := weigh(100_000)
	require.Greater(t, lots, few+10)
	require.InDelta(t, light, heavy, 4<<20, "40,000 credits take %d bytes, 200,000 take %d", light, heavy)
}

// Refund reads the grants in pages, before it locks the campaign.
func TestRefundCountsBeforeItLocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqliteConfig(t))
	many(t, f, "rain", 25_000)
	inner, writing, pages := f.ledger.tables.Store, false, 0
	f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Run: func(int) { writing = true }, Query: func(_ context.Context,
		sql string, rows int) {
		require.LessOrEqual(t, rows, tables.PageRows)
		if strings.Contains(sql, "FROM grants") {
			require.False(t, writing, "grants are read under the lock: %s", sql)
			pages++
		}
	}}
	closed := closeOf("rain", 1, 1)
	closed.Shard, closed.Seq = 0, 25_001
	closed.Close = stream.Closing{Granted: 25_000, GrantedAmount: 25_000}
	_, err := f.ledger.Refund(t.Context(), one(closed), 0)
	f.ledger.tables.Store = inner
	require.NoError(t, err)
	require.Equal(t, 3, pages)
	require.True(t, writing)
}

// Many conflicting grants are written to quarantine with few statements.
func TestConflictsAreWrittenInSets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqliteConfig(t))
	f.create(t, "rain", 10)
	f.settles(t, grant("rain", 1))
	const n = 20_000
	storm := make([]hongbao.Grant, n)
	for i := range storm {
		storm[i] = grant("rain", 1+int64(i%10))
		storm[i].User, storm[i].Seq, storm[i].Amount = fmt.Sprint("thief", i), int64(100+i), 7
	}
	inner, statements := f.ledger.tables.Store, 0
	count := func() {
		f.ledger.tables.Store = &ledgertest.Watched{Store: inner, Run: func(n int) { statements += n }, Query: func(context.Context, string,
			int) {
			statements++
		}}
	}
	count()
	f.settles(t, storm...)
	require.Less(t, statements, n/100)
	require.Len(t, f.reported, n)
	require.Equal(t, n, f.hooked)
	f.settles(t, storm...)
	require.Len(t, f.reported, n, "no grant is new")
	require.Equal(t, 2*n, f.hooked)
	f.ledger.tables.Store = inner
	waiting, err := f.ledger.Quarantine(t.Context(), 0, 2*n)
	require.NoError(t, err)
	for i := range waiting {
		waiting[i].Grant.Currency = "" // the ledger adds the currency to the grants that it returns
	}
	require.True(t, reflect.DeepEqual(f.reported, waiting),
		"the reported grants differ from those in quarantine (a diff would take minutes)")
}

// Migrations have their own time limit: a step may take longer than Config.Timeout.
func TestMigrationHasItsOwnTimeLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		slow   string
	}{
		"postgres": {testPostgres(testkit.Postgres(t)), `SELECT pg_sleep(1)`},
		"mariadb":  {testMariaDB(testkit.MariaDB(t)), `DO SLEEP(1)`},
		"sqlite": {testConfig(sqlite.Database{Path: filepath.Join(t.TempDir(), "l.db")}),
			`WITH RECURSIVE k (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM k WHERE n < 3000000) SELECT COUNT(*) FROM k`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := c.config
			config.Timeout, config.LockTimeout = 300*time.Millisecond, 200*time.Millisecond
			l, err := reach(t.Context(), config, true)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			steps := l.tables.Dialect.Migrations
			steps = append(steps, db.Step{Version: db.Newest(steps) + 1, Name: "slow", Sum: "x", Lowest: 1,
				Script: c.slow + ";\n"})
			begun := time.Now()
			done, err := l.apply(t.Context(), steps)
			require.NoError(t, err)
			require.Equal(t, "slow", done[len(done)-1])
			require.Greater(t, time.Since(begun), config.Timeout, "the step was not slow")
		})
	}
}
