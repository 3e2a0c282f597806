package ledger

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// sumRows is the page size, in rows, of reads over a whole table.
const sumRows = 10_000

// paged is a transaction in which each query has its own time limit.
type paged struct {
	db.Txn
	limit time.Duration
}

// Query is that of the transaction, with the limit.
func (p paged) Query(ctx context.Context, sql string, args []any, row func(db.Scan) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	return p.Txn.Query(ctx, sql, args, row)
}

// readPages runs fn on one snapshot. Config.Timeout bounds each query, rather than all of them together, so each query
// must read a bounded number of rows.
func (l *Ledger) readPages(ctx context.Context, fn func(context.Context, db.Txn) error) error {
	if begun, err := togetherOf(ctx).read(ctx, fn); begun {
		return err
	}
	return l.store.Read(ctx, func(t db.Txn) error { return fn(ctx, paged{t, l.config.Timeout}) })
}

// paidGrant has the columns of table grants that sums need.
type paidGrant struct {
	packet, seq int64
	shard       int
	user        string
	amount      hongbao.Amount
}

// eachPage repeats a query until a page has fewer than sumRows rows. row must advance the values that args returns.
func eachPage(ctx context.Context, t db.Txn, sql string, args func() []any, row func(db.Scan) error) error {
	for {
		rows := 0
		err := t.Query(ctx, sql, append(args(), int64(sumRows)), func(s db.Scan) error {
			rows++
			return row(s)
		})
		if err != nil || rows < sumRows {
			return err
		}
	}
}

// cursor iterates over the rows of an ordered query, in pages of sumRows.
type cursor[T any] struct {
	// page returns the rows that follow the given row; the zero row stands for the beginning.
	page func(after T) ([]T, error)
	rows []T
	last T
	end  bool
}

// next returns the next row; false after the last one.
func (c *cursor[T]) next() (row T, ok bool, err error) {
	if len(c.rows) == 0 && !c.end {
		c.rows, err = c.page(c.last)
		c.end = len(c.rows) < sumRows
	}
	if err != nil || len(c.rows) == 0 {
		return row, false, err
	}
	c.last, c.rows = c.rows[0], c.rows[1:]
	return c.last, true, nil
}

// selectPaid reads the columns that scanPaid scans, of up to $3 grants of a campaign after a packet.
const selectPaid = `SELECT packet, user_id, amount, shard, seq FROM grants WHERE campaign = $1 AND packet > $2
	ORDER BY packet LIMIT $3`

func scanPaid(s db.Scan) (g paidGrant, err error) {
	var shard int64
	err = s(&g.packet, &g.user, &g.amount, &shard, &g.seq)
	g.shard = int(shard)
	return g, err
}

// eachPaid calls fn for every grant of a campaign after a packet, in the order of the packets.
func eachPaid(ctx context.Context, t db.Txn, campaign string, after int64, fn func(*paidGrant) error) error {
	return eachPage(ctx, t, selectPaid, func() []any { return []any{campaign, after} }, func(s db.Scan) error {
		g, err := scanPaid(s)
		if err != nil {
			return err
		}
		after = g.packet
		return fn(&g)
	})
}
