package books

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Difference is a place where two parts of the ledger disagree.
type Difference struct {
	// Where is a campaign, a currency, or an account that was credited.
	Where string
	// What says which two values should be equal.
	What      string
	Want, Got int64
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: want %d, got %d", d.Where, d.What, d.Want, d.Got)
}

// CheckConservation compares all values in the ledger that must be equal: first the sums, then each user's balance. It
// reads one snapshot. It returns every difference, but names at most 1,000 users. No difference means that no money was
// created, lost, paid to a wrong user, or paid twice for a packet. It reads grants, transfers and accounts once, in
// pages: its memory does not grow with their number, and ledger.Config.Timeout bounds each page. For a sealed campaign it
// reads the seal instead of the grants and debits, and of the accounts the database returns only those whose balance
// differs from their base.
//
// Users are compared by sums over 2^18 groups of accounts. If a group differs, everything is read once more, including
// the grants of sealed campaigns, and the group's accounts are checked one by one. Grants of archived campaigns can't
// be read: a group with such grants is named as a whole. Two errors that cancel each other out are missed if they fall
// into the same group; the probability is 1 in 262,144.
func (b Books) CheckConservation(ctx context.Context) ([]Difference, error) {
	return b.check(ctx, true)
}

// CheckEveryAccount is CheckConservation without bases and seals: it reads every account, every debit and every grant
// that is not archived. So it also finds an account that was deleted, or whose base was changed together with its
// balance. If it finds nothing, it checks the bases, too.
func (b Books) CheckEveryAccount(ctx context.Context) ([]Difference, error) {
	list, err := b.check(ctx, false)
	if err != nil || len(list) > 0 {
		return list, err
	}
	return b.CheckConservation(ctx)
}

func (b Books) check(ctx context.Context, seals bool) ([]Difference, error) {
	sums := &book{groups: make([]int64, userGroups), currencies: make(map[string]*currencyBook), seals: seals,
		dialect: b.tables.Dialect}
	err := b.tables.ReadPages(ctx, func(ctx context.Context, t db.Txn) error {
		if err := sums.read(ctx, t); err != nil {
			return err
		}
		sums.compareCurrencies()
		return sums.compareUsers(ctx, t)
	})
	if err != nil {
		return nil, fmt.Errorf("check that the ledger conserves money: %w", err)
	}
	return sums.list, nil
}

const (
	userGroups = 1 << 18
	// maxSuspects bounds the accounts that are checked one by one. maxUsers bounds the accounts that are named.
	maxSuspects, maxUsers = 100_000, 1_000
)

// book contains the sums over the rows of a ledger.
type book struct {
	list []Difference
	// seals is false if bases and seals are ignored.
	seals      bool
	dialect    *db.Dialect
	currencies map[string]*currencyBook
	// groups has a number for each group of accounts: the sum of the balances minus what the accounts' users were paid.
	// It is 0 in a correct ledger.
	groups []int64
	// suspects are the accounts of groups that differ. The second pass adds up only these accounts.
	suspects map[string]*suspect
	// archived has, for each group that differs, the amount that archived campaigns paid to it. The second pass fills it.
	archived map[int64]int64
}

type currencyBook struct{ all, users, sponsors, reserve, decided, granted, funded int64 }

type suspect struct{ paid, balance int64 }

func (b *book) currency(name string) *currencyBook {
	c := b.currencies[name]
	if c == nil {
		c = &currencyBook{}
		b.currencies[name] = c
	}
	return c
}

// userGroup returns the group of an account. It must never change: seals have sums by group.
func userGroup(account string) int64 { return int64(xxhash.Sum64String(account) % userGroups) }

func (b *book) group(account string) *int64 { return &b.groups[userGroup(account)] }

// paid counts an amount that was paid to an account's user.
func (b *book) paid(account string, amount int64) {
	if b.suspects == nil {
		*b.group(account) -= amount
	} else if s := b.suspect(account); s != nil {
		s.paid += amount
	}
}

func (b *book) balance(account string, amount int64) {
	if b.suspects == nil {
		*b.group(account) += amount
	} else if s := b.suspect(account); s != nil {
		s.balance += amount
	}
}

// suspect returns the sums of an account whose group differs. It returns nil for other accounts, and for new ones once
// there are maxSuspects.
func (b *book) suspect(account string) *suspect {
	s := b.suspects[account]
	if s == nil && *b.group(account) != 0 && len(b.suspects) < maxSuspects {
		s = &suspect{}
		b.suspects[account] = s
	}
	return s
}

func (b *book) equal(where, what string, want, got int64) {
	if want != got {
		b.list = append(b.list, Difference{Where: where, What: what, Want: want, Got: got})
	}
}

// read adds up the campaigns, the accounts and the payments from the reserve.
func (b *book) read(ctx context.Context, t db.Txn) error {
	page := func(after string) ([]Totals, error) { return totalsAfter(after).In(ctx, t) }
	if err := eachTotals(page, func(c *Totals) error { return b.campaign(ctx, t, c) }); err != nil {
		return err
	}
	if err := b.accounts(ctx, t); err != nil {
		return err
	}
	return b.decided(ctx, t)
}

// campaign compares the counters of one campaign with its grants and with the debits of its pool.
func (b *book) campaign(ctx context.Context, t db.Txn, c *Totals) error {
	switch {
	case c.Sealed && b.suspects == nil && (b.seals || c.Archived):
		return b.sealed(ctx, t, c)
	case c.Archived && b.suspects != nil:
		return b.archivedGroups(ctx, t, c.Campaign)
	}
	grants, amount, err := b.grants(ctx, t, c, 0)
	if err != nil || b.suspects != nil {
		return err
	}
	debits, debited, err := sumDebits(ctx, t, c.Campaign)
	if err != nil {
		return err
	}
	b.counts(c, grants, amount, debits, debited)
	return nil
}

// grants adds up the campaign's grants after a packet.
func (b *book) grants(ctx context.Context, t db.Txn, c *Totals, after int64) (grants, amount int64, err error) {
	err = tables.EachPaid(ctx, t, c.Campaign, after, func(g *tables.PaidGrant) error {
		grants, amount = grants+1, amount+int64(g.Amount)
		if g.Amount > 0 {
			b.paid(tables.UserAccount(g.User, c.Currency), int64(g.Amount))
		}
		return nil
	})
	return grants, amount, err
}

// sealed compares the counters of a sealed campaign with its seal. Unless seals are ignored, it does not read the
// debits, since Seal has compared them with the grants.
func (b *book) sealed(ctx context.Context, t db.Txn, c *Totals) error {
	var grants, amount, based int64
	err := t.Query(ctx, `SELECT grants, amount, based FROM seal WHERE campaign = $1 LIMIT 1`, []any{c.Campaign},
		func(s db.Scan) error { return s(&grants, &amount, &based) })
	if err != nil {
		return err
	}
	debits, debited := amount, grants
	if !b.seals {
		debits, debited, err = sumDebits(ctx, t, c.Campaign)
	}
	b.counts(c, grants, amount, debits, debited)
	if err != nil {
		return err
	}
	if !b.seals { // an archived campaign
		return sealGroups(ctx, t, c.Campaign, func(group, amount int64) { b.groups[group] -= amount })
	}
	var rest int64
	if based != basedAll {
		_, rest, err = b.grants(ctx, t, c, based)
	}
	book := b.currency(c.Currency)
	book.all, book.users = book.all+amount-rest, book.users+amount-rest
	return err
}

// sealGroups calls fn for each group of users, with the amount that a sealed campaign paid to it.
func sealGroups(ctx context.Context, t db.Txn, campaign string, fn func(group, amount int64)) error {
	var users []byte
	err := t.Query(ctx, `SELECT users FROM seal WHERE campaign = $1 LIMIT 1`, []any{campaign},
		func(s db.Scan) error { return s(&users) })
	if err != nil {
		return err
	}
	return eachGroup(campaign, users, fn)
}

// archivedGroups adds what an archived campaign paid to the groups that differ.
func (b *book) archivedGroups(ctx context.Context, t db.Txn, campaign string) error {
	return sealGroups(ctx, t, campaign, func(group, amount int64) {
		if b.groups[group] != 0 {
			b.archived[group] += amount
		}
	})
}

// counts compares the counters of a campaign with the sums over its rows.
func (b *book) counts(c *Totals, grants, amount, debits, debited int64) {
	where := "campaign " + c.Campaign
	b.equal(where, "funded = granted + refunded + pool", int64(c.Funded), int64(c.Granted+c.Refunded+c.Pool))
	b.equal(where, "sum of the grants = granted", int64(c.Granted), amount)
	b.equal(where, "number of the grants = grants", c.Grants, grants)
	b.equal(where, "debits of the pool = sum of the grants", amount, debits)
	b.equal(where, "grants that the debits cover = grants", grants, debited)
	book := b.currency(c.Currency)
	book.granted += int64(c.Granted)
	book.funded += int64(c.Funded - c.Refunded)
}

// sumDebits adds up the transfers out of a campaign's pool to users.
func sumDebits(ctx context.Context, t db.Txn, campaign string) (amount, grants int64, err error) {
	after := ""
	err = tables.EachPage(ctx, t, `SELECT id, kind, amount, grants FROM transfer WHERE campaign = $1 AND id > $2
		ORDER BY id LIMIT $3`, func() []any { return []any{campaign, after} }, func(s db.Scan) error {
		var kind string
		var money, covers int64
		if err := s(&after, &kind, &money, &covers); err != nil {
			return err
		}
		if kind == "grants" {
			amount, grants = amount+money, grants+covers
		}
		return nil
	})
	return amount, grants, err
}

// accounts adds up the balances. Unless bases are ignored, it adds up only the parts of the balances above the bases;
// only an account with money or a base has such a part.
func (b *book) accounts(ctx context.Context, t db.Txn) error {
	if b.seals && b.suspects == nil {
		return b.addChangedAccounts(ctx, t)
	}
	after := ""
	return tables.EachPage(ctx, t, `SELECT id, kind, currency, balance FROM account WHERE id > $1 ORDER BY id LIMIT $2`,
		func() []any { return []any{after} }, func(s db.Scan) (err error) {
			after, err = b.account(s)
			return err
		})
}

// account adds a row of table account, and returns its id.
func (b *book) account(s db.Scan) (id string, err error) {
	var kind, currency string
	var balance int64
	if err := s(&id, &kind, &currency, &balance); err != nil {
		return id, err
	}
	if kind == "user" {
		b.balance(id, balance)
	}
	if b.suspects == nil {
		b.currency(currency).add(id, kind, balance)
	}
	return id, nil
}

func (c *currencyBook) add(account, kind string, balance int64) {
	c.all += balance
	switch {
	case kind == "user":
		c.users += balance
	case kind == "sponsor" && strings.HasPrefix(account, tables.ReserveAccount("")):
		c.reserve -= balance
	case kind == "sponsor":
		c.sponsors -= balance
	}
}

// compareCurrencies compares the sums that must be equal in double entry.
func (b *book) compareCurrencies() {
	for _, name := range slices.Sorted(maps.Keys(b.currencies)) {
		c, where := b.currencies[name], fmt.Sprintf("currency %q", name)
		b.equal(where, "sum of all accounts = 0", 0, c.all)
		b.equal(where, "sum of the users' balances = granted + paid from the reserve", c.granted+c.decided, c.users)
		b.equal(where, "what the reserve gave = payments of quarantined grants", c.decided, c.reserve)
		b.equal(where, "what the sponsors gave = funded - refunded", c.funded, c.sponsors)
	}
}

// compareUsers names the users whose balance differs from what they were paid. It reads everything again only if a
// group differs.
func (b *book) compareUsers(ctx context.Context, t db.Txn) error {
	if !slices.ContainsFunc(b.groups, func(n int64) bool { return n != 0 }) {
		return nil
	}
	b.suspects, b.archived = make(map[string]*suspect), make(map[int64]int64)
	if err := b.read(ctx, t); err != nil {
		return err
	}
	for group, paid := range b.archived {
		b.compareGroup(group, paid)
	}
	wrong := slices.SortedFunc(maps.Keys(b.suspects), cmp.Compare)
	wrong = slices.DeleteFunc(wrong, func(id string) bool { return b.suspects[id].paid == b.suspects[id].balance })
	for _, id := range wrong[:min(len(wrong), maxUsers)] {
		b.equal("account "+id, "its grants + paid from the reserve = balance", b.suspects[id].paid, b.suspects[id].balance)
		b.groups[userGroup(id)] = 0
	}
	b.compareRest()
	return nil
}

// compareRest names the groups that differ and of which no account is named: then the bases are wrong, not the
// balances.
func (b *book) compareRest() {
	for group, n := range b.groups {
		if n != 0 && len(b.list) < maxUsers {
			b.equal(fmt.Sprintf("group %d of accounts", group),
				"balances above their bases = grants that no base includes + paid from the reserve", 0, n)
		}
	}
}

// compareGroup compares a group of accounts as a whole, because some of its users' grants are in archive files. It
// removes the group's accounts from the suspects, so they are not checked one by one.
func (b *book) compareGroup(group, paid int64) {
	balance, example := int64(0), ""
	for id, s := range b.suspects {
		if userGroup(id) == group {
			paid, balance, example = paid+s.paid, balance+s.balance, max(example, id)
			delete(b.suspects, id)
		}
	}
	if paid != balance {
		b.groups[group] = 0
	}
	b.equal(fmt.Sprintf("group %d of accounts, with %s", group, example),
		"their grants, also archived ones, + paid from the reserve = their balances", paid, balance)
}
