package settlement

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
)

// pageRows is how many grants are read at once: a long iteration holds no connection and no snapshot between pages.
const pageRows = 2_000

// grantCode is the code of a row of table grants, ” if its campaign has none.
const grantCode = `COALESCE((SELECT code FROM code WHERE code.campaign = grants.campaign AND code.packet = grants.packet), '')`

// EachGrant calls fn for every grant of a campaign, in the order of the packets, until fn fails; its error is given
// back as it is. Grants that are settled meanwhile may or may not be among them. EntryID and Trace are empty: the ledger
// does not keep them.
func (l *Ledger) EachGrant(ctx context.Context, campaign string, fn func(hongbao.Grant) error) error {
	last := int64(0)
	for {
		page, err := l.page(ctx, `SELECT `+grantColumns+`, batch, `+grantCode+` FROM grants WHERE campaign = $1 AND packet > $2
			ORDER BY packet LIMIT $3`, campaign, last, int64(pageRows))
		if err != nil {
			return fmt.Errorf("read the grants of campaign %s after packet %d: %w", campaign, last, err)
		}
		for i := range page {
			last = page[i].Packet
			if err := fn(page[i]); err != nil {
				return err
			}
		}
		if len(page) < pageRows {
			return nil
		}
	}
}

// EachGrantBySeq calls fn for every grant of a shard whose seq is in the range, in the order of the seqs, until fn fails;
// its error is given back as it is. A seq is missing if it was no grant or is not settled, and comes twice, for
// different packets, if Redis went back in time. EntryID and Trace are empty: the ledger does not keep them.
func (l *Ledger) EachGrantBySeq(ctx context.Context, shard int, seqs hongbao.SeqRange, fn func(hongbao.Grant) error) error {
	last := hongbao.Grant{Seq: seqs.First} // before every row of that seq: no campaign has an empty id
	for {
		page, err := l.page(ctx, `SELECT `+grantColumns+`, batch, `+grantCode+` FROM grants
			WHERE shard = $1 AND seq >= $2 AND seq <= $3 AND (seq, campaign, packet) > ($2, $4, $5)
			ORDER BY seq, campaign, packet LIMIT $6`,
			int64(shard), last.Seq, seqs.Last, last.Campaign, last.Packet, int64(pageRows))
		if err != nil {
			return fmt.Errorf("read the grants of shard %d after seq %d: %w", shard, last.Seq, err)
		}
		for i := range page {
			last = page[i]
			if err := fn(page[i]); err != nil {
				return err
			}
		}
		if len(page) < pageRows {
			return nil
		}
	}
}

// UserGrants gives a user's grants in a campaign, in the order in which they were decided; it looks them up by an index.
// No user holds more than hongbao.MaxUserHold.
func (l *Ledger) UserGrants(ctx context.Context, campaign, user string) ([]hongbao.Grant, error) {
	list, err := l.page(ctx, `SELECT `+grantColumns+`, batch, `+grantCode+` FROM grants WHERE user_id = $1 AND campaign = $2
		ORDER BY shard, seq LIMIT $3`, user, campaign, int64(pageRows))
	if err != nil {
		return nil, fmt.Errorf("read the grants of user %s in campaign %s: %w", user, campaign, err)
	}
	return list, nil
}

func (l *Ledger) page(ctx context.Context, sql string, args ...any) ([]hongbao.Grant, error) {
	var page []hongbao.Grant
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		page = page[:0]
		return t.query(ctx, sql, args, func(s scan) error {
			var code string
			g, err := scanGrant(func(dest ...any) error { return s(append(dest, &code)...) })
			g.Code = code
			page = append(page, g.Grant)
			return err
		})
	})
	return page, err
}

// Totals is what the ledger holds of one campaign, all of one instant.
type Totals struct {
	Campaign, Currency string
	// Funded, Granted and Refunded are the campaign's own counts.
	Funded, Granted, Refunded hongbao.Amount
	// Pool is the balance of the pool: what is open.
	Pool hongbao.Amount
	// Grants and GrantsAmount are counted from the grants; each of them is one credit to a user.
	Grants       int64
	GrantsAmount hongbao.Amount
	// Debits and DebitedGrants are the transfers out of the pool to users, and how many grants they say they cover.
	Debits        hongbao.Amount
	DebitedGrants int64
	// Quarantined is the number of grants that wait for a person's decision.
	Quarantined int64
}

// totalsQuery gives one row a campaign, in the order of the fields of Totals.
const totalsQuery = `SELECT c.id, c.currency, c.funded, c.granted, c.refunded,
	COALESCE((SELECT balance FROM account WHERE id = 'pool:' || c.id), 0),
	(SELECT COUNT(*) FROM grants WHERE campaign = c.id),
	(SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) FROM grants WHERE campaign = c.id),
	(SELECT CAST(COALESCE(SUM(amount), 0) AS bigint) FROM transfer WHERE campaign = c.id AND kind = 'grants'),
	(SELECT CAST(COALESCE(SUM(grants), 0) AS bigint) FROM transfer WHERE campaign = c.id AND kind = 'grants'),
	(SELECT COUNT(*) FROM quarantine WHERE campaign = c.id AND resolved_at = 0)
	FROM campaign AS c`

func scanTotals(s scan) (t Totals, err error) {
	err = s(&t.Campaign, &t.Currency, &t.Funded, &t.Granted, &t.Refunded, &t.Pool, &t.Grants, &t.GrantsAmount,
		&t.Debits, &t.DebitedGrants, &t.Quarantined)
	return t, err
}

// Totals sums up a campaign; false if the ledger does not have it. It reads every grant of the campaign
// within Config.Timeout.
func (l *Ledger) Totals(ctx context.Context, campaign string) (totals Totals, found bool, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		found = false
		return t.query(ctx, totalsQuery+` WHERE c.id = $1`, []any{campaign}, func(s scan) (err error) {
			found = true
			totals, err = scanTotals(s)
			return err
		})
	})
	if err != nil {
		return Totals{}, false, fmt.Errorf("sum up campaign %s in the ledger: %w", campaign, err)
	}
	return totals, found, nil
}
