package books

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Totals are the ledger's counters of a campaign, read at one instant. CheckConservation compares them with the rows.
type Totals struct {
	Campaign, Currency string
	// Funded, Granted and Refunded are amounts. Grants is the number of grants.
	Funded, Granted, Refunded hongbao.Amount
	Grants                    int64
	// Pool is the balance of the pool: the money that is neither granted nor refunded.
	Pool hongbao.Amount
	// Codes reports whether the campaign's packets have codes.
	Codes bool
	// Closed reports whether the campaign was refunded. Closes are the closes that the refund is based on, one for each
	// place.
	Closed bool
	Closes []payment.Close
	// By and Why are set if a close was missing because Redis had lost data of the campaign. They say who decided to
	// refund it, and why.
	By, Why string
	// Sealed reports whether Seal has stored the sums of the grants. Archived reports whether the grants are in an
	// archive file; then they are, or will be, deleted from the ledger.
	Sealed, Archived bool
	// Based reports whether the bases of accounts include all grants of the sealed campaign.
	Based bool
	// Places is the number of shards that have packets of the campaign.
	Places int
	// Earlier has what Funded was before each top-up that is not dealt. Top-ups are dealt in their order, so the total in
	// Redis is Funded or one of these.
	Earlier []hongbao.Amount
	open    int64 // number of top-ups that are not dealt
}

// campaignRows is how many campaigns are read at once.
const campaignRows = 500

const totalsQuery = `SELECT c.id, c.spec, c.currency, c.funded, c.granted, c.refunded, c.grants,
	COALESCE((SELECT balance FROM account WHERE id = 'pool:' || c.id), 0),
	CASE WHEN r.campaign IS NULL THEN 0 ELSE 1 END, COALESCE(r.shard, 0), COALESCE(r.close_seq, 0),
	COALESCE(r.decided_by, ''), COALESCE(r.why, ''),
	CASE WHEN s.campaign IS NULL THEN 0 ELSE 1 END, CASE WHEN a.campaign IS NULL THEN 0 ELSE 1 END,
	COALESCE(s.based, 0),
	(SELECT COUNT(*) FROM generation AS g WHERE g.campaign = c.id AND g.state <> 'dealt')
	FROM campaign AS c LEFT JOIN refund AS r ON r.campaign = c.id LEFT JOIN seal AS s ON s.campaign = c.id
	LEFT JOIN archive AS a ON a.campaign = c.id`

func scanTotals(s db.Scan) (t Totals, err error) {
	var spec string
	var closed, shard, seq, sealed, archived, based int64
	err = s(&t.Campaign, &spec, &t.Currency, &t.Funded, &t.Granted, &t.Refunded, &t.Grants, &t.Pool, &closed, &shard,
		&seq, &t.By, &t.Why, &sealed, &archived, &based, &t.open)
	if err != nil {
		return t, err
	}
	var c hongbao.Campaign
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return t, hongbao.Errorf(hongbao.ClassBroken, "the ledger's specification of campaign %s can't be read: %w",
			t.Campaign, err)
	}
	t.Codes, t.Closed, t.Sealed, t.Places = c.Codes != nil, closed == 1, sealed == 1, c.Places()
	t.Archived, t.Based = archived == 1, based == basedAll
	if t.Closed {
		t.Closes = []payment.Close{{Shard: int(shard), Seq: seq}}
	}
	return t, nil
}

// Totals returns the ledger's counters of a campaign; false if the ledger does not have it.
func (b Books) Totals(ctx context.Context, campaign string) (Totals, bool, error) {
	t, found, err := tables.Ask("read the counts of campaign "+campaign+" in the ledger",
		totalsQuery+` WHERE c.id = $1`, []any{campaign}, scanTotals).One(ctx, b.tables)
	if err != nil || !found {
		return t, found, err
	}
	one := []Totals{t}
	err = b.addRows(ctx, one)
	return one[0], true, err
}

// addRows adds to campaigns what other tables have of them.
func (b Books) addRows(ctx context.Context, list []Totals) error {
	if err := b.addCloses(ctx, list); err != nil {
		return err
	}
	for i := range list {
		t := &list[i]
		if t.open == 0 {
			continue
		}
		var err error
		t.Earlier, err = tables.Ask("read the top-ups of campaign "+t.Campaign+" that are not dealt",
			`SELECT expected FROM generation WHERE campaign = $1 AND state <> 'dealt' ORDER BY generation`, []any{t.Campaign},
			func(s db.Scan) (before hongbao.Amount, err error) { return before, s(&before) }).All(ctx, b.tables)
		if err != nil {
			return err
		}
	}
	return nil
}

// addCloses adds the closes of all places but the first to campaigns that are sorted by id. These rows and the refund's
// row never change, so they need not be read at one instant.
func (b Books) addCloses(ctx context.Context, list []Totals) error {
	on := map[string]*Totals{}
	for i := range list {
		if t := &list[i]; t.Closed && t.Places > 1 {
			on[t.Campaign] = t
		}
	}
	if len(on) == 0 {
		return nil
	}
	rows, err := tables.PlaceCloses("read the closes that refunds are based on",
		`campaign >= $1 AND campaign <= $2 ORDER BY campaign, place`,
		list[0].Campaign, list[len(list)-1].Campaign).All(ctx, b.tables)
	for _, r := range rows {
		if t := on[r.Campaign]; t != nil {
			t.Closes = append(t.Closes, r.Close)
		}
	}
	return err
}

func totalsAfter(after string) tables.Query[Totals] {
	return tables.Ask(fmt.Sprintf("read the counts of the campaigns after %q in the ledger", after),
		totalsQuery+` WHERE c.id > $1 ORDER BY c.id LIMIT $2`, []any{after, int64(campaignRows)}, scanTotals)
}

// EachTotals calls fn with the totals of every campaign, in the order of the ids. It stops at the first error of fn,
// and returns it unchanged.
func (b Books) EachTotals(ctx context.Context, fn func(*Totals) error) error {
	return eachTotals(func(after string) ([]Totals, error) {
		list, err := totalsAfter(after).All(ctx, b.tables)
		if err == nil {
			err = b.addRows(ctx, list)
		}
		return list, err
	}, fn)
}

// eachTotals calls page for the campaigns after an id until a page is not full, and fn for each campaign.
func eachTotals(page func(after string) ([]Totals, error), fn func(*Totals) error) error {
	for after := ""; ; {
		list, err := page(after)
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
