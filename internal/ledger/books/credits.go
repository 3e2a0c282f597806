package books

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// CheckCredits compares every account with its credits, and every fund with its fundings and its client's credits. It
// reads one snapshot and returns every difference. It reads every credit and every account once, in pages: its memory
// does not grow with their number, and ledger.Config.Timeout bounds each page.
func (b Books) CheckCredits(ctx context.Context) ([]Difference, error) {
	var list []Difference
	err := b.tables.ReadPages(ctx, func(ctx context.Context, t db.Txn) (err error) {
		funds := map[side]*fundSums{}
		if list, err = checkAccounts(ctx, t, funds); err != nil {
			return err
		}
		more, err := checkFunds(ctx, t, funds)
		list = append(list, more...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("check that balances and funds are the sums of their credits: %w", err)
	}
	return list, nil
}

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

// side is an account, or a client's fund, in a currency.
type side struct{ owner, currency string }

// creditLine is a credit with its line in the statement of its account.
type creditLine struct {
	side   side
	client string
	line   int64
	amount int64
}

// creditLines reads the numbered credits, ordered by account, currency and line number. Each part of the UNION is a
// range scan of the index. A credit without a number is left out, so that its account and its fund show a difference.
func creditLines(ctx context.Context, t db.Txn) *tables.Cursor[creditLine] {
	const columns = `SELECT client, account, currency, line_no, amount FROM `
	const sql = columns + `(` + columns + `credit WHERE account = $1 AND currency = $2 AND line_no > $3
			ORDER BY line_no LIMIT $4) AS same_statement
		UNION ALL ` + columns + `(` + columns + `credit WHERE account = $1 AND currency > $2 AND line_no IS NOT NULL
			ORDER BY currency, line_no LIMIT $4) AS same_account
		UNION ALL ` + columns + `(` + columns + `credit WHERE account > $1 AND line_no IS NOT NULL
			ORDER BY account, currency, line_no LIMIT $4) AS later_accounts
		ORDER BY account, currency, line_no LIMIT $4`
	return &tables.Cursor[creditLine]{Page: func(after creditLine) ([]creditLine, error) {
		args := []any{after.side.owner, after.side.currency, after.line, int64(tables.PageRows)}
		return tables.Query[creditLine]{SQL: sql, Args: args,
			Row: func(s db.Scan) (c creditLine, err error) {
				err = s(&c.client, &c.side.owner, &c.side.currency, &c.line, &c.amount)
				return c, err
			}}.In(ctx, t)
	}}
}

type creditBalance struct {
	side             side
	balance, credits int64
}

func creditBalances(ctx context.Context, t db.Txn) *tables.Cursor[creditBalance] {
	return &tables.Cursor[creditBalance]{Page: func(after creditBalance) ([]creditBalance, error) {
		return tables.Query[creditBalance]{SQL: `SELECT id, currency, balance, credits FROM credit_account
			WHERE id >= $1 AND (id > $1 OR currency > $2) ORDER BY id, currency LIMIT $3`,
			Args: []any{after.side.owner, after.side.currency, int64(tables.PageRows)},
			Row: func(s db.Scan) (a creditBalance, err error) {
				err = s(&a.side.owner, &a.side.currency, &a.balance, &a.credits)
				return a, err
			}}.In(ctx, t)
	}}
}

func compareSides(a, b side) int {
	return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.currency, b.currency))
}

// checkAccounts compares accounts with their credits, whose line numbers must be 1, 2, 3, ... in each account. It also
// adds up the credits of each fund.
func checkAccounts(ctx context.Context, t db.Txn, funds map[side]*fundSums) (list []Difference, err error) {
	lines, accounts := creditLines(ctx, t), creditBalances(ctx, t)
	line, moreLines, err := lines.Next()
	if err != nil {
		return nil, err
	}
	account, moreAccounts, err := accounts.Next()
	for err == nil && (moreLines || moreAccounts) {
		has := creditBalance{side: account.side}
		if moreLines && (!moreAccounts || compareSides(line.side, account.side) < 0) {
			has.side = line.side // the account has no row
		} else {
			has = account
			account, moreAccounts, err = accounts.Next()
		}
		var amount, n, numbered, last int64
		for err == nil && moreLines && line.side == has.side {
			amount, n, last = amount+line.amount, n+1, line.line
			if line.line >= 1 {
				numbered++
			}
			fundOfSums(funds, line.client, line.side.currency).credit(line.amount)
			line, moreLines, err = lines.Next()
		}
		list = append(list, differences("account "+has.side.owner+", "+has.side.currency,
			expect{"sum of the credits = balance", amount, has.balance}, expect{"number of credits", n, has.credits},
			expect{"numbered lines of the statement", n, numbered}, expect{"last line of the statement", n, last})...)
	}
	return list, err
}

// fundSums is a fund, its fundings, and the sum of its client's credits. There is one for each client and currency, so
// all fit into memory.
type fundSums struct {
	funded, fundings          int64
	credited, credits, n, sum int64
}

func (f *fundSums) credit(amount int64) { f.n, f.sum = f.n+1, f.sum+amount }

func fundOfSums(funds map[side]*fundSums, client, currency string) *fundSums {
	key := side{client, currency}
	f := funds[key]
	if f == nil {
		f = &fundSums{}
		funds[key] = f
	}
	return f
}

func checkFunds(ctx context.Context, t db.Txn, funds map[side]*fundSums) (list []Difference, err error) {
	err = t.Query(ctx, `SELECT client, currency, funded, credited, credits FROM credit_fund`, nil, func(s db.Scan) error {
		var client, currency string
		var has fundSums
		err := s(&client, &currency, &has.funded, &has.credited, &has.credits)
		f := fundOfSums(funds, client, currency)
		f.funded, f.credited, f.credits = has.funded, has.credited, has.credits
		return err
	})
	if err != nil {
		return nil, err
	}
	err = t.Query(ctx, `SELECT client, currency, CAST(SUM(amount) AS DECIMAL(20, 0)) FROM credit_funding
		GROUP BY client, currency`, nil, func(s db.Scan) error {
		var client, currency string
		var fundings int64
		err := s(&client, &currency, &fundings)
		fundOfSums(funds, client, currency).fundings = fundings
		return err
	})
	for _, key := range slices.SortedFunc(maps.Keys(funds), compareSides) {
		f := funds[key]
		list = append(list, differences("fund of "+key.owner+", "+key.currency,
			expect{"sum of the fundings = funded", f.fundings, f.funded},
			expect{"sum of the credits = credited", f.sum, f.credited}, expect{"number of credits", f.n, f.credits})...)
	}
	return list, err
}
