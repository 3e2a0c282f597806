package ledger

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed sql/postgres.sql
var postgresSQL string

var postgresDialect = db.Dialect{
	Queries:    db.LoadQueries(db.Standard, postgresSQL),
	Migrations: db.MustLoadSteps(migrationFiles, "migrations/postgres"),
	// The wait for another migration has no time limit.
	Lock: []string{`SET LOCAL lock_timeout = 0`, `SELECT pg_advisory_xact_lock(7166473318640)`,
		`RESET lock_timeout`},
	Pack:      func(columns ...any) ([]any, error) { return columns, nil },
	Copies:    true,
	OrNothing: ` ON CONFLICT (campaign, packet) DO NOTHING`,
	Share:     ` FOR SHARE`,
	Blocks:    `SELECT pg_relation_size('account') / CAST(current_setting('block_size') AS bigint)`,
	Version:   `current_setting('server_version')`,
	// The time when the server received the statement. A worker's own clock starts earlier, before it sends the
	// statement.
	Now: `CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)`,
	Connections: `CAST(current_setting('max_connections') AS bigint)
		- CAST(current_setting('superuser_reserved_connections') AS bigint)
		- COALESCE(CAST(current_setting('reserved_connections', true) AS bigint), 0)`,
	Denied: `SELECT r.name || ' on ' || string_agg(t.name, ', ' ORDER BY t.name)
		FROM unnest($1::text[]) AS t (name), unnest(ARRAY['SELECT', 'INSERT']) AS r (name)
		WHERE NOT has_table_privilege(to_regclass(t.name), r.name)
			AND (r.name = 'SELECT' OR t.name <> 'deployment') GROUP BY r.name ORDER BY r.name`,
}

type postgres struct {
	pool *pgxpool.Pool
}

func openPostgres(ctx context.Context, config *Config) (*postgres, error) {
	pc, err := poolConfig(config)
	if err != nil {
		return nil, err
	}
	p := &postgres{}
	pc.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error { return gate(ctx, conn, config) }
	if p.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("create the connection pool: %w", err)
	}
	conn, err := p.pool.Acquire(ctx)
	if err == nil {
		conn.Release()
		return p, nil
	}
	p.pool.Close()
	var unsafe *db.SettingError
	if errors.As(err, &unsafe) { // no outage: an operator has to change the server, or the DSN
		return nil, err
	}
	return nil, postgresError(fmt.Errorf("get a connection to PostgreSQL: %w", err), false)
}

func poolConfig(config *Config) (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(config.DSN)
	if err != nil {
		// The text of a parse error can contain the password.
		return nil, errors.New("the DSN is not a connection string of PostgreSQL: want " +
			"postgres://user@host:port/database?...")
	}
	setPool(pc, config)
	pc.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error { return renewTLS(cc, config.DSN) }
	return pc, nil
}

// renewTLS reads the DSN's certificates and key again, since they may have been renewed.
func renewTLS(cc *pgx.ConnConfig, dsn string) error {
	now, err := pgx.ParseConfig(dsn)
	if err != nil {
		return errors.New("the files that the DSN names as sslrootcert, sslcert and sslkey can't be read any more")
	}
	cc.TLSConfig, cc.Fallbacks = now.TLSConfig, now.Fallbacks
	return nil
}

// setPool sets every option whose default could hang or hold a lock permanently.
func setPool(pc *pgxpool.Config, config *Config) {
	pc.MaxConns = int32(config.Conns)
	pc.MinConns = 0
	pc.MaxConnLifetime = time.Hour
	pc.MaxConnLifetimeJitter = 5 * time.Minute
	pc.MaxConnIdleTime = 10 * time.Minute
	pc.HealthCheckPeriod = 30 * time.Second
	pc.ConnConfig.ConnectTimeout = config.ConnectTimeout
	pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	pc.ConnConfig.StatementCacheCapacity = 128
	pc.ConnConfig.OnNotice = keepWarning
	params := pc.ConnConfig.RuntimeParams
	params["application_name"] = "hongbao"
	params["lock_timeout"] = millis(config.LockTimeout)
	params["statement_timeout"] = millis(config.Timeout)
	// If a worker stalls within a transaction, the server ends the transaction and releases its locks.
	params["idle_in_transaction_session_timeout"] = millis(config.Timeout)
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// postgresBarrier makes the COMMIT of a transaction that wrote nothing wait for the synchronous standbys, too. Such a
// transaction may have seen a commit that they lack: the wait for them ends with the session that waits. So without the
// barrier a repeat could confirm what a promotion loses.
const postgresBarrier = `SELECT pg_logical_emit_message(true, 'hongbao', '')
	WHERE pg_current_xact_id_if_assigned() IS NULL`

// warningKey is where a connection keeps the last warning of the server.
const warningKey = "warning"

func keepWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warningKey] = n
	}
}

const postgresAsk = `SELECT current_setting('server_version_num')::integer, pg_is_in_recovery(),
	current_setting('default_transaction_read_only'), current_setting('synchronous_commit'),
	current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
	` + timeoutSetting + `'lock_timeout'), ` + timeoutSetting + `'statement_timeout'),
	` + timeoutSetting + `'idle_in_transaction_session_timeout')`

// timeoutSetting begins a call that returns a timeout in milliseconds. It is closed by the setting's name.
const timeoutSetting = `(SELECT CAST(setting AS bigint) FROM pg_settings WHERE name = `

func (s *postgresSettings) scan(row db.Scan) error {
	return row(&s.version, &s.recovery, &s.readOnly, &s.commit, &s.fsync, &s.fullPage, &s.standbys,
		&s.lockWait, &s.statement, &s.idle)
}

// gate checks every new connection, because a failover may lead to a standby, or to a server with unsafe settings.
func gate(ctx context.Context, conn *pgx.Conn, config *Config) error {
	var s postgresSettings
	if err := s.scan(conn.QueryRow(ctx, postgresAsk).Scan); err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	return db.Refuse(append(s.problems(), s.forgotten(config)...), config.UnsafeAllow)
}

func (p *postgres) Close() error {
	p.pool.Close()
	return nil
}

func (p *postgres) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return p.transact(ctx, &postgresTxn{begin: begins("read committed")}, fn)
}

func (p *postgres) Read(ctx context.Context, fn func(db.Txn) error) error {
	t := &postgresTxn{begin: begins("repeatable read read only"), reads: true}
	return p.transact(ctx, t, func(t db.Txn) ([]db.Stmt, error) { return nil, fn(t) })
}

// begins returns the statements that begin a transaction. They ask whether the server is still the primary, because a
// role change may leave connections open. A transaction that only reads needs this, too: keys, pauses and campaigns
// decide what happens next, and a former primary has old ones.
func begins(mode string) []db.Stmt {
	return []db.Stmt{{SQL: "begin isolation level " + mode},
		{SQL: `SELECT pg_is_in_recovery() OR CAST(current_setting('default_transaction_read_only') AS boolean)`,
			Row: func(s db.Scan) error {
				var not bool
				if err := s(&not); err != nil || !not {
					return err
				}
				return errNotPrimary
			}}}
}

func (p *postgres) transact(ctx context.Context, t *postgresTxn, fn func(db.Txn) ([]db.Stmt, error)) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return postgresError(fmt.Errorf("get a connection to PostgreSQL: %w", err), false)
	}
	// Release closes a connection that is still in a transaction, so the server rolls back.
	defer conn.Release()
	t.conn = conn.Conn()
	last, err := fn(t)
	if err == nil {
		err = t.commit(ctx, last)
	}
	if err == nil {
		return nil
	}
	closed := conn.Conn().IsClosed()
	if !closed {
		t.rollback(ctx)
	}
	// The pool's other connections probably lead to the same server, so drop all of them at once.
	if closed && ctx.Err() == nil || notPrimary(err) {
		p.pool.Reset()
	}
	return err
}

// postgresTxn sends its BEGIN together with its first statements, in one round trip.
type postgresTxn struct {
	conn  *pgx.Conn
	begin []db.Stmt // statements that begin the transaction; empty once sent
	reads bool      // it only reads
	sent  bool      // COMMIT may have reached the server
}

func (t *postgresTxn) RefuseNewer(_ context.Context, sql string) error {
	t.begin = append(t.begin, db.Stmt{SQL: sql})
	return nil
}

func (t *postgresTxn) Run(ctx context.Context, stmts ...db.Stmt) error {
	if len(stmts) == 1 && stmts[0].Rows > 0 {
		return t.copyGrants(ctx, &stmts[0])
	}
	b := &pgx.Batch{}
	stmts, t.begin = append(t.begin, stmts...), nil
	for _, s := range stmts {
		b.Queue(s.SQL, s.Args...)
	}
	r := t.conn.SendBatch(ctx, b)
	for _, s := range stmts {
		delete(t.conn.PgConn().CustomData(), warningKey) // so that it is a warning of this statement
		tag, err := answer(&s, r)
		if err != nil {
			err = fmt.Errorf("%.60s...: %w", s.SQL, err)
			_ = r.Close() // returns the same error again
			return postgresError(err, t.sent)
		}
		if s.Changed != nil {
			*s.Changed = tag.RowsAffected()
		}
	}
	if err := r.Close(); err != nil {
		return postgresError(err, t.sent)
	}
	return nil
}

// copyGrants copies rows into table grants.
func (t *postgresTxn) copyGrants(ctx context.Context, s *db.Stmt) error {
	if len(t.begin) > 0 {
		if err := t.Run(ctx); err != nil {
			return err
		}
	}
	tag, err := t.conn.PgConn().CopyFrom(ctx, bytes.NewReader(copyRows(s)), "COPY grants ("+s.SQL+") FROM STDIN BINARY")
	if err != nil {
		err = postgresError(fmt.Errorf("copy %d grants: %w", s.Rows, err), t.sent)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "0A000" { // row-level security refuses COPY; the next try uses INSERT
			err = hongbao.Outagef(hongbao.ClassTransient, "%w: %w", db.ErrAgain, err)
		}
		return err
	}
	*s.Changed = tag.RowsAffected()
	return nil
}

// copyRows returns the rows in COPY's binary format. pgx can do this too, but chooses an encoding for each value, which
// took a quarter of a worker's time.
func copyRows(s *db.Stmt) []byte {
	const head = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no flags, no header extension
	b := append(make([]byte, 0, s.Rows*160), head...)
	for i := range s.Rows {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s.Args)))
		for _, column := range s.Args {
			switch column := column.(type) {
			case []string:
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(column[i]))), column[i]...)
			case []int32:
				b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(column[i]))
			case []int64:
				b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(column[i]))
			}
		}
	}
	return append(b, 0xff, 0xff) // no more rows
}

// answer reads the result of the statement, which is the next one of a batch.
func answer(s *db.Stmt, r pgx.BatchResults) (pgconn.CommandTag, error) {
	if s.Row == nil {
		return r.Exec()
	}
	rows, err := r.Query()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := s.Row(rows.Scan); err != nil {
			return pgconn.CommandTag{}, err
		}
	}
	return rows.CommandTag(), rows.Err()
}

func (t *postgresTxn) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	if len(t.begin) > 0 {
		if err := t.Run(ctx); err != nil {
			return err
		}
	}
	rows, err := t.conn.Query(ctx, sql, args...)
	if err != nil {
		return postgresError(fmt.Errorf("%.60s...: %w", sql, err), false)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return postgresError(fmt.Errorf("%.60s...: %w", sql, err), false)
	}
	return nil
}

func (t *postgresTxn) commit(ctx context.Context, last []db.Stmt) error {
	if len(t.begin) > 0 && len(last) == 0 {
		return nil
	}
	t.sent = true
	if !t.reads {
		last = append(last, db.Stmt{SQL: postgresBarrier})
	}
	if err := t.Run(ctx, append(last, db.Stmt{SQL: "commit"})...); err != nil {
		return err
	}
	if w, ok := t.conn.PgConn().CustomData()[warningKey].(*pgconn.Notice); ok {
		return hongbao.Outagef(hongbao.ClassUnknown,
			"PostgreSQL has committed, but warned that a failover may lose it: %s (%s)", w.Message, w.Code)
	}
	return nil
}

// rollback ends the transaction, so that the pool can reuse the connection.
func (t *postgresTxn) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if t.conn.PgConn().TxStatus() != 'I' {
		_, _ = t.conn.Exec(ctx, "rollback") // a connection that fails here is closed by Release
	}
}
