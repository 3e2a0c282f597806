package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// item is the state of one grant of a batch in the settler.
type item struct {
	index  int // index in the batch that the caller passed
	grant  *hongbao.Grant
	epoch  int64                  // epoch of the batch; 0 if only the grant's own counts
	reason model.QuarantineReason // set if the item must go to quarantine
	fence  int64                  // epoch of the fence that leaves the grant out; 0 if none does
}

// packetKey is the primary key of table grants.
type packetKey struct {
	campaign string
	packet   int64
}

func keyOf(g *hongbao.Grant) packetKey { return packetKey{g.Campaign, g.Packet} }

// sortItems sorts items into the order in which every worker locks.
func sortItems(items []item) {
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.grant.Campaign, b.grant.Campaign), cmp.Compare(a.grant.Packet, b.grant.Packet))
	})
}

// settleCall has the state of one call of post.
type settleCall struct {
	*Ledger
	items     []item
	known     map[string]knownCampaign // has the campaigns of all items
	pending   bool                     // delete the items' pending rows in the same transaction
	tries     int
	fencedOff []item // items that a fence leaves out and the ledger does not know
}

// post settles the items in one transaction, and returns those that contradict the ledger. It sorts the items, so that
// every worker locks in the same order: packets, users, pools, campaigns, transfers. So workers may wait for each
// other, but never deadlock.
func (s *settleCall) post(ctx context.Context) (differ []item, err error) {
	sortItems(s.items)
	err = s.tables.Write(ctx, func(ctx context.Context, t db.Txn) (stmts []db.Stmt, err error) {
		stmts, differ, err = s.insert(ctx, t)
		s.tries++
		if err != nil || !s.pending {
			return stmts, err
		}
		return append(s.deletePending(without(s.items, s.fencedOff), 0, time.Time{}), stmts...), nil
	})
	if err != nil {
		return nil, fmt.Errorf("settle %d grants: %w", len(s.items), err)
	}
	return differ, nil
}

// insert inserts the grants, except those that an operator has decided about or that a fence leaves out. It compares
// grants that already exist with their rows. It returns the statements that move the money of the new grants.
func (s *settleCall) insert(ctx context.Context, t db.Txn) (stmts []db.Stmt, differ []item, err error) {
	seen, aside := shardViewOf(s.items), asideViewOf(s.items)
	if err = t.Run(ctx, append(seen.queries(), aside.queries()...)...); err != nil {
		return nil, nil, err
	}
	behind, err := s.behindFences(ctx, t, seen, s.items, s.pending)
	if err != nil {
		return nil, nil, err
	}
	s.fencedOff = behind.fencedOff
	has, err := aside.read(ctx, s.Ledger, t)
	if err != nil {
		return nil, nil, err
	}
	items, differ := has.undecided(without(without(s.items, behind.fencedOff), behind.aside))
	if len(items) == 0 {
		return nil, differ, nil
	}
	stmts, more, err := s.pay(ctx, t, items)
	stmts = append(append(stmts, aside.unchanged(s.tables.Dialect)...), seen.unchanged(s.tables.Dialect)...)
	return stmts, append(differ, more...), err
}

// pay inserts items that may be settled, and returns the statements that move the money of the new ones.
func (s *settleCall) pay(ctx context.Context, t db.Txn, items []item) (stmts []db.Stmt, differ []item, err error) {
	// A statement can't insert a key twice, so a duplicate in the batch is compared with the first grant instead.
	fresh := slices.CompactFunc(slices.Clone(items), func(a, b item) bool { return keyOf(a.grant) == keyOf(b.grant) })
	batch := rand.Int64()
	var inserted int64
	if err := t.Run(ctx, s.insertGrants(fresh, batch, &inserted)); err != nil {
		return nil, nil, err
	}
	if s.tries > 0 || inserted < int64(len(items)) {
		has, err := s.readGrants(ctx, t, fresh)
		if err != nil {
			return nil, nil, err
		}
		if fresh, differ, err = compare(items, has, batch); err != nil {
			return nil, nil, err
		}
	}
	if len(fresh) == 0 {
		return nil, differ, nil
	}
	stmts, err = s.moveMoney(fresh, s.known, batch)
	return stmts, differ, err
}

// insertGrants returns the statement that inserts the grants. The first try assumes that all are new, which is fast on
// PostgreSQL. If a packet exists, it may fail, and the next try skips the packet.
func (s *settleCall) insertGrants(items []item, batch int64, inserted *int64) db.Stmt {
	sql := s.tables.Dialect.InsertGrants
	if s.tries > 0 {
		sql = s.tables.Dialect.InsertGrantsAgain
	}
	return db.Stmt{SQL: sql, Args: []any{columnsOf(items), batch}, Changed: inserted}
}

// columnsOf returns the table of tables.GrantColumns.
func columnsOf(items []item) db.Table {
	n := len(items)
	campaigns, users, requests := make([]string, n), make([]string, n), make([]string, n)
	packets, amounts, shards := make([]int64, n), make([]int64, n), make([]int32, n)
	seqs, epochs, times := make([]int64, n), make([]int64, n), make([]int64, n)
	for i, it := range items {
		g := it.grant
		campaigns[i], packets[i], users[i], amounts[i] = g.Campaign, g.Packet, g.User, int64(g.Amount)
		shards[i], seqs[i], epochs[i] = int32(g.Shard), g.Seq, g.Epoch
		requests[i], times[i] = g.RequestID, g.Time.UnixMilli()
	}
	return db.Table{campaigns, packets, users, amounts, shards, seqs, epochs, requests, times}
}

func (l *Ledger) readGrants(ctx context.Context, t db.Txn, items []item) (map[packetKey]tables.StoredGrant, error) {
	has := make(map[packetKey]tables.StoredGrant, len(items))
	err := t.Query(ctx, l.tables.Dialect.ReadGrants, []any{keysOf(items)}, func(s db.Scan) error {
		g, err := tables.ScanGrant(s)
		has[keyOf(&g.Grant)] = g
		return err
	})
	return has, err
}

// compare compares the items with the ledger's current rows. fresh were inserted by this batch. differ contradict the
// ledger. The other items were already settled.
func compare(items []item, has map[packetKey]tables.StoredGrant, batch int64) (fresh, differ []item, err error) {
	var last packetKey
	for _, it := range items {
		key := keyOf(it.grant)
		g, ok := has[key]
		if !ok {
			return nil, nil, hongbao.Errorf(hongbao.ClassBroken,
				"packet %d of campaign %s was neither inserted nor there: was a row deleted by hand?", key.packet, key.campaign)
		}
		if it.reason = difference(it.grant, &g.Grant); it.reason != "" {
			differ = append(differ, it)
		} else if g.Batch == batch && key != last {
			fresh = append(fresh, it)
		}
		last = key
	}
	return fresh, differ, nil
}

// posting is what a batch adds to one campaign: an amount and a number of grants. highest is the highest packet.
type posting struct {
	amount          hongbao.Amount
	grants, highest int64
}

// moveMoney returns the statements that move the money of the fresh grants. The rows of pools and campaigns come late,
// because other batches wait for them.
func (l *Ledger) moveMoney(fresh []item, known map[string]knownCampaign, batch int64) ([]db.Stmt, error) {
	campaigns, users, err := add(fresh, known)
	if err != nil {
		return nil, err
	}
	stmts := l.creditUsers(users)
	now := time.Now().UnixMilli()
	ids := slices.Sorted(maps.Keys(campaigns))
	for _, id := range ids {
		stmts = append(stmts, db.Stmt{SQL: `UPDATE account SET balance = balance - $2 WHERE id = $1`,
			Args: []any{tables.PoolAccount(id), int64(campaigns[id].amount)}})
	}
	for _, id := range ids {
		// After the refund the CHECK on granted refuses -1. So nothing is granted any more, not even a packet with amount
		// 0. It also refuses packets of a top-up that a promoted standby lacks, although the caller knows it.
		p := campaigns[id]
		stmts = append(stmts,
			db.Stmt{SQL: `UPDATE campaign SET granted = CASE WHEN state = 'refunded' OR packets < $4 THEN -1
			ELSE granted + $2 END, grants = grants + $3 WHERE id = $1`, Args: []any{id, int64(p.amount), p.grants, p.highest}})
	}
	// The transfers come after the rows that they refer to are locked for writing. For a foreign key MySQL takes a shared
	// lock, and two batches with a shared lock would deadlock when they update the row.
	for _, id := range ids {
		p := campaigns[id]
		stmts = append(stmts, db.Stmt{SQL: insertTransfer, Args: []any{"grants:" + id + ":" + strconv.FormatInt(batch, 10),
			"grants", id, tables.PoolAccount(id), nil, int64(p.amount), p.grants, batch, now}})
	}
	return stmts, nil
}

// credit is the amount that a batch adds to an account.
type credit struct {
	account, currency string
	amount            hongbao.Amount
}

// add sums up the grants per campaign and per user's account; the accounts are sorted. It refuses a sum above MaxAmount
// as an overdraft, because no campaign is funded with more.
func add(fresh []item, known map[string]knownCampaign) (map[string]posting, []credit, error) {
	campaigns := make(map[string]posting)
	credits := make([]credit, 0, len(fresh))
	for _, it := range fresh {
		g := it.grant
		p := campaigns[g.Campaign]
		p.amount, p.grants, p.highest = p.amount+g.Amount, p.grants+1, max(p.highest, g.Packet)
		if p.amount > hongbao.MaxAmount {
			return nil, nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: the batch is above %d", db.ErrOverdraw,
				hongbao.MaxAmount)
		}
		campaigns[g.Campaign] = p
		if g.Amount > 0 {
			currency := known[g.Campaign].currency
			credits = append(credits, credit{tables.UserAccount(g.User, currency), currency, g.Amount})
		}
	}
	slices.SortFunc(credits, func(a, b credit) int { return cmp.Compare(a.account, b.account) })
	sums := credits[:0]
	for _, c := range credits {
		if n := len(sums); n == 0 || sums[n-1].account != c.account {
			sums = append(sums, c)
		} else if sums[n-1].amount += c.amount; sums[n-1].amount > hongbao.MaxAmount {
			return nil, nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: one user gets more than %d", db.ErrOverdraw,
				hongbao.MaxAmount)
		}
	}
	return campaigns, sums, nil
}

func (l *Ledger) creditUsers(credits []credit) []db.Stmt {
	if len(credits) == 0 {
		return nil
	}
	ids, currencies := make([]string, len(credits)), make([]string, len(credits))
	amounts := make([]int64, len(credits))
	for i, c := range credits {
		ids[i], currencies[i], amounts[i] = c.account, c.currency, int64(c.amount)
	}
	return []db.Stmt{{SQL: l.tables.Dialect.CreditUsers, Args: []any{db.Table{ids, currencies, amounts}}}}
}
