package ledger

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// pageRows is how many grants are read at once: a long iteration holds no connection and no snapshot between pages.
const pageRows = 2_000

// grantCode is the code of a row of table grants, ” if its campaign has none.
const grantCode = `COALESCE((SELECT code FROM code WHERE code.campaign = grants.campaign AND code.packet = grants.packet), '')`

// EachGrant calls fn for every grant of a campaign, in the order of the packets, until fn fails; its error is given
// back as it is. Grants that are settled meanwhile may or may not be among them. EntryID and Trace are empty: the
// ledger does not keep them.
func (l *Ledger) EachGrant(ctx context.Context, campaign string, fn func(hongbao.Grant) error) error {
	last := int64(0)
	for {
		page, err := l.page(ctx,
			`SELECT `+grantColumns+`, batch, `+grantCode+` FROM grants WHERE campaign = $1 AND packet > $2
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

// EachGrantBySeq calls fn for every grant of a shard whose seq is in the range, in the order of the seqs, until fn
// fails; its error is given back as it is. A seq is missing if it was no grant or is not settled, and comes twice,
// for different packets, if Redis went back in time. EntryID and Trace are empty: the ledger does not keep them.
func (l *Ledger) EachGrantBySeq(ctx context.Context, shard int, seqs stream.SeqRange,
	fn func(hongbao.Grant) error) error {
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

// UserGrants gives a user's grants in a campaign, in the order in which they were decided; it looks them up by an
// index. No user holds more than hongbao.MaxUserHold.
func (l *Ledger) UserGrants(ctx context.Context, campaign, user string) ([]hongbao.Grant, error) {
	list, err := l.page(ctx,
		`SELECT `+grantColumns+`, batch, `+grantCode+` FROM grants WHERE user_id = $1 AND campaign = $2
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

// Totals is what the ledger has counted of one campaign, all of one instant. CheckConservation compares it with the
// rows.
type Totals struct {
	Campaign, Currency string
	// Funded, Granted and Refunded are amounts, Grants a number.
	Funded, Granted, Refunded hongbao.Amount
	Grants                    int64
	// Pool is the balance of the pool: what is open.
	Pool hongbao.Amount
	// Codes: its packets have codes.
	Codes bool
	// Closed: it was refunded, on the ground of the close with this shard and seq.
	Closed     bool
	CloseShard int
	CloseSeq   int64
	// By and Why are set if there was no close, since Redis had lost the campaign: who had it refunded, and why.
	By, Why string
	// Sealed: Seal has noted what its grants come to.
	Sealed bool
}

// campaignRows is how many campaigns are read at once.
const campaignRows = 500

const totalsQuery = `SELECT c.id, c.spec, c.currency, c.funded, c.granted, c.refunded, c.grants,
	COALESCE((SELECT balance FROM account WHERE id = 'pool:' || c.id), 0),
	CASE WHEN r.campaign IS NULL THEN 0 ELSE 1 END, COALESCE(r.shard, 0), COALESCE(r.close_seq, 0),
	COALESCE(r.decided_by, ''), COALESCE(r.why, ''),
	CASE WHEN s.campaign IS NULL THEN 0 ELSE 1 END
	FROM campaign AS c LEFT JOIN refund AS r ON r.campaign = c.id LEFT JOIN seal AS s ON s.campaign = c.id`

func scanTotals(s scan) (t Totals, err error) {
	var spec string
	var closed, shard, sealed int64
	err = s(&t.Campaign, &spec, &t.Currency, &t.Funded, &t.Granted, &t.Refunded, &t.Grants, &t.Pool, &closed, &shard,
		&t.CloseSeq, &t.By,
		&t.Why, &sealed)
	if err != nil {
		return t, err
	}
	var c hongbao.Campaign
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return t, hongbao.Errorf(hongbao.ClassBroken, "the ledger's specification of campaign %s can't be read: %w",
			t.Campaign, err)
	}
	t.Codes, t.Closed, t.CloseShard, t.Sealed = c.Codes != nil, closed == 1, int(shard), sealed == 1
	return t, nil
}

// Totals gives what the ledger has counted of a campaign; false if the ledger does not have it.
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
		return Totals{}, false, fmt.Errorf("read the counts of campaign %s in the ledger: %w", campaign, err)
	}
	return totals, found, nil
}

// EachTotals calls fn with the totals of every campaign, in the order of the ids, until fn fails; its error is given
// back as it is.
func (l *Ledger) EachTotals(ctx context.Context, fn func(*Totals) error) error {
	return eachTotals(ctx, func(ctx context.Context, after string) (page []Totals, err error) {
		err = l.read(ctx, func(ctx context.Context, t txn) error {
			page, err = readTotals(ctx, t, after)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the counts of the campaigns after %q in the ledger: %w", after, err)
		}
		return page, nil
	}, fn)
}

// eachTotals asks page for the campaigns after an id, again and again.
func eachTotals(ctx context.Context, page func(ctx context.Context, after string) ([]Totals, error),
	fn func(*Totals) error) error {
	for after := ""; ; {
		list, err := page(ctx, after)
		if err != nil {
			return err
		}
		for i := range list {
			after = list[i].Campaign
			if err := fn(&list[i]); err != nil {
				return err
			}
		}
		if len(list) < campaignRows {
			return nil
		}
	}
}

func readTotals(ctx context.Context, t txn, after string) (list []Totals, err error) {
	err = t.query(ctx, totalsQuery+` WHERE c.id > $1 ORDER BY c.id LIMIT $2`, []any{after, int64(campaignRows)},
		func(s scan) error {
			c, err := scanTotals(s)
			list = append(list, c)
			return err
		})
	return list, err
}
