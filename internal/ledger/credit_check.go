package ledger

import (
	"context"
	"fmt"
)

// CheckCredits compares, on one snapshot, every account with its credits, and every fund with what was put into it
// and with its client's credits: they are the two sides of the same transfers. It names every difference; a ledger in
// which nothing was credited has none. It reads every credit within Config.Timeout.
func (l *Ledger) CheckCredits(ctx context.Context) ([]Difference, error) {
	var list []Difference
	err := l.read(ctx, func(ctx context.Context, t txn) (err error) {
		if list, err = checkAccounts(ctx, t); err != nil {
			return err
		}
		more, err := checkFunds(ctx, t)
		list = append(list, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check that balances and funds are the sums of their credits: %w", err)
	}
	return list, nil
}

// expect is one comparison.
type expect struct {
	what      string
	want, got int64
}

func differences(where string, all ...expect) (list []Difference) {
	for _, e := range all {
		if e.want != e.got {
			list = append(list, Difference{Where: where, What: e.what, Want: e.want, Got: e.got})
		}
	}
	return list
}

// checkAccounts compares accounts with their credits, whose lines are numbered from 1 without a gap: no two have the
// same number.
func checkAccounts(ctx context.Context, t txn) (list []Difference, err error) {
	err = t.query(ctx, `SELECT id, currency, CAST(SUM(balance) AS DECIMAL(20, 0)), CAST(SUM(credits) AS DECIMAL(20, 0)),
		CAST(SUM(amount) AS DECIMAL(20, 0)),
		CAST(SUM(n) AS DECIMAL(20, 0)), CAST(SUM(numbered) AS DECIMAL(20, 0)), CAST(MAX(last) AS DECIMAL(20, 0)) FROM (
			SELECT id, currency, balance, credits, 0 AS amount, 0 AS n, 0 AS numbered, 0 AS last FROM credit_account
			UNION ALL SELECT account, currency, 0, 0, amount, 1, CASE WHEN line_no >= 1 THEN 1 ELSE 0 END,
				COALESCE(line_no, 0) FROM credit) AS b
		GROUP BY id, currency
		HAVING SUM(balance) <> SUM(amount) OR SUM(credits) <> SUM(n) OR SUM(numbered) <> SUM(n) OR MAX(last) <> SUM(n)
		ORDER BY id, currency`, nil, func(s scan) error {
		var id, currency string
		var balance, credits, amount, n, numbered, last int64
		err := s(&id, &currency, &balance, &credits, &amount, &n, &numbered, &last)
		list = append(list, differences("account "+id+", "+currency,
			expect{"sum of the credits = balance", amount, balance}, expect{"number of credits", n, credits},
			expect{"numbered lines of the statement", n, numbered}, expect{"last line of the statement", n, last})...)
		return err
	})
	return list, err
}

func checkFunds(ctx context.Context, t txn) (list []Difference, err error) {
	err = t.query(ctx, `SELECT client, currency, CAST(SUM(funded) AS DECIMAL(20, 0)), CAST(SUM(credited) AS DECIMAL(20, 0)),
		CAST(SUM(credits) AS DECIMAL(20, 0)),
		CAST(SUM(fundings) AS DECIMAL(20, 0)), CAST(SUM(amount) AS DECIMAL(20, 0)), CAST(SUM(n) AS DECIMAL(20, 0)) FROM (
			SELECT client, currency, funded, credited, credits, 0 AS fundings, 0 AS amount, 0 AS n FROM credit_fund
			UNION ALL SELECT client, currency, 0, 0, 0, amount, 0, 0 FROM credit_funding
			UNION ALL SELECT client, currency, 0, 0, 0, 0, amount, 1 FROM credit) AS b
		GROUP BY client, currency
		HAVING SUM(funded) <> SUM(fundings) OR SUM(credited) <> SUM(amount) OR SUM(credits) <> SUM(n)
		ORDER BY client, currency`, nil, func(s scan) error {
		var client, currency string
		var funded, credited, credits, fundings, amount, n int64
		err := s(&client, &currency, &funded, &credited, &credits, &fundings, &amount, &n)
		list = append(list, differences("fund of "+client+", "+currency,
			expect{"sum of the fundings = funded", fundings, funded}, expect{"sum of the credits = credited", amount, credited},
			expect{"number of credits", n, credits})...)
		return err
	})
	return list, err
}
