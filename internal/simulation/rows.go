package simulation

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// rowsServer is the name of the subscribers' database in points.
const rowsServer = "rows"

// rows is the database of the subscribers' effects: a file of SQLite, which they reach through gates.
type rows struct {
	file string

	mu    sync.Mutex
	until time.Time                // until then nobody reaches it
	dying map[*virtual.Proc]func() // what a process does before its next COMMIT, and dies
}

// path returns the file; "" without subscribers.
func (r *rows) path() string {
	if r == nil {
		return ""
	}
	return r.file
}

// dsn is for the driver. A transaction locks the file when it begins.
func (r *rows) dsn() string {
	u := url.URL{Scheme: "file", OmitHost: true, Path: r.file,
		RawQuery: "_pragma=busy_timeout(2000)&_pragma=synchronous(FULL)&_txlock=immediate"}
	return u.String()
}

// away makes the database unreachable for a while.
func (r *rows) away(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = time.Now().Add(d)
}

// dieInside calls die when a process would commit its next transaction, at most d later. It reports whether it did.
func (r *rows) dieInside(ctx context.Context, p *virtual.Proc, d time.Duration, die func()) bool {
	died := make(chan struct{})
	r.mu.Lock()
	r.dying[p] = func() { die(); close(died) }
	r.mu.Unlock()
	limit := time.NewTimer(d)
	defer limit.Stop()
	select {
	case <-died:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.dying, p)
	return false
}

// reach returns an error instead of a request of p to the database, or after it.
func (r *rows) reach(ctx context.Context, p *virtual.Proc, op string) error {
	r.mu.Lock()
	away, die := time.Now().Before(r.until), r.dying[p]
	if op == "commit" {
		delete(r.dying, p)
	}
	r.mu.Unlock()
	switch {
	case away:
		return errAway
	case die != nil && op == "commit":
		die()
		return virtual.ErrDead
	}
	return p.Reach(ctx, rowsServer, op)
}

// connector connects a process to the database.
type connector struct {
	rows *rows
	proc *virtual.Proc
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return &sqlite.Driver{} }

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.rows.reach(ctx, c.proc, "connect"); err != nil {
		return nil, err
	}
	raw, err := c.Driver().Open(c.rows.dsn())
	if err != nil {
		return nil, err
	}
	full, is := raw.(fullConn)
	if !is {
		return nil, fmt.Errorf("the driver's connection is a %T", raw)
	}
	return &rowsConn{fullConn: full, connector: c}, nil
}

// fullConn is what package sqlite's connections can do.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// rowsConn is a connection of a process. Its transactions fail as those of a server would: before they begin, before
// their COMMIT arrives, or before its answer comes.
type rowsConn struct {
	fullConn
	*connector
	inside bool // a transaction
}

// BeginTx implements driver.ConnBeginTx.
func (c *rowsConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if err := c.rows.reach(ctx, c.proc, "begin"); err != nil {
		return nil, err
	}
	tx, err := c.fullConn.BeginTx(ctx, o)
	c.inside = err == nil
	return &rowsTx{Tx: tx, conn: c, ctx: ctx}, err
}

// alone gates a statement without a transaction.
func (c *rowsConn) alone(ctx context.Context) error {
	if c.inside {
		return nil
	}
	return c.rows.reach(ctx, c.proc, "statement")
}

// ExecContext implements driver.ExecerContext.
func (c *rowsConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.alone(ctx); err != nil {
		return nil, err
	}
	return c.fullConn.ExecContext(ctx, text, args)
}

// QueryContext implements driver.QueryerContext.
func (c *rowsConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.alone(ctx); err != nil {
		return nil, err
	}
	return c.fullConn.QueryContext(ctx, text, args)
}

// rowsTx is a transaction of a rowsConn.
type rowsTx struct {
	driver.Tx
	conn *rowsConn
	ctx  context.Context //nolint:containedctx // driver.Tx has none
}

// Commit implements driver.Tx.
func (t *rowsTx) Commit() error {
	if err := t.conn.rows.reach(t.ctx, t.conn.proc, "commit"); err != nil {
		return errors.Join(err, t.Rollback())
	}
	t.conn.inside = false
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	return t.conn.rows.reach(t.ctx, t.conn.proc, "committed")
}

// Rollback implements driver.Tx.
func (t *rowsTx) Rollback() error {
	t.conn.inside = false
	return t.Tx.Rollback()
}
