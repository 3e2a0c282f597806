package ledger

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// benchBatch is how many grants one Handle gets.
const benchBatch = 2_000

// benchCampaign creates a campaign with the maximum number of packets.
func benchCampaign(b *testing.B, l *Ledger) {
	c := testCampaign(b, "bench", 1)
	c.Spec.Packets, c.Spec.Total = hongbao.MaxPackets, hongbao.MaxAmount
	_, err := l.CreateCampaign(b.Context(), canonical(b, c.Spec))
	require.NoError(b, err)
}

// benchGrants returns the n-th batch: packets in random order, each for a different user.
func benchGrants(n int) []hongbao.Grant {
	list := make([]hongbao.Grant, benchBatch)
	for i := range list {
		k := int64(n*benchBatch + i)
		list[i] = grant("bench", k*7_654_321%hongbao.MaxPackets+1)
		list[i].Seq, list[i].User = k+1, fmt.Sprintf("user-%08d", k*1_234_577%100_000_007)
	}
	return list
}

func reportGrants(b *testing.B) {
	b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "grants/s")
}

func benchmarkSettle(b *testing.B, config Config) {
	f := newFixture(b, config)
	benchCampaign(b, f.ledger)
	n := 0
	for b.Loop() {
		require.Nil(b, f.Handle(context.Background(), testkit.Batch(benchGrants(n))))
		n++
	}
	reportGrants(b)
}

func BenchmarkSettlePostgres(b *testing.B) { benchmarkSettle(b, postgresConfig(b)) }
func BenchmarkSettleMariaDB(b *testing.B)  { benchmarkSettle(b, mariadbConfig(b)) }
func BenchmarkSettleSQLite(b *testing.B)   { benchmarkSettle(b, sqliteConfig(b)) }

// BenchmarkSettleTogetherPostgres settles different batches of one campaign in parallel, so the workers compete for the
// row of the campaign's pool.
func BenchmarkSettleTogetherPostgres(b *testing.B) {
	f := newFixture(b, postgresConfig(b))
	benchCampaign(b, f.ledger)
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if errs := f.Handle(context.Background(), testkit.Batch(benchGrants(int(n.Add(1))))); errs != nil {
				b.Error(errs[0])
			}
		}
	})
	reportGrants(b)
}

// BenchmarkRedeliveredPostgres settles the same batch repeatedly, so each grant is already in the ledger.
func BenchmarkRedeliveredPostgres(b *testing.B) {
	f := newFixture(b, postgresConfig(b))
	benchCampaign(b, f.ledger)
	require.Nil(b, f.Handle(context.Background(), testkit.Batch(benchGrants(0))))
	for b.Loop() {
		require.Nil(b, f.Handle(context.Background(), testkit.Batch(benchGrants(0))))
	}
	reportGrants(b)
}

// BenchmarkBarePostgres is the baseline: one statement per batch inserts the grants and adds up the users' balances. It
// does not compare grants, debit the pool or record a transfer.
func BenchmarkBarePostgres(b *testing.B) {
	config := postgresConfig(b)
	benchCampaign(b, open(b, config))
	conn, err := pgx.Connect(b.Context(), config.dsn())
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, conn.Close(context.Background())) })
	n := 0
	for b.Loop() {
		columns := columnsOf(itemsOf(benchGrants(n), 0))
		_, err := conn.Exec(context.Background(), `WITH i AS (
				INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
				SELECT g.*, $10::bigint FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::integer[],
					$6::bigint[], $7::bigint[], $8::text[], $9::bigint[]) AS g
				ON CONFLICT DO NOTHING RETURNING user_id, amount)
			INSERT INTO account (id, kind, currency, balance)
			SELECT 'user:CNY:' || user_id, 'user', 'CNY', SUM(amount) FROM i GROUP BY user_id ORDER BY user_id
			ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`, append(columns, int64(n))...)
		require.NoError(b, err)
		n++
	}
	reportGrants(b)
}

// benchmarkSealed checks a ledger whose accounts were paid by sealed campaigns only. It reads no grant; the database
// compares the balance of each account with its base.
func benchmarkSealed(b *testing.B, newConfig backend) {
	l := open(b, newConfig(b))
	run := func(sql string) {
		require.NoError(b, l.tables.Write(b.Context(), func(context.Context, db.Txn) ([]db.Stmt, error) {
			return []db.Stmt{{SQL: sql}}, nil
		}))
	}
	run(`INSERT INTO account (id, kind, currency, balance, base) VALUES ('user:CNY:', 'user', 'CNY', 7, 7)`)
	for accounts, letter := 1, 'a'; accounts < 1<<20; letter++ {
		run(`INSERT INTO account (id, kind, currency, balance, base)
			SELECT id || '` + string(letter) + `', kind, currency, balance, base FROM account`)
		if accounts *= 2; accounts == 1<<17 || accounts == 1<<20 {
			b.Run(fmt.Sprint(accounts), func(b *testing.B) {
				for b.Loop() {
					list, err := books.Of(l.tables).CheckConservation(b.Context())
					require.NoError(b, err)
					require.Empty(b, list)
				}
			})
		}
	}
}

func BenchmarkSealedPostgres(b *testing.B) { benchmarkSealed(b, postgresConfig) }
func BenchmarkSealedMariaDB(b *testing.B)  { benchmarkSealed(b, mariadbConfig) }
func BenchmarkSealedSQLite(b *testing.B)   { benchmarkSealed(b, sqliteConfig) }
