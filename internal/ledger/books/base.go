package books

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// baseRows is how many grants one transaction adds to the bases of their accounts.
const baseRows = 5_000

// basedAll is the value of seal.based once the bases include all grants of the campaign.
const basedAll = math.MaxInt64

// addBases adds the grants of a sealed campaign to the bases of their accounts, in transactions of some rows.
// Concurrent calls add each row once. It changes nothing if the campaign has no seal.
func (b Books) addBases(ctx context.Context, c *Totals, rows int) error {
	for done := false; !done; {
		err := b.tables.Write(ctx, func(ctx context.Context, t db.Txn) (none []db.Stmt, err error) {
			done, err = b.addBaseChunk(ctx, t, c, rows)
			return nil, err
		})
		if err != nil {
			return fmt.Errorf("add the grants of campaign %s to the bases of their accounts: %w", c.Campaign, err)
		}
	}
	return nil
}

// finishSeal adds what the bases lack of a sealed campaign, because the grants will be deleted.
func (b Books) finishSeal(ctx context.Context, campaign string) error {
	c, found, err := b.Totals(ctx, campaign)
	if err != nil || !found || !c.Sealed || c.Based {
		return err
	}
	return b.addBases(ctx, &c, baseRows)
}

func (b Books) addBaseChunk(ctx context.Context, t db.Txn, c *Totals, rows int) (done bool, err error) {
	based, found, err := tables.Query[int64]{SQL: `SELECT based FROM seal WHERE campaign = $1`, Args: []any{c.Campaign},
		Row: tables.Number}.First(ctx, t)
	if err != nil || !found || based == basedAll {
		return true, err
	}
	page, err := tables.PaidAfter(c.Campaign, based, int64(rows)).In(ctx, t)
	if err != nil {
		return false, err
	}
	next := int64(basedAll)
	if len(page) == rows {
		next = page[rows-1].Packet
	}
	var changed int64
	err = t.Run(ctx, db.Stmt{SQL: `UPDATE seal SET based = $3 WHERE campaign = $1 AND based = $2`,
		Args: []any{c.Campaign, based, next}, Changed: &changed})
	if err != nil || changed == 0 { // another process has added the chunk
		return false, err
	}
	return next == basedAll, b.addToBases(ctx, t, c, page)
}

func (b Books) addToBases(ctx context.Context, t db.Txn, c *Totals, page []tables.PaidGrant) error {
	slices.SortFunc(page, func(a, b tables.PaidGrant) int { return cmp.Compare(a.User, b.User) })
	var ids []string
	var amounts []int64
	for _, g := range page {
		id := tables.UserAccount(g.User, c.Currency)
		switch n := len(ids); {
		case g.Amount == 0:
		case n > 0 && ids[n-1] == id:
			amounts[n-1] += int64(g.Amount)
		default:
			ids, amounts = append(ids, id), append(amounts, int64(g.Amount))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var changed int64
	err := t.Run(ctx, db.Stmt{SQL: b.tables.Dialect.AddToBases, Args: []any{db.Table{ids, amounts}}, Changed: &changed})
	if err == nil && changed != int64(len(ids)) {
		err = hongbao.Errorf(hongbao.ClassBroken, "%d accounts were paid, but the ledger has only %d of them: run "+
			"`hongbao audit --full`", len(ids), changed)
	}
	return err
}

// addChangedAccounts adds up the accounts whose balance differs from their base. An index on them would make it
// independent of the number of accounts, but each credit would write to the index.
func (b *book) addChangedAccounts(ctx context.Context, t db.Txn) error {
	return b.dialect.Parts(ctx, t, func(where string, args ...any) error {
		return t.Query(ctx, `SELECT id, kind, currency, balance - base FROM account WHERE balance <> base AND `+where, args,
			func(s db.Scan) error { _, err := b.account(s); return err })
	})
}
