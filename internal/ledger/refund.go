package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

// ErrNoCampaign says that the ledger does not have a campaign.
var ErrNoCampaign = tables.ErrNoCampaign

// ErrNotRefunded says that a campaign is not refunded yet.
var ErrNotRefunded = errors.New("the campaign is not refunded")

// Refund posts the campaign's refund in one transaction. The money that was not granted goes from the pool to the
// sponsor, and nothing can be granted afterwards. closes are the campaign's close entries, one for each place, in the
// order of the places. missing is the number of grants that the closes count but the ledger will never have: an
// operator has decided not to pay these dead letters or grants in quarantine. Their money is refunded, too. Refund
// returns payment.ErrSettling while other grants that the closes count are not settled. It returns a Conflict if the
// ledger's grants contradict the closes, or if grants are missing while others wait in quarantine. If a fence leaves
// out a close, the error is ErrFenced. A repeated call returns the existing refund and moves no money, even if another
// method made the refund.
func (l *Ledger) Refund(ctx context.Context, closes []stream.Entry, missing int64) (payment.Refund, error) {
	e, err := endOf(closes, missing)
	if err != nil {
		return payment.Refund{}, err
	}
	n, err := l.count(ctx, e)
	if err != nil {
		return payment.Refund{}, fmt.Errorf("refund campaign %s: count its grants: %w", e.campaign, err)
	}
	return l.refundOnce(ctx, e, func(ctx context.Context, t db.Txn, c *StoredCampaign) (payment.Refund, error) {
		return c.refund(ctx, t, e, &n)
	})
}

// end has the closes of a campaign.
type end struct {
	campaign string
	closes   []payment.Close // of each place
	sum      stream.Closing  // of all closes
	missing  int64
}

func endOf(closes []stream.Entry, missing int64) (*end, error) {
	if len(closes) == 0 || missing < 0 {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "refund: got %d closes and %d missing grants: want one close for "+
			"each place, and 0 or more missing grants", len(closes), missing)
	}
	e := &end{campaign: closes[0].Campaign, missing: missing}
	for i := range closes {
		c := &closes[i]
		if c.Kind != stream.EntryClose || c.Seq < 1 || c.Campaign != e.campaign {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "refund campaign %s: event %s is not a close of it",
				e.campaign, stream.EventID(c.Shard, c.Seq))
		}
		e.closes = append(e.closes, payment.Close{Shard: c.Shard, Seq: c.Seq, Epoch: c.Epoch})
		e.sum = e.sum.Plus(c.Close)
	}
	return e, nil
}

// name returns the names of the closes for errors.
func (e *end) name() string {
	names := make([]string, len(e.closes))
	for i, c := range e.closes {
		names[i] = stream.EventID(c.Shard, c.Seq)
	}
	return strings.Join(names, ", ")
}

// allows reports whether a grant can have been made on a place before the place was closed.
func (e *end) allows(place int, g *tables.PaidGrant) bool {
	c := e.closes[place]
	return g.Shard == c.Shard && (c.Seq == 0 || g.Seq < c.Seq)
}

// place returns the place to which a packet is dealt; the rule is the same for all generations.
func (c *StoredCampaign) place(packet int64) int { return int((packet - 1) % int64(c.Spec.Places())) }

// refundOnce posts the refund that decide returns under the campaign's locks, or returns the existing one.
func (l *Ledger) refundOnce(
	ctx context.Context, e *end, decide func(context.Context, db.Txn, *StoredCampaign) (payment.Refund, error),
) (refund payment.Refund, err error) {
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		c, err := lockCampaign(ctx, t, e.campaign)
		if err != nil {
			return nil, err
		}
		if c.State == model.MoneyRefunded {
			var found bool
			refund, found, err = readRefund(ctx, t, e.campaign)
			return nil, errors.Join(err, mustExist(found, e.campaign))
		}
		seen, err := l.unfenced(ctx, t, e)
		if err != nil {
			return nil, err
		}
		if refund, err = decide(ctx, t, &c); err != nil {
			return nil, err
		}
		refund.Closes = make([]payment.Close, len(e.closes))
		for i, c := range e.closes {
			refund.Closes[i] = payment.Close{Shard: c.Shard, Seq: c.Seq}
		}
		return append(postRefund(&refund), seen.unchanged(l.tables.Dialect)...), nil
	})
	if err != nil {
		return payment.Refund{}, fmt.Errorf("refund campaign %s: %w", e.campaign, err)
	}
	return refund, nil
}

// unfenced refuses closes that a fence leaves out, because Redis may have granted more packets since.
func (l *Ledger) unfenced(ctx context.Context, t db.Txn, e *end) (seen shardView, err error) {
	for _, c := range e.closes {
		seen = seen.with(event{c.Shard, c.Seq, c.Epoch})
	}
	if err := t.Run(ctx, seen.queries()...); err != nil {
		return nil, err
	}
	for _, c := range e.closes {
		it := event{c.Shard, c.Seq, c.Epoch}
		if later := seen.fence(it); later > 0 {
			return nil, it.fencedError(later)
		}
	}
	return seen, nil
}

// Position returns what the ledger has granted of the campaign and what is left.
func (c *StoredCampaign) Position() stream.Closing {
	return stream.Closing{Granted: c.Grants, GrantedAmount: c.Granted, Left: c.Packets - c.Grants,
		LeftAmount: c.Funded - c.Granted}
}

// counted are sums over the grants of a campaign, and the campaign's counters at the same instant.
type counted struct {
	has           StoredCampaign
	grants        int64
	amount        hongbao.Amount
	late, onePack int64 // number of grants that no close can have counted; packet of one of them
}

// count adds up the grants of a campaign before its refund. It takes no lock, since it may take long; agrees notices if
// grants were settled meanwhile. It reads no grants while the ledger has fewer than the closes count.
func (l *Ledger) count(ctx context.Context, e *end) (n counted, err error) {
	err = l.tables.ReadPages(ctx, func(ctx context.Context, t db.Txn) error {
		var found bool
		n.has, found, err = campaignByID(e.campaign).First(ctx, t)
		if err != nil || !found || n.has.State == model.MoneyRefunded || n.has.Grants+e.missing < e.sum.Granted ||
			n.has.Spec.Places() != len(e.closes) {
			return err
		}
		return tables.EachPaid(ctx, t, e.campaign, 0, func(g *tables.PaidGrant) error {
			n.grants, n.amount = n.grants+1, n.amount+g.Amount
			if !e.allows(n.has.place(g.Packet), g) {
				n.late, n.onePack = n.late+1, g.Packet
			}
			return nil
		})
	})
	return n, err
}

// open returns the balance of the campaign's pool, and the number of its grants that wait in quarantine.
func (c *StoredCampaign) open(ctx context.Context, t db.Txn) (pool hongbao.Amount, waiting int64, err error) {
	id := c.Spec.ID
	err = t.Query(ctx, `SELECT balance, (SELECT COUNT(*) FROM quarantine WHERE campaign = $1 AND resolved_at = 0)
		FROM account WHERE id = $2`,
		[]any{id, tables.PoolAccount(id)}, func(s db.Scan) error { return s(&pool, &waiting) })
	return pool, waiting, err
}

// refund compares the closes with the ledger, and returns the refund to post. n was counted before the campaign was
// locked.
func (c *StoredCampaign) refund(ctx context.Context, t db.Txn, e *end, n *counted) (payment.Refund, error) {
	pool, waiting, err := c.open(ctx, t)
	if err != nil {
		return payment.Refund{}, err
	}
	held, want, id := c.Position(), e.sum, c.Spec.ID
	waits, disagrees := nothingPending(ctx, t, id), c.agrees(n, pool)
	switch {
	case len(e.closes) != c.Spec.Places():
		err = hongbao.Errorf(hongbao.ClassPermanent, "there are %d closes (%s), the campaign is on %d shards",
			len(e.closes), e.name(), c.Spec.Places())
	case want.Granted+want.Left != c.Packets || want.GrantedAmount+want.LeftAmount != c.Funded:
		err = hongbao.Errorf(hongbao.ClassConflict, "the close counts %d packets with amount %d, the ledger has funded %d "+
			"with %d: run `hongbao audit --campaign %s`", want.Granted+want.Left, want.GrantedAmount+want.LeftAmount,
			c.Packets, c.Funded, id)
	case n.late > 0:
		err = hongbao.Errorf(hongbao.ClassConflict, "the ledger has paid %d grants (packet %d for one) that the close, "+
			"event %s, can't have counted: they come after it or are of another shard. Redis or the ledger was changed by "+
			"hand: run `hongbao audit --campaign %s`", n.late, n.onePack, e.name(), id)
	case waits != nil:
		err = waits
	case held.Granted+e.missing < want.Granted:
		err = hongbao.Errorf(hongbao.ClassTransient, "%w: the ledger has %d of %d grants", payment.ErrSettling,
			held.Granted, want.Granted)
	case disagrees != nil:
		err = disagrees
	case held.Granted+e.missing > want.Granted || held.GrantedAmount > want.GrantedAmount ||
		e.missing == 0 && held != want:
		err = hongbao.Errorf(hongbao.ClassConflict, "the close counts %d grants with amount %d, the ledger has %d with "+
			"%d, and %d were declared missing: run `hongbao audit --campaign %s`", want.Granted, want.GrantedAmount,
			held.Granted, held.GrantedAmount, e.missing, id)
	case e.missing > 0 && waiting > 0:
		err = hongbao.Errorf(hongbao.ClassConflict, "%d grants are missing, and %d wait in quarantine: decide these first",
			e.missing, waiting)
	}
	return c.rest(), err
}

// nothingPending returns payment.ErrSettling while a remote may have booked credits that are not settled in the ledger.
func nothingPending(ctx context.Context, t db.Txn, campaign string) error {
	pending, packets, err := pendingOf(ctx, t, campaign)
	if err != nil || pending == 0 {
		return err
	}
	return hongbao.Errorf(hongbao.ClassTransient, "%w: %d credits may be booked at the remote and are not recorded "+
		"(packets %v and so on): the workers resolve them; for those that only the remote's owners can resolve see "+
		"`hongbao dead confirm --help`",
		payment.ErrSettling, pending, packets)
}

// agrees compares the campaign's counters with its grants, which were counted before the campaign was locked.
func (c *StoredCampaign) agrees(n *counted, pool hongbao.Amount) error {
	switch {
	case c.Grants != n.has.Grants || c.Granted != n.has.Granted:
		return hongbao.Errorf(hongbao.ClassTransient, "%w: grants were settled while they were counted",
			payment.ErrSettling)
	case c.Grants != n.grants || c.Granted != n.amount || pool != c.Position().LeftAmount:
		return hongbao.Errorf(hongbao.ClassBroken, "the ledger does not agree with itself: it has counted %d grants with "+
			"amount %d, there are %d with %d, the pool has %d: run `hongbao audit --campaign %s`", c.Grants, c.Granted, n.grants,
			n.amount, pool, c.Spec.ID)
	}
	return nil
}

// rest returns the refund of the money that was not granted. The caller sets the closes.
func (c *StoredCampaign) rest() payment.Refund {
	held := c.Position()
	return payment.Refund{
		Campaign: c.Spec.ID, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor, Amount: held.LeftAmount, Packets: held.Left,
		Created: time.Now().UTC().Truncate(time.Millisecond),
	}
}

// Position returns what the ledger has granted of a campaign, and what is left.
func (l *Ledger) Position(ctx context.Context, campaign string) (stream.Closing, error) {
	c, found, err := l.Campaign(ctx, campaign)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w; check the id", campaign, ErrNoCampaign)
	}
	if err != nil {
		return stream.Closing{}, err
	}
	return c.Position(), nil
}

// postRefund returns the statements that move the money from the pool to the sponsor and mark the campaign as refunded.
// The primary keys of transfer and refund, and CHECK (granted + refunded = funded), prevent a second refund.
func postRefund(r *payment.Refund) []db.Stmt {
	pool, sponsor := tables.PoolAccount(r.Campaign), tables.SponsorAccount(r.Sponsor, r.Currency)
	transfer := "refund:" + r.Campaign
	amount, now := int64(r.Amount), r.Created.UnixMilli()
	home := r.Closes[0]
	stmts := []db.Stmt{
		{SQL: moveMoney, Args: []any{pool, -amount}},
		{SQL: `UPDATE campaign SET refunded = refunded + $2, state = $3 WHERE id = $1`, Args: []any{r.Campaign, amount,
			string(model.MoneyRefunded)}},
		{SQL: insertTransfer, Args: []any{transfer, "refund", r.Campaign, pool, sponsor, amount, int64(0), int64(0), now}},
		{SQL: `INSERT INTO refund (campaign, transfer, amount, packets, shard, close_seq, decided_by, why, created_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
			Args: []any{r.Campaign, transfer, amount, r.Packets, int64(home.Shard), home.Seq, r.By, r.Why, now}},
	}
	for i, c := range r.Closes[1:] {
		stmts = append(stmts, db.Stmt{SQL: `INSERT INTO refund_close (campaign, place, shard, close_seq)
			VALUES ($1, $2, $3, $4)`, Args: []any{r.Campaign, int64(i) + 1, int64(c.Shard), c.Seq}})
	}
	return append(stmts, db.Stmt{SQL: moveMoney, Args: []any{sponsor, amount}})
}

func readRefund(ctx context.Context, t db.Txn, campaign string) (r payment.Refund, found bool, err error) {
	c, found, err := campaignByID(campaign).First(ctx, t)
	if err != nil || !found {
		return r, false, err
	}
	r, found, err = tables.Query[payment.Refund]{SQL: `SELECT amount, packets, shard, close_seq, decided_by, why,
		created_at FROM refund WHERE campaign = $1`, Args: []any{campaign}, Row: func(s db.Scan) (payment.Refund, error) {
		r := payment.Refund{Campaign: campaign, Currency: c.Spec.Currency, Sponsor: c.Spec.Sponsor}
		var shard, seq, at int64
		err := s(&r.Amount, &r.Packets, &shard, &seq, &r.By, &r.Why, &at)
		r.Closes, r.Created = []payment.Close{{Shard: int(shard), Seq: seq}}, time.UnixMilli(at).UTC()
		return r, err
	}}.First(ctx, t)
	if err != nil || !found || c.Spec.Places() == 1 {
		return r, found, err
	}
	rows, err := tables.PlaceCloses("", `campaign = $1 ORDER BY place`, campaign).In(ctx, t)
	for _, row := range rows {
		r.Closes = append(r.Closes, row.Close)
	}
	return r, true, err
}

// RefundOf returns the refund of a campaign; false if there is none.
func (l *Ledger) RefundOf(ctx context.Context, campaign string) (r payment.Refund, found bool, err error) {
	r, err = tables.Snapshot(ctx, l.tables, "read the refund of campaign "+campaign,
		func(ctx context.Context, t db.Txn) (r payment.Refund, err error) {
			r, found, err = readRefund(ctx, t, campaign)
			return r, err
		})
	return r, found, err
}

// Reveal records that the campaign's seed is public, and returns the campaign with its seed. Before the refund the
// error is ErrNotRefunded, of ClassPermanent, because the seed shows every packet's amount. A repeated call keeps the
// first time.
func (l *Ledger) Reveal(ctx context.Context, campaign string) (StoredCampaign, error) {
	var c StoredCampaign
	err := l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		reveal := db.Stmt{SQL: `UPDATE campaign SET revealed_at = $2 WHERE id = $1 AND revealed_at = 0 AND state = $3`,
			Args: []any{campaign, time.Now().UnixMilli(), string(model.MoneyRefunded)}}
		if err := t.Run(ctx, reveal); err != nil {
			return nil, err
		}
		var err error
		switch c, err = mustRead(ctx, t, campaign); {
		case err != nil:
			return nil, err
		case c.State != model.MoneyRefunded:
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "%w: its seed stays secret until it is closed and refunded",
				ErrNotRefunded)
		}
		return nil, nil
	})
	if err != nil {
		return StoredCampaign{}, fmt.Errorf("reveal the seed of campaign %s: %w", campaign, err)
	}
	return c, nil
}
