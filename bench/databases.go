package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql" // MariaDB
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // SQLite

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// batchWriter writes a batch of grants to a database.
type batchWriter func(ctx context.Context, grants []hongbao.Grant) error

// database is a kind of database server that the rows settle on.
type database struct {
	about string
	// fresh creates an empty database, and drop drops it. of returns the database with this dsn for a ledger.
	fresh func(ctx context.Context) (dsn string, drop func(context.Context) error, err error)
	of    func(dsn string) db.Database
	// batchWriter returns a batch writer that writes to the ledger's tables, as a bare loop would. The function plain
	// returns a batch writer that writes to its own two tables; plain may be nil. The function end closes the writer's
	// connections.
	batchWriter, plain func(ctx context.Context, dsn string) (post batchWriter, end func() error, err error)
	close              func() error
}

// config returns the configuration of a ledger.
func (d *database) config(dsn string) ledger.Config {
	return ledger.Config{Database: d.of(dsn), Retries: 10, Limits: db.Limits{Conns: 8, ConnectTimeout: 5 * time.Second,
		LockTimeout: 10 * time.Second, Timeout: time.Minute}}
}

// postgresDatabase starts a PostgreSQL with fsync, so that it loses no committed transaction.
func postgresDatabase(ctx context.Context) (*database, error) {
	pg, err := testkit.StartPostgres(ctx, testkit.PostgresOptions{Settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "512MB",
		"max_wal_size": "4GB",
	}})
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return &database{
		about: "PostgreSQL with fsync", close: pg.Close, batchWriter: postgresPoster, plain: postgresPlain,
		of: func(dsn string) db.Database { return postgres.Database{DSN: dsn} },
		fresh: func(ctx context.Context) (string, func(context.Context) error, error) {
			name, err := pg.CreateDatabase(ctx)
			return pg.DSN(name), func(ctx context.Context) error { return pg.DropDatabase(ctx, name) }, err
		},
	}, nil
}

// bareBatch is a batch of grants of one campaign, stored by column, with the sum for each account.
type bareBatch struct {
	campaign                              string
	campaigns, users, requests            []string
	packets, amounts, seqs, epochs, times []int64
	shards                                []int32
	accounts                              []string
	credits                               []int64
	sum                                   int64
}

func columns(grants []hongbao.Grant) *bareBatch {
	n := len(grants)
	b := &bareBatch{
		campaign: grants[0].Campaign, campaigns: make([]string, n), users: make([]string, n), requests: make([]string, n),
		packets: make([]int64, n), amounts: make([]int64, n), seqs: make([]int64, n), epochs: make([]int64, n),
		times: make([]int64, n), shards: make([]int32, n),
	}
	at := make(map[string]int, n) // index in accounts, by account
	for i := range grants {
		g := &grants[i]
		b.campaigns[i], b.users[i], b.requests[i], b.shards[i] = g.Campaign, g.User, g.RequestID, int32(g.Shard)
		b.packets[i], b.amounts[i], b.seqs[i], b.epochs[i] = g.Packet, int64(g.Amount), g.Seq, g.Epoch
		b.times[i] = g.Time.UnixMilli()
		account := "user:CNY:" + g.User
		k, met := at[account]
		if !met {
			k, at[account] = len(b.accounts), len(b.accounts)
			b.accounts, b.credits = append(b.accounts, account), append(b.credits, 0)
		}
		b.credits[k] += int64(g.Amount)
		b.sum += int64(g.Amount)
	}
	return b
}

// postgresPoster needs one round trip per batch: pgx sends all statements at once, as one transaction.
func postgresPoster(ctx context.Context, dsn string) (batchWriter, func() error, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	post := func(ctx context.Context, grants []hongbao.Grant) error {
		c, b := columns(grants), &pgx.Batch{}
		b.Queue(`INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, batch)
			SELECT g.*, 1 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::int[], $6::bigint[],
			$7::bigint[], $8::text[], $9::bigint[]) AS g`, c.campaigns, c.packets, c.users, c.amounts, c.shards, c.seqs,
			c.epochs, c.requests, c.times)
		b.Queue(`INSERT INTO account (id, kind, currency, balance)
			SELECT id, 'user', 'CNY', amount FROM unnest($1::text[], $2::bigint[]) AS c (id, amount)
			ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`, c.accounts, c.credits)
		b.Queue(`UPDATE account SET balance = balance - $2 WHERE id = $1`, "pool:"+c.campaign, c.sum)
		b.Queue(`UPDATE campaign SET granted = granted + $2, grants = grants + $3 WHERE id = $1`, c.campaign, c.sum,
			len(grants))
		return pool.SendBatch(ctx, b).Close()
	}
	return post, func() error { pool.Close(); return nil }, nil
}

const plainTables = `
CREATE TABLE grants (campaign text, packet bigint, usr text NOT NULL, amount bigint NOT NULL, shard int NOT NULL,
	seq bigint NOT NULL, epoch bigint NOT NULL, request_id text NOT NULL, granted_at bigint NOT NULL,
	PRIMARY KEY (campaign, packet));
CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL);`

const plainInsert = `
WITH g AS (
	INSERT INTO grants SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::int[], $6::bigint[],
		$7::bigint[], $8::text[], $9::bigint[])
	ON CONFLICT DO NOTHING RETURNING usr, amount)
INSERT INTO account SELECT usr, sum(amount) FROM g GROUP BY usr ORDER BY usr
ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`

func postgresPlain(ctx context.Context, dsn string) (batchWriter, func() error, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err == nil {
		_, err = pool.Exec(ctx, plainTables)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make the plain tables: %w", err)
	}
	post := func(ctx context.Context, grants []hongbao.Grant) error {
		c := columns(grants)
		_, err := pool.Exec(ctx, plainInsert, c.campaigns, c.packets, c.users, c.amounts, c.shards, c.seqs, c.epochs,
			c.requests, c.times)
		return err
	}
	return post, func() error { pool.Close(); return nil }, nil
}

func mariadbDatabase(ctx context.Context) (*database, error) {
	m, err := testkit.StartMariaDB(ctx, testkit.MariaDBOptions{Settings: map[string]string{
		"innodb_doublewrite": "on", "innodb_buffer_pool_size": "512M", "innodb_log_file_size": "1G",
	}})
	if err != nil {
		return nil, fmt.Errorf("start mariadb: %w", err)
	}
	return &database{
		about: "MariaDB that flushes each commit", close: m.Close,
		batchWriter: func(_ context.Context, dsn string) (batchWriter, func() error, error) {
			db, err := sql.Open("mysql", dsn+"?interpolateParams=true&multiStatements=true")
			return mariadbPoster(db), db.Close, err
		},
		of: func(dsn string) db.Database { return mysql.Database{DSN: dsn} },
		fresh: func(ctx context.Context) (string, func(context.Context) error, error) {
			name, err := m.CreateDatabase(ctx)
			return m.DSN(name), func(ctx context.Context) error { return m.DropDatabase(ctx, name) }, err
		},
	}, nil
}

// mariadbPoster sends the whole transaction as one multi-statement text.
func mariadbPoster(db *sql.DB) batchWriter {
	return func(ctx context.Context, grants []hongbao.Grant) error {
		var text strings.Builder
		var args []any
		text.WriteString("START TRANSACTION;\n")
		for _, s := range transaction(columns(grants), `ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance)`) {
			text.WriteString(s.sql + ";\n")
			args = append(args, s.args...)
		}
		text.WriteString("COMMIT")
		_, err := db.ExecContext(ctx, text.String(), args...)
		return err
	}
}

func sqliteDatabase(context.Context) (*database, error) {
	dir, err := os.MkdirTemp("", "bench-sqlite-")
	if err != nil {
		return nil, err
	}
	files := 0
	return &database{
		about: "SQLite with synchronous=FULL", close: func() error { return os.RemoveAll(dir) }, batchWriter: sqlitePoster,
		of: func(dsn string) db.Database { return sqlite.Database{Path: dsn} },
		fresh: func(context.Context) (string, func(context.Context) error, error) {
			files++
			path := filepath.Join(dir, fmt.Sprintf("%d.db", files))
			return path, func(context.Context) error { return os.Remove(path) }, nil
		},
	}, nil
}

func sqlitePoster(_ context.Context, path string) (batchWriter, func() error, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"+
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)&_txlock=immediate")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	post := func(ctx context.Context, grants []hongbao.Grant) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, s := range transaction(columns(grants),
			`ON CONFLICT (id) DO UPDATE SET balance = balance + excluded.balance`) {
			if _, err := tx.ExecContext(ctx, s.sql, s.args...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	}
	return post, db.Close, nil
}

type bareStatement struct {
	sql  string
	args []any
}

// transaction returns the statements of a batch for drivers without array parameters: inserts of many rows, and two
// updates.
func transaction(c *bareBatch, addUp string) []bareStatement {
	const atOnce = 2_000
	grants := func(from, to int) bareStatement {
		s := bareStatement{sql: `INSERT INTO grants (campaign, packet, user_id, amount, shard, seq, epoch, request_id,
			granted_at, batch) VALUES ` + rowsOf("(?,?,?,?,?,?,?,?,?,1)", to-from)}
		for i := from; i < to; i++ {
			s.args = append(s.args, c.campaign, c.packets[i], c.users[i], c.amounts[i], c.shards[i], c.seqs[i], c.epochs[i],
				c.requests[i], c.times[i])
		}
		return s
	}
	accounts := func(from, to int) bareStatement {
		s := bareStatement{sql: `INSERT INTO account (id, kind, currency, balance) VALUES ` +
			rowsOf("(?,'user','CNY',?)", to-from) + " " + addUp}
		for i := from; i < to; i++ {
			s.args = append(s.args, c.accounts[i], c.credits[i])
		}
		return s
	}
	var list []bareStatement
	for from := 0; from < len(c.users); from += atOnce {
		list = append(list, grants(from, min(from+atOnce, len(c.users))))
	}
	for from := 0; from < len(c.accounts); from += atOnce {
		list = append(list, accounts(from, min(from+atOnce, len(c.accounts))))
	}
	return append(list,
		bareStatement{`UPDATE account SET balance = balance - ? WHERE id = ?`, []any{c.sum, "pool:" + c.campaign}},
		bareStatement{`UPDATE campaign SET granted = granted + ?, grants = grants + ? WHERE id = ?`,
			[]any{c.sum, len(c.users), c.campaign}})
}

func rowsOf(row string, n int) string { return strings.Repeat(row+",", n-1) + row }
