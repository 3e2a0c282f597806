package ledger

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// recalled is what the ledger has of some packets.
type recalled struct {
	paid    map[packetKey]tables.StoredGrant
	aside   asides
	pending map[packetKey]payment.Pending
}

// recall reads what the ledger has of the items' packets.
func (l *Ledger) recall(ctx context.Context, t db.Txn, items []item) (r recalled, err error) {
	r.pending = make(map[packetKey]payment.Pending)
	if r.paid, err = l.readGrants(ctx, t, items); err != nil {
		return r, err
	}
	if r.aside, err = l.readAside(ctx, t, items); err != nil {
		return r, err
	}
	rows, err := l.readPending(ctx, t, items)
	for _, p := range rows {
		r.pending[keyOf(&p.Grant)] = p
	}
	return r, err
}

// asides are grants in quarantine, by packet.
type asides map[packetKey][]model.Quarantined

// of returns the row with the same facts as a grant; nil if there is none.
func (a asides) of(g *hongbao.Grant) *model.Quarantined {
	rows := a[keyOf(g)]
	for i := range rows {
		if difference(g, &rows[i].Grant) == "" {
			return &rows[i]
		}
	}
	return nil
}

// paid returns the row whose grant the reserve has paid to the same user, whatever its event; nil if there is none.
func (a asides) paid(g *hongbao.Grant) *model.Quarantined {
	rows := a[keyOf(g)]
	for i := range rows {
		if rows[i].Grant.User == g.User && wasPaid(&rows[i]) {
			return &rows[i]
		}
	}
	return nil
}

// undecided returns the items about which no operator has decided. A decided grant must not be settled: it is void, or
// paid from the reserve. differ are other events of grants that the reserve has paid.
func (a asides) undecided(items []item) (left, differ []item) {
	if len(a) == 0 {
		return items, nil
	}
	for _, it := range items {
		if q := a.of(it.grant); q != nil && !q.Resolved.IsZero() {
			continue
		}
		if q := a.paid(it.grant); q != nil {
			it.reason = difference(it.grant, &q.Grant)
			differ = append(differ, it)
		} else {
			left = append(left, it)
		}
	}
	return left, differ
}

// readAside returns the grants in quarantine that have one of the items' packets. It sets only the grant, the reason,
// the time of the decision, and the decision.
func (l *Ledger) readAside(ctx context.Context, t db.Txn, items []item) (asides, error) {
	found := make(asides)
	return found, t.Query(ctx, l.tables.Dialect.ReadQuarantine, []any{keysOf(items)}, func(s db.Scan) error {
		var q model.Quarantined
		var reason string
		var shard, at, resolved int64
		g := &q.Grant
		err := s(&g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at, &resolved,
			&q.Resolution, &reason)
		g.Shard, g.Time, q.Reason = int(shard), time.UnixMilli(at).UTC(), model.QuarantineReason(reason)
		q.Resolved = tables.At(resolved)
		found[keyOf(g)] = append(found[keyOf(g)], q)
		return err
	})
}

// asideView is what a transaction has read about the quarantine of its campaigns. A transaction that pays reads it
// first, skips what is decided, and ends with unchanged. Decide locks the campaign before it looks for a payment. So of
// a payment and a decision at the same time, the later one sees the other.
type asideView []viewedCampaign

type viewedCampaign struct {
	id      string
	items   []item
	rows    int64 // 1 if any of the campaign's grants is in quarantine
	decided int64 // number of its grants about which an operator has decided
}

// asideViewOf returns the view of sorted items.
func asideViewOf(items []item) (v asideView) {
	for first := 0; first < len(items); {
		last := first
		for last < len(items) && items[last].grant.Campaign == items[first].grant.Campaign {
			last++
		}
		v = append(v, viewedCampaign{id: items[first].grant.Campaign, items: items[first:last]})
		first = last
	}
	return v
}

// countDecided counts the decided grants of campaign $1.
const countDecided = `(SELECT COUNT(*) FROM quarantine WHERE campaign = $1 AND resolved_at > 0)`

// queries returns the queries that fill the view.
func (v asideView) queries() []db.Stmt {
	stmts := make([]db.Stmt, len(v))
	for i := range v {
		c := &v[i]
		stmts[i] = db.Stmt{SQL: `SELECT ` + countDecided + `,
			CASE WHEN EXISTS (SELECT 1 FROM quarantine WHERE campaign = $1) THEN 1 ELSE 0 END`, Args: []any{c.id},
			Row: func(s db.Scan) error { return s(&c.decided, &c.rows) }}
	}
	return stmts
}

// read returns the grants in quarantine that have one of the items' packets. Few campaigns have any, so it seldom runs
// a query.
func (v asideView) read(ctx context.Context, l *Ledger, t db.Txn) (asides, error) {
	var suspects []item
	for i := range v {
		if v[i].rows > 0 {
			suspects = append(suspects, v[i].items...)
		}
	}
	if len(suspects) == 0 {
		return nil, nil
	}
	return l.readAside(ctx, t, suspects)
}

// unchanged returns statements that fail with db.ErrAgain if an operator has decided about any grant of the campaigns since
// the view was read. They must come after the statements that lock the campaigns' rows. Like shardView.unchanged each
// inserts a second row, here of the campaign's pool.
func (v asideView) unchanged(d *db.Dialect) (stmts []db.Stmt) {
	if d.Share == "" {
		return nil
	}
	for i := range v {
		stmts = append(stmts, db.Stmt{SQL: `INSERT INTO account (id, kind, currency, balance)
			SELECT id, kind, currency, balance FROM account WHERE id = $2 AND $3 <> ` + countDecided,
			Args: []any{v[i].id, tables.PoolAccount(v[i].id), v[i].decided}})
	}
	return stmts
}
