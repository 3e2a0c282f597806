package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

type store struct {
	writer, readers *sql.DB
	gate            Gate
}

// Close waits for running transactions, and closes the file.
func (s *store) Close() error {
	return errors.Join(s.readers.Close(), s.writer.Close())
}

// Write runs a transaction on the one connection that writes.
func (s *store) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return s.transact(ctx, s.writer, "BEGIN IMMEDIATE", fn)
}

// Read runs a transaction on one snapshot. It does not wait for the one that writes.
func (s *store) Read(ctx context.Context, fn func(db.Txn) error) error {
	return s.transact(ctx, s.readers, "BEGIN", func(t db.Txn) ([]db.Stmt, error) { return nil, fn(t) })
}

func (s *store) transact(ctx context.Context, pool *sql.DB, begin string, fn func(db.Txn) ([]db.Stmt, error)) error {
	if err := s.gate(ctx, GateBegin); err != nil {
		return classify(err, false)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return classify(fmt.Errorf("get a connection: %w", err), false)
	}
	defer conn.Close()
	t := &txn{conn: conn}
	if err := t.Run(ctx, db.Stmt{SQL: begin}); err != nil {
		t.rollback(ctx) // if ctx ended meanwhile, SQLite may have begun it nevertheless
		return err
	}
	last, err := fn(t)
	if err == nil {
		err = t.Run(ctx, last...)
	}
	if err == nil {
		var committed bool
		if committed, err = s.commit(ctx, conn); committed {
			return err
		}
	}
	t.rollback(ctx)
	return err
}

// commit reports whether the transaction is committed, which can be true with an error.
func (s *store) commit(ctx context.Context, conn *sql.Conn) (committed bool, err error) {
	if err = s.gate(ctx, GateCommit); err == nil {
		if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
			committed = true
			err = s.gate(ctx, GateAnswer)
		}
	}
	if err != nil {
		err = classify(fmt.Errorf("commit: %w", err), true)
	}
	return committed, err
}

type txn struct {
	conn *sql.Conn
}

// RefuseNewer asks at once, because a query of SQLite is no round trip.
func (t *txn) RefuseNewer(ctx context.Context, sql string) error {
	return t.Query(ctx, sql, nil, func(db.Scan) error {
		return hongbao.Outagef(hongbao.ClassTransient, "SQLite: %w", db.ErrNewerSchema)
	})
}

// Run executes the statements one by one.
func (t *txn) Run(ctx context.Context, stmts ...db.Stmt) error {
	for _, s := range stmts {
		if s.Row != nil {
			if err := t.Query(ctx, s.SQL, s.Args, s.Row); err != nil {
				return err
			}
			continue
		}
		changed, err := t.exec(ctx, &s)
		if err != nil {
			return err
		}
		if s.Changed != nil {
			*s.Changed = changed
		}
	}
	return nil
}

func (t *txn) exec(ctx context.Context, s *db.Stmt) (changed int64, err error) {
	if strings.Contains(s.SQL, "VALUES (?") {
		changed, err = t.execRows(ctx, s)
	} else {
		var args []any
		if args, err = db.AsJSON(s.Args); err != nil {
			return 0, err
		}
		var r sql.Result
		if r, err = t.conn.ExecContext(ctx, s.SQL, args...); err == nil {
			changed, err = r.RowsAffected()
		}
	}
	if err != nil {
		return 0, classify(fmt.Errorf("%.60s...: %w", s.SQL, err), false)
	}
	return changed, nil
}

// rowsAtOnce is how many rows a statement has. More rows need fewer calls, but take SQLite more time to compile.
const rowsAtOnce = 100

// execRows executes a statement that has the placeholders of one row, for each row of a table, rowsAtOnce at once. The
// arguments after the table are the last ones of each row.
func (t *txn) execRows(ctx context.Context, s *db.Stmt) (changed int64, err error) {
	table, _ := s.Args[0].(db.Table)
	rows := table.Rows()
	for from := 0; from < rows && err == nil; {
		size := min(rowsAtOnce, rows-from)
		times := (rows - from) / size
		var n int64
		n, err = t.execSets(ctx, s, from, size, times)
		from, changed = from+size*times, changed+n
	}
	return changed, err
}

// execSets compiles a statement for size rows, and executes it repeatedly, each time for the next size rows.
func (t *txn) execSets(ctx context.Context, s *db.Stmt, from, size, times int) (changed int64, err error) {
	before, row, _ := strings.Cut(s.SQL, "VALUES ")
	row, after, _ := strings.Cut(row, "\n")
	prepared, err := t.conn.PrepareContext(ctx,
		before+"VALUES "+strings.Repeat(row+", ", size-1)+row+"\n"+after)
	if err != nil {
		return 0, err
	}
	defer prepared.Close()
	table, _ := s.Args[0].(db.Table)
	args := make([]any, 0, size*(len(table)+len(s.Args)-1))
	for range times {
		args = args[:0]
		for i := from; i < from+size; i++ {
			args = append(table.AppendRow(args, i), s.Args[1:]...)
		}
		r, err := prepared.ExecContext(ctx, args...)
		if err != nil {
			return 0, err
		}
		n, err := r.RowsAffected()
		if err != nil {
			return 0, err
		}
		from, changed = from+size, changed+n
	}
	return changed, nil
}

// Query calls row for each row of the result.
func (t *txn) Query(ctx context.Context, query string, args []any, row func(db.Scan) error) error {
	args, err := db.AsJSON(args)
	if err != nil {
		return err
	}
	rows, err := t.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return classify(fmt.Errorf("%.60s...: %w", query, err), false)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classify(fmt.Errorf("%.60s...: %w", query, err), false)
	}
	return nil
}

// rollback ends the transaction, so that the pool can reuse the connection. ROLLBACK may fail because SQLite has
// already rolled back, so its error is ignored. If the connection can't begin a transaction afterwards, it is
// discarded.
func (t *txn) rollback(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = t.conn.ExecContext(ctx, "ROLLBACK")
	for _, probe := range []string{"BEGIN", "ROLLBACK"} {
		if _, err := t.conn.ExecContext(ctx, probe); err != nil {
			_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
			return
		}
	}
}
