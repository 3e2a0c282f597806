package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Table pending has the credits that a remote balance system may have booked. A row is written before the first
// request. It is deleted in the transaction that settles the grant, or once it is certain that nothing was booked.

// Begin records durably, outside of Redis, that the caller is about to request credits from a remote. batch must not
// contain a packet twice.
//
// held has the grants that the ledger has for these packets: in table grants, or in quarantine with the same facts.
// Only a replay may request their credits, except those with Aside, which no caller may request. before has the credits
// that were pending already and may be booked; Begin has taken over those with Taken. All other grants are pending from
// now on, and certainly no credit was requested for them.
//
// If a fence leaves out a grant that is neither held nor pending, Begin refuses all grants with ErrFenced. After an
// error nothing has changed, unless the class is Unknown.
func (s *Settler) Begin(ctx context.Context, call payment.CreditCall, batch hongbao.Batch) (held []payment.AlreadyInLedger,
	before []payment.Pending, err error) {
	grants := batch.Grants
	if len(grants) > MaxBatch {
		return nil, nil, hongbao.Errorf(hongbao.ClassPermanent,
			"record %d credits as pending: want %d at most", len(grants), MaxBatch)
	}
	b := &beginCall{Ledger: s.config.Ledger, call: call, items: itemsOf(grants, batch.Epoch)}
	err = b.tables.Write(ctx, b.run)
	if errors.Is(err, db.ErrOverdraw) {
		err = hongbao.Errorf(hongbao.ClassTransient, "a campaign was refunded meanwhile: %w", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("record %d credits as pending in the ledger: %w", len(grants), err)
	}
	return b.found, b.before, nil
}

// itemsOf returns the grants as items, in the order in which every worker locks. epoch is that of their batch; 0 if the
// caller did not read them from Redis.
func itemsOf(grants []hongbao.Grant, epoch int64) []item {
	items := make([]item, len(grants))
	for i := range grants {
		items[i] = item{index: i, grant: &grants[i], epoch: epoch}
	}
	sortItems(items)
	return items
}

// beginCall is one call of Begin.
type beginCall struct {
	*Ledger
	call   payment.CreditCall
	items  []item
	tries  int
	found  []payment.AlreadyInLedger
	before []payment.Pending
}

// run is the transaction of Begin. It inserts the items that no fence concerns, then reads the pending rows, and then
// the grants. In this order it sees what other workers record or forget meanwhile.
func (b *beginCall) run(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
	b.found, b.before = nil, nil
	seen, aside := shardViewOf(b.items), asideViewOf(b.items)
	if err := t.Run(ctx, append(seen.queries(), aside.queries()...)...); err != nil {
		return nil, err
	}
	behind, err := b.behindFences(ctx, t, seen, b.items, true)
	if err != nil {
		return nil, err
	}
	for _, it := range behind.fencedOff {
		return nil, it.event().fencedError(it.fence)
	}
	inserted, err := b.insert(ctx, t, without(without(b.items, behind.paid), behind.aside))
	before := b.tries > 0 || inserted < int64(len(b.items)) // some rows may have existed before
	b.tries++
	if err != nil {
		return nil, err
	}
	var rows []payment.Pending
	if before {
		if rows, err = b.readPending(ctx, t, b.items); err != nil {
			return nil, err
		}
	}
	out, err := b.readHeld(ctx, t, aside)
	if err != nil {
		return nil, err
	}
	if before {
		if err := b.takeOver(ctx, t, rows, out); err != nil {
			return nil, err
		}
	}
	return slices.Concat(b.last(out), aside.unchanged(b.tables.Dialect), seen.unchanged(b.tables.Dialect)), nil
}

// insert inserts the pending rows that do not exist yet, and returns their number.
func (b *beginCall) insert(ctx context.Context, t db.Txn, items []item) (inserted int64, err error) {
	var since int64
	if b.call.SinceGrant {
		since = 1
	}
	sql := b.tables.Dialect.InsertPending
	if b.tries > 0 {
		sql = b.tables.Dialect.InsertPendingAgain
	}
	err = t.Run(ctx, db.Stmt{SQL: sql, Args: []any{columnsOf(items), b.call.Owner, b.call.Batch, since},
		Changed: &inserted})
	return inserted, err
}

// last returns the statements that are sent with COMMIT. They delete the pending rows of packets that the ledger has,
// and refuse refunded campaigns.
func (b *beginCall) last(out map[packetKey]bool) (stmts []db.Stmt) {
	if len(out) > 0 {
		stmts = b.deletePending(slices.DeleteFunc(slices.Clone(b.items),
			func(it item) bool { return !out[keyOf(it.grant)] }), 0, time.Time{})
	}
	// A refund locks this row before it looks for pending credits. The CHECK on granted refuses -1.
	for i := range b.items {
		if id := b.items[i].grant.Campaign; i == 0 || id != b.items[i-1].grant.Campaign {
			stmts = append(stmts,
				db.Stmt{SQL: `UPDATE campaign SET granted = CASE WHEN state = 'refunded' THEN -1 ELSE granted END WHERE id = $1`,
					Args: []any{id}})
		}
	}
	return stmts
}

// readPending returns the pending rows of the items' packets.
func (l *Ledger) readPending(ctx context.Context, t db.Txn, items []item) ([]payment.Pending, error) {
	return tables.Query[payment.Pending]{SQL: l.tables.Dialect.ReadPending, Args: []any{keysOf(items)}, Row: scanPending}.In(ctx, t)
}

// readHeld sets found to the grants that the ledger has of the items' packets, and returns their packets.
func (b *beginCall) readHeld(ctx context.Context, t db.Txn, view asideView) (map[packetKey]bool, error) {
	paid, err := b.readGrants(ctx, t, b.items)
	if err != nil {
		return nil, err
	}
	for _, g := range paid {
		b.found = append(b.found, payment.AlreadyInLedger{Grant: g.Grant})
	}
	has, err := view.read(ctx, b.Ledger, t)
	for _, it := range b.items {
		if _, settled := paid[keyOf(it.grant)]; settled {
			continue
		}
		if has.paid(it.grant) != nil {
			b.found = append(b.found, payment.AlreadyInLedger{Grant: *it.grant, Aside: true})
		} else if q := has.of(it.grant); q != nil {
			b.found = append(b.found, payment.AlreadyInLedger{Grant: q.Grant, Aside: b.isAside(q)})
		}
	}
	out := make(map[packetKey]bool, len(b.found))
	for i := range b.found {
		out[keyOf(&b.found[i].Grant)] = true
	}
	return out, err
}

// isAside reports whether the call must leave a grant in quarantine alone. PutAside gives a grant the reason NoCampaign
// in place of a request. Record gives the other reasons, after the remote has credited the grant.
func (b *beginCall) isAside(q *model.Quarantined) bool {
	return !q.Resolved.IsZero() || q.Reason == NoCampaign && !b.call.SinceGrant
}

// takeOver sets before to the rows of packets that are not in out. It takes over rows of this owner, and rows whose
// owner has timed out, but never a row with other facts. Every packet must have a row by now. If a row blocked our
// insert and another worker has deleted it, the next try inserts it.
func (b *beginCall) takeOver(ctx context.Context, t db.Txn, rows []payment.Pending, out map[packetKey]bool) error {
	came, noted := make(map[packetKey]hongbao.Grant, len(b.items)), make(map[packetKey]bool, len(rows))
	for _, it := range b.items {
		came[keyOf(it.grant)] = *it.grant
	}
	var campaigns []string
	var packets, batches, now []int64
	for _, p := range rows {
		key := keyOf(&p.Grant)
		noted[key] = true
		if out[key] || p.Batch == b.call.Batch {
			continue
		}
		mine := came[key]
		p.Taken = difference(&mine, &p.Grant) == "" && (p.Owner == b.call.Owner || p.Idle >= b.call.OwnedFor)
		if p.Taken {
			campaigns, packets = append(campaigns, key.campaign), append(packets, key.packet)
			batches, now = append(batches, p.Batch), append(now, b.call.BatchOf(&p))
		}
		b.before = append(b.before, p)
	}
	for key := range came {
		if !noted[key] && !out[key] {
			return hongbao.Errorf(hongbao.ClassTransient, "another worker forgot packet %d of campaign %s meanwhile: %w",
				key.packet, key.campaign, db.ErrAgain)
		}
	}
	if len(campaigns) == 0 {
		return nil
	}
	var taken int64
	err := t.Run(ctx, db.Stmt{SQL: b.tables.Dialect.TakePending,
		Args: []any{db.Table{campaigns, packets, batches, now}, b.call.Owner}, Changed: &taken})
	if err == nil && taken != int64(len(campaigns)) {
		err = hongbao.Errorf(hongbao.ClassTransient, "another worker took some of them over: %w", db.ErrAgain)
	}
	return err
}

// keysOf returns the table of the items' primary keys.
func keysOf(items []item) db.Table {
	campaigns, packets := make([]string, len(items)), make([]int64, len(items))
	for i, it := range items {
		campaigns[i], packets[i] = it.grant.Campaign, it.grant.Packet
	}
	return db.Table{campaigns, packets}
}

// deletePending returns the statements that delete the pending rows of sorted items, if their batch and the last start
// of their owner are the given ones. Batch 0 means any batch, and the zero time any start.
func (l *Ledger) deletePending(items []item, batch int64, asked time.Time) (stmts []db.Stmt) {
	var at int64
	if !asked.IsZero() {
		at = asked.UnixMilli()
	}
	for first := 0; first < len(items); {
		campaign := items[first].grant.Campaign
		var packets []int64
		for _, it := range items[first:] {
			if it.grant.Campaign != campaign {
				break
			}
			packets = append(packets, it.grant.Packet)
		}
		stmts = append(stmts,
			db.Stmt{SQL: l.tables.Dialect.DeletePending, Args: []any{db.Table{packets}, campaign, batch, at}})
		first += len(packets)
	}
	return stmts
}

// Forget deletes the pending rows that the call of Begin with this batch wrote or took over. The caller must be certain
// that nothing was booked. Forget keeps rows that another owner has taken over meanwhile. An owner that takes its own
// row again keeps the batch. So a caller that did not own the rows gives the Asked that it has read (payment.Pending),
// and Forget keeps rows that have another one by now. A repeated call changes nothing.
func (s *Settler) Forget(ctx context.Context, batch int64, asked time.Time, grants []hongbao.Grant) error {
	drop := s.config.Ledger.deletePending(itemsOf(grants, 0), batch, asked)
	err := s.config.Ledger.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) { return drop, nil })
	if err != nil {
		return fmt.Errorf("delete %d pending credits from the ledger: %w", len(grants), err)
	}
	return nil
}

// selectPending returns a query of table pending without its conditions, for scanPending.
func (l *Ledger) selectPending() string {
	return `SELECT ` + tables.GrantColumns + `, owner, batch, ` + l.tables.Dialect.Now + ` - since, asked_at, ` +
		l.tables.Dialect.Now + ` - asked_at FROM pending`
}

// scanPending scans a grant, the owner, the batch, the age, the time of the last Begin, and the time since then.
func scanPending(s db.Scan) (payment.Pending, error) {
	var p payment.Pending
	var shard, at, age, asked, idle int64
	g := &p.Grant
	err := s(&g.Campaign, &g.Packet, &g.User, &g.Amount, &shard, &g.Seq, &g.Epoch, &g.RequestID, &at, &p.Owner,
		&p.Batch, &age, &asked, &idle)
	g.Shard, g.Time, p.Asked = int(shard), time.UnixMilli(at).UTC(), time.UnixMilli(asked).UTC()
	p.Age, p.Idle = time.Duration(age)*time.Millisecond, time.Duration(idle)*time.Millisecond
	return p, err
}

// Pending returns up to limit pending credits whose last Begin is at least idle ago. They are sorted by campaign and
// packet, and come after the given grant; the zero grant stands for the beginning.
func (s *Settler) Pending(ctx context.Context, idle time.Duration, after hongbao.Grant,
	limit int) ([]payment.Pending, error) {
	now := s.config.Ledger.tables.Dialect.Now
	return tables.Ask("read the pending credits",
		s.config.Ledger.selectPending()+`
			WHERE `+now+` - asked_at >= $1 AND (campaign > $2 OR campaign = $3 AND packet > $4)
			ORDER BY campaign, packet LIMIT $5`,
		[]any{idle.Milliseconds(), after.Campaign, after.Campaign, after.Packet, int64(limit)}, scanPending,
	).All(ctx, s.config.Ledger.tables)
}

// pendingOf returns the number of a campaign's pending credits, and the first ten packets.
func pendingOf(ctx context.Context, t db.Txn, campaign string) (n int64, packets []int64, err error) {
	n, _, err = tables.Query[int64]{SQL: `SELECT COUNT(*) FROM pending WHERE campaign = $1`, Args: []any{campaign},
		Row: tables.Number}.First(ctx, t)
	if err != nil || n == 0 {
		return n, nil, err
	}
	packets, err = tables.Query[int64]{SQL: `SELECT packet FROM pending WHERE campaign = $1 ORDER BY packet LIMIT 10`,
		Args: []any{campaign}, Row: tables.Number}.In(ctx, t)
	return n, packets, err
}
