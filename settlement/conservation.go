package settlement

import (
	"context"
	"fmt"
)

// Difference is a place where the ledger does not agree with itself.
type Difference struct {
	// Where is a campaign, a currency, or an account that credits were booked on.
	Where string
	// What says which two things ought to be equal.
	What      string
	Want, Got int64
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: want %d, got %d", d.Where, d.What, d.Want, d.Got)
}

// differences compares the counts of one campaign with each other.
func (t *Totals) differences() []Difference {
	var list []Difference
	equal := func(what string, want, got int64) {
		if want != got {
			list = append(list, Difference{Where: "campaign " + t.Campaign, What: what, Want: want, Got: got})
		}
	}
	equal("funded = granted + refunded + pool", int64(t.Funded), int64(t.Granted+t.Refunded+t.Pool))
	equal("sum of the grants = granted", int64(t.Granted), int64(t.GrantsAmount))
	equal("debits of the pool = sum of the grants", int64(t.GrantsAmount), int64(t.Debits))
	equal("grants that the debits cover = grants", t.Grants, t.DebitedGrants)
	return list
}

// bookQuery gives, for each currency, the sums that the double entry ties together.
const bookQuery = `SELECT a.currency,
	CAST(SUM(a.balance) AS bigint),
	CAST(SUM(CASE WHEN a.kind = 'user' THEN a.balance ELSE 0 END) AS bigint),
	CAST(SUM(CASE WHEN a.kind = 'sponsor' AND a.id NOT LIKE 'reserve:%' THEN -a.balance ELSE 0 END) AS bigint),
	CAST(SUM(CASE WHEN a.id LIKE 'reserve:%' THEN -a.balance ELSE 0 END) AS bigint),
	(SELECT CAST(COALESCE(SUM(t.amount), 0) AS bigint) FROM transfer AS t JOIN campaign AS c ON c.id = t.campaign
		WHERE t.id LIKE 'quarantine:%' AND c.currency = a.currency),
	(SELECT CAST(COALESCE(SUM(granted), 0) AS bigint) FROM campaign WHERE currency = a.currency),
	(SELECT CAST(COALESCE(SUM(funded - refunded), 0) AS bigint) FROM campaign WHERE currency = a.currency)
	FROM account AS a GROUP BY a.currency ORDER BY a.currency`

// usersQuery gives the users whose balance is not what they were paid: the sum of their grants and of what was paid from the reserve.
func usersQuery(account string) string {
	return `SELECT id, CAST(SUM(paid) AS bigint), CAST(SUM(balance) AS bigint) FROM (
		SELECT id, balance, 0 AS paid FROM account WHERE kind = 'user'
		UNION ALL SELECT ` + account + `, 0, g.amount FROM grants AS g JOIN campaign AS c ON c.id = g.campaign WHERE g.amount > 0
		UNION ALL SELECT credit, 0, amount FROM transfer WHERE id LIKE 'quarantine:%') AS b
	GROUP BY id HAVING SUM(balance) <> SUM(paid) ORDER BY id LIMIT 1000`
}

// CheckConservation compares everything in the ledger that must be equal, the sums and then each user's balance, both on one
// snapshot, and names every difference, of users the first 1,000; none means that no money was made or lost in it, or given to
// somebody else. It reads every grant twice, each time within Config.Timeout.
func (l *Ledger) CheckConservation(ctx context.Context) ([]Difference, error) {
	var list []Difference
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		list = nil
		err := t.query(ctx, totalsQuery+` ORDER BY c.id`, nil, func(s scan) error {
			totals, err := scanTotals(s)
			list = append(list, totals.differences()...)
			return err
		})
		if err != nil {
			return err
		}
		return t.query(ctx, bookQuery, nil, func(s scan) error {
			more, err := scanBook(s)
			list = append(list, more...)
			return err
		})
	})
	if err == nil {
		err = l.checkUsers(ctx, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("check that the ledger conserves money: %w", err)
	}
	return list, nil
}

func (l *Ledger) checkUsers(ctx context.Context, list *[]Difference) error {
	sums := len(*list)
	return l.read(ctx, func(ctx context.Context, t txn) error {
		*list = (*list)[:sums]
		return t.query(ctx, usersQuery(l.dialect.userAccount), nil, func(s scan) error {
			d := Difference{What: "its grants + paid from the reserve = balance"}
			err := s(&d.Where, &d.Want, &d.Got)
			d.Where = "account " + d.Where
			*list = append(*list, d)
			return err
		})
	})
}

func scanBook(s scan) ([]Difference, error) {
	var currency string
	var all, users, sponsors, reserve, decided, granted, funded int64
	if err := s(&currency, &all, &users, &sponsors, &reserve, &decided, &granted, &funded); err != nil {
		return nil, err
	}
	var list []Difference
	equal := func(what string, want, got int64) {
		if want != got {
			list = append(list, Difference{Where: fmt.Sprintf("currency %q", currency), What: what, Want: want, Got: got})
		}
	}
	equal("sum of all accounts = 0", 0, all)
	equal("sum of the users' balances = granted + paid from the reserve", granted+decided, users)
	equal("what the reserve gave = payments of quarantined grants", decided, reserve)
	equal("what the sponsors gave = funded - refunded", funded, sponsors)
	return list, nil
}
