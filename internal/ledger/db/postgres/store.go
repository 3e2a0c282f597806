package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

type store struct {
	pool *pgxpool.Pool
}

// barrier makes the COMMIT of a transaction that wrote nothing wait for the synchronous standbys, too. Such a
// transaction may have seen a commit that they lack: the wait for them ends with the session that waits. So without the
// barrier a repeat could confirm what a promotion loses.
const barrier = `SELECT pg_logical_emit_message(true, 'hongbao', '')
	WHERE pg_current_xact_id_if_assigned() IS NULL`

// warningKey is where a connection keeps the last warning of the server.
const warningKey = "warning"

func keepWarning(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		conn.CustomData()[warningKey] = n
	}
}

// Close waits for running transactions, and closes all connections.
func (p *store) Close() error {
	p.pool.Close()
	return nil
}

// Write runs a transaction at READ COMMITTED.
func (p *store) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return p.transact(ctx, &txn{begin: begins("read committed")}, fn)
}

// Read runs a transaction on one snapshot.
func (p *store) Read(ctx context.Context, fn func(db.Txn) error) error {
	t := &txn{begin: begins("repeatable read read only"), reads: true}
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

func (p *store) transact(ctx context.Context, t *txn, fn func(db.Txn) ([]db.Stmt, error)) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return classify(fmt.Errorf("get a connection to PostgreSQL: %w", err), false)
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

// txn sends its BEGIN together with its first statements, in one round trip.
type txn struct {
	conn  *pgx.Conn
	begin []db.Stmt // statements that begin the transaction; empty once sent
	reads bool      // it only reads
	sent  bool      // COMMIT may have reached the server
}

// RefuseNewer adds a statement to those that begin the transaction: a division by zero, if the schema is too new.
func (t *txn) RefuseNewer(_ context.Context, sql string) error {
	t.begin = append(t.begin, db.Stmt{SQL: sql})
	return nil
}

// Run sends the statements in one round trip.
func (t *txn) Run(ctx context.Context, stmts ...db.Stmt) error {
	if len(stmts) == 1 && strings.HasPrefix(stmts[0].SQL, "COPY ") {
		return t.copyGrants(ctx, &stmts[0])
	}
	b := &pgx.Batch{}
	stmts, t.begin = append(t.begin, stmts...), nil
	for _, s := range stmts {
		b.Queue(s.SQL, db.AsColumns(s.Args)...)
	}
	r := t.conn.SendBatch(ctx, b)
	for _, s := range stmts {
		delete(t.conn.PgConn().CustomData(), warningKey) // so that it is a warning of this statement
		tag, err := answer(&s, r)
		if err != nil {
			err = fmt.Errorf("%.60s...: %w", s.SQL, err)
			_ = r.Close() // returns the same error again
			return classify(err, t.sent)
		}
		if s.Changed != nil {
			*s.Changed = tag.RowsAffected()
		}
	}
	if err := r.Close(); err != nil {
		return classify(err, t.sent)
	}
	return nil
}

// copyGrants executes Queries.InsertGrants.
func (t *txn) copyGrants(ctx context.Context, s *db.Stmt) error {
	if len(t.begin) > 0 {
		if err := t.Run(ctx); err != nil {
			return err
		}
	}
	tag, err := t.conn.PgConn().CopyFrom(ctx, bytes.NewReader(copyRows(s)), s.SQL)
	if err != nil {
		err = classify(fmt.Errorf("copy grants: %w", err), t.sent)
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "0A000" { // row-level security refuses COPY; the next try uses INSERT
			err = hongbao.Outagef(hongbao.ClassTransient, "%w: %w", db.ErrAgain, err)
		}
		return err
	}
	*s.Changed = tag.RowsAffected()
	return nil
}

// copyRows returns the rows of a table, each with the batch, in COPY's binary format. pgx can do this too, but chooses
// an encoding for each value, which took a quarter of a worker's time.
func copyRows(s *db.Stmt) []byte {
	const head = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" // no flags, no header extension
	table, _ := s.Args[0].(db.Table)
	batch, _ := s.Args[1].(int64)
	rows := table.Rows()
	b := append(make([]byte, 0, rows*160), head...)
	for i := range rows {
		b = binary.BigEndian.AppendUint16(b, uint16(len(table)+1))
		for _, column := range table {
			switch column := column.(type) {
			case []string:
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(column[i]))), column[i]...)
			case []int32:
				b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(column[i]))
			case []int64:
				b = appendInt64(b, column[i])
			}
		}
		b = appendInt64(b, batch)
	}
	return append(b, 0xff, 0xff) // no more rows
}

func appendInt64(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(n))
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

// Query calls row for each row of the result.
func (t *txn) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	if len(t.begin) > 0 {
		if err := t.Run(ctx); err != nil {
			return err
		}
	}
	rows, err := t.conn.Query(ctx, sql, db.AsColumns(args)...)
	if err != nil {
		return classify(fmt.Errorf("%.60s...: %w", sql, err), false)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classify(fmt.Errorf("%.60s...: %w", sql, err), false)
	}
	return nil
}

func (t *txn) commit(ctx context.Context, last []db.Stmt) error {
	if len(t.begin) > 0 && len(last) == 0 {
		return nil
	}
	t.sent = true
	if !t.reads {
		last = append(last, db.Stmt{SQL: barrier})
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
func (t *txn) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if t.conn.PgConn().TxStatus() != 'I' {
		_, _ = t.conn.Exec(ctx, "rollback") // a connection that fails here is closed by Release
	}
}
