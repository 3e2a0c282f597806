package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

type store struct {
	db      *sql.DB
	timeout time.Duration
}

// Close waits for running transactions, and closes all connections.
func (m *store) Close() error { return m.db.Close() }

// Each transaction sets its isolation level, so no setting of the server or of a connection pooler can change it.
//
// A server that has turned read-only refuses START TRANSACTION READ WRITE, unless the user has a right on the server.
// So a transaction that only reads begins with an empty one: keys, pauses and campaigns decide what happens next, and a
// former primary has old ones.
const (
	beginWrite = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\nSTART TRANSACTION READ WRITE;\n"
	beginRead  = "START TRANSACTION READ WRITE;\nCOMMIT;\n" +
		"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\nSTART TRANSACTION READ ONLY;\n"
)

// Write runs a transaction at READ COMMITTED.
func (m *store) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return m.transact(ctx, beginWrite, fn)
}

// Read runs a transaction on one snapshot.
func (m *store) Read(ctx context.Context, fn func(db.Txn) error) error {
	return m.transact(ctx, beginRead, func(t db.Txn) ([]db.Stmt, error) { return nil, fn(t) })
}

func (m *store) transact(ctx context.Context, begin string, fn func(db.Txn) ([]db.Stmt, error)) error {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return classify(fmt.Errorf("get a connection to MySQL: %w", err), false)
	}
	defer conn.Close()
	t := &txn{conn: conn, begin: begin}
	last, err := fn(t)
	if err == nil {
		err = t.commit(ctx, last)
	}
	if err != nil {
		t.rollback(ctx, err)
	}
	return err
}

// txn sends its BEGIN together with its first statement, in one round trip.
type txn struct {
	conn  *sql.Conn
	begin string // empty once it was sent
	// rows says that begin ends with a statement that returns rows.
	rows bool
	sent bool // COMMIT may have reached the server
}

// RefuseNewer adds a statement to those that begin the transaction. It fails if the schema is too new.
func (t *txn) RefuseNewer(_ context.Context, sql string) error {
	t.begin, t.rows = t.begin+sql+";\n", true
	return nil
}

// piece is about how many bytes are sent at once. A longer single statement is sent as a whole.
const piece = 1 << 20

// Run sends the statements as one text in one round trip, or as several texts if they are long. Each statement that
// returns rows takes a round trip of its own.
func (t *txn) Run(ctx context.Context, stmts ...db.Stmt) (err error) {
	stmts = slices.Clone(stmts)
	for i := range stmts {
		if stmts[i].Args, err = db.AsJSON(stmts[i].Args); err != nil {
			return err
		}
	}
	for len(stmts) > 0 {
		if s := &stmts[0]; s.Row != nil {
			if err := t.Query(ctx, s.SQL, s.Args, s.Row); err != nil {
				return err
			}
			stmts = stmts[1:]
			continue
		}
		n, size := 0, 0
		for n < len(stmts) && stmts[n].Row == nil && (n == 0 || size < piece) {
			size += len(stmts[n].SQL)
			for _, a := range stmts[n].Args {
				if s, ok := a.(string); ok {
					size += len(s)
				}
			}
			n++
		}
		if err := t.send(ctx, stmts[:n]); err != nil {
			return err
		}
		stmts = stmts[n:]
	}
	return nil
}

const commitSQL = "COMMIT"

func (t *txn) send(ctx context.Context, stmts []db.Stmt) error {
	var text strings.Builder
	var args []any
	skip := strings.Count(t.begin, ";\n")
	text.WriteString(t.begin)
	for i, s := range stmts {
		m := numbered(s.SQL)
		if i > 0 {
			text.WriteString(";\n")
		}
		text.WriteString(m.text)
		args = append(args, m.args(s.Args)...)
		t.sent = t.sent || s.SQL == commitSQL
	}
	t.begin = ""
	rows, err := exec(ctx, t.conn, text.String(), args)
	if err == nil && len(rows) != skip+len(stmts) {
		err = fmt.Errorf("%d answers to %d statements", len(rows), skip+len(stmts))
	}
	if err != nil {
		return classify(fmt.Errorf("%d statements from %.60s...: %w", len(stmts), stmts[0].SQL, err), t.sent)
	}
	for i, s := range stmts {
		if s.Changed != nil {
			*s.Changed = rows[skip+i]
		}
	}
	return nil
}

// exec executes text, and returns the number of changed rows of each of its statements. database/sql does not
// report these numbers.
func exec(ctx context.Context, conn *sql.Conn, text string, args []any) (rows []int64, err error) {
	values := make([]driver.NamedValue, len(args))
	for i, a := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(a)
		if err != nil {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "argument %d: %w", i+1, err)
		}
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	err = conn.Raw(func(raw any) error {
		c, err := rawConnOf(raw)
		if err != nil {
			return err
		}
		result, err := c.ExecContext(ctx, text, values)
		if all, ok := result.(mysql.Result); ok && err == nil {
			rows = all.AllRowsAffected()
		}
		return err
	})
	return rows, err
}

// Query calls row for each row of the result.
func (t *txn) Query(ctx context.Context, query string, args []any, row func(db.Scan) error) error {
	args, err := db.AsJSON(args)
	if err != nil {
		return err
	}
	m := numbered(query)
	text := strings.Join([]string{t.begin, m.text}, "")
	passOver := t.rows && t.begin != ""
	t.begin = ""
	rows, err := t.conn.QueryContext(ctx, text, m.args(args)...)
	if err != nil {
		return classify(fmt.Errorf("%.60s...: %w", query, err), false)
	}
	defer rows.Close()
	if passOver { // read the rows with Next: if NextResultSet fails on them, the driver's Close hangs
		for rows.Next() {
			continue
		}
		if !rows.NextResultSet() {
			return classify(fmt.Errorf("%.60s...: %w", text, cmp.Or(rows.Err(), io.ErrUnexpectedEOF)), false)
		}
	}
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

func (t *txn) commit(ctx context.Context, last []db.Stmt) error {
	if t.begin != "" && len(last) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil { // check before sending: afterwards the outcome would be unknown
		return classify(fmt.Errorf("commit: %w", err), false)
	}
	return t.Run(ctx, append(last, db.Stmt{SQL: commitSQL})...)
}

// rollback ends the transaction, so that the pool can reuse the connection. It discards the connection if that fails,
// or if the server has turned read-only: the next connection finds the new primary.
func (t *txn) rollback(ctx context.Context, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := t.conn.ExecContext(ctx, "ROLLBACK")
	if err != nil || isReadOnly(cause) {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}
