package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

func (f *fixture) bySeq(t *testing.T, shard int, first, last int64) []int64 {
	t.Helper()
	var packets []int64
	require.NoError(t, f.ledger.EachGrantBySeq(t.Context(), shard, stream.SeqRange{First: first, Last: last},
		func(g hongbao.Grant) error {
			packets = append(packets, g.Packet)
			return nil
		}))
	return packets
}

func testBySeq(t *testing.T, f *fixture) {
	const packets = 2*pageRows + 10
	f.create(t, "rain", packets)
	all := grantsOf("rain", 1, packets)
	for i := range all {
		all[i].Seq = packets - int64(i) // the last packet was granted first
	}
	all[9].Seq = all[10].Seq // Redis went back in time: two packets have the same seq
	f.settles(t, all...)
	require.Equal(t, []int64{10, 11, 9}, f.bySeq(t, 3, packets-10, packets-8))
	require.Equal(t, []int64{packets}, f.bySeq(t, 3, 0, 1))
	require.Empty(t, f.bySeq(t, 2, 1, packets))
	require.Empty(t, f.bySeq(t, 3, packets+1, packets+100))
	got := f.bySeq(t, 3, 1, packets)
	require.Len(t, got, packets, "each grant once, across pages")
	require.EqualValues(t, packets, got[0])
	require.EqualValues(t, 1, got[packets-1])
}

func testIterationError(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 10)...)
	stop := errors.New("enough")
	calls := 0
	fn := func(hongbao.Grant) error {
		calls++
		return stop
	}
	require.Equal(t, stop, f.ledger.EachGrant(t.Context(), "rain", fn))
	require.Equal(t, stop, f.ledger.EachGrantBySeq(t.Context(), 3, stream.SeqRange{First: 1, Last: 10}, fn))
	require.Equal(t, 2, calls)
}

func testTotals(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 10)
	f.settles(t, grantsOf("rain", 1, 3)...)
	f.settles(t, append(grantsOf("rain", 4, 4), grantsOf("snow", 1, 1)...)...)
	f.settles(t, grant("rain", 99))
	got, found, err := f.ledger.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, Totals{
		Campaign: "rain", Currency: testCurrency, Funded: fundedFor(10), Granted: fundedFor(4),
		Pool: fundedFor(10) - fundedFor(4), Grants: 4, Places: 1,
	}, got)
	f.refunds(t, closeOf("rain", 10, 4))
	var all []Totals
	require.NoError(t, f.ledger.EachTotals(t.Context(), func(c *Totals) error {
		all = append(all, *c)
		return nil
	}))
	require.Len(t, all, 2)
	require.Equal(t, Totals{
		Campaign: "rain", Currency: testCurrency, Funded: fundedFor(10), Granted: fundedFor(4),
		Refunded: fundedFor(10) - fundedFor(4),
		Grants:   4, Places: 1, Closed: true, Closes: []payment.Close{{Shard: 3, Seq: 5}},
	}, all[0])
	require.EqualValues(t, 1, all[1].Grants)
}

func testUnknown(t *testing.T, f *fixture) {
	_, found, err := f.ledger.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = f.ledger.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	_, found, err = f.ledger.Balance(t.Context(), "user:CNY:nobody")
	require.NoError(t, err)
	require.False(t, found)
}

func testResolve(t *testing.T, f *fixture) {
	f.disown(t, "nowhere")
	f.settles(t, grantsOf("nowhere", 1, 3)...)
	list := f.open(t)
	require.Len(t, list, 3)
	require.Empty(t, list[0].Grant.Currency, "the ledger does not know the campaign")
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: list[1].ID}, nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	_, err = f.ledger.Decide(t.Context(), Resolution{ID: list[1].ID, Decision: by("ann", "forged")}, nil)
	require.NoError(t, err)
	f.settles(t, grantsOf("nowhere", 1, 3)...) // the redelivered grant stays decided
	require.Equal(t, []model.Quarantined{list[0], list[2]}, f.open(t))
	rest, err := f.ledger.Quarantine(t.Context(), list[0].ID, 1)
	require.NoError(t, err)
	require.Equal(t, []model.Quarantined{list[2]}, rest)

	f.create(t, "rain", 1)
	f.settles(t, grantsOf("rain", 2, 2)...) // no such packet
	rain := f.open(t)[2]
	require.Equal(t, testCurrency, rain.Grant.Currency)
	one, _, err := f.ledger.Quarantined(t.Context(), rain.ID)
	require.NoError(t, err)
	require.Equal(t, rain, one)
}

func testDifferences(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	for sql, what := range map[string]string{
		`UPDATE account SET balance = balance + $1 WHERE id = 'pool:rain'`: "funded = granted + refunded + pool",
		`UPDATE campaign SET granted = granted + $1`:                       "sum of the grants = granted",
		`UPDATE campaign SET grants = grants + $1`:                         "number of the grants = grants",
		`UPDATE grants SET amount = amount + $1 WHERE packet = 2`:          "debits of the pool = sum of the grants",
		`UPDATE transfer SET amount = amount + $1 WHERE kind = 'grants'`:   "debits of the pool = sum of the grants",
		`UPDATE transfer SET grants = grants + $1 WHERE kind = 'grants'`:   "grants that the debits cover = grants",
		`UPDATE account SET balance = balance + $1 WHERE id = 'user:CNY:u41'`: "sum of the users' balances = granted + " +
			"paid from the reserve",
		`UPDATE account SET balance = CASE id WHEN 'user:CNY:u41' THEN balance + $1 ELSE balance - $1 END
			WHERE id IN ('user:CNY:u41', 'user:CNY:u82')`: "its grants + paid from the reserve = balance",
		`UPDATE account SET balance = balance - $1 WHERE kind = 'sponsor'`: "sum of all accounts = 0",
		`UPDATE campaign SET refunded = refunded + $1`:                     "what the sponsors gave = funded - refunded",
	} {
		f.tamper(t, db.Stmt{SQL: sql, Args: []any{int64(1)}})
		list, err := f.ledger.CheckConservation(t.Context())
		require.NoError(t, err)
		var found []string
		for _, d := range list {
			found = append(found, d.What)
			require.Contains(t, d.String(), d.What)
		}
		require.Contains(t, found, what, sql)
		f.tamper(t, db.Stmt{SQL: sql, Args: []any{int64(-1)}})
		f.holds(t, "rain", grantsOf("rain", 1, 4))
	}
}

func testDeletedByHand(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 1)...)
	f.tamper(t, db.Stmt{SQL: `DELETE FROM transfer`}, db.Stmt{SQL: `DELETE FROM account WHERE kind = 'pool'`})
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 2, 2)))
	require.Len(t, errs, 1)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(errs[0]), "%v", errs[0])
}

func testRecorded(t *testing.T, f *fixture) {
	f.create(t, "rain", 20)
	f.create(t, "snow", 20)
	all := append(grantsOf("rain", 1, 4), grantsOf("snow", 3, 6)...)
	f.settles(t, all...)
	ask := append(grantsOf("rain", 3, 6), grantsOf("snow", 1, 3)...)
	for i := range ask {
		ask[i].User, ask[i].Seq, ask[i].Shard = "another", 77, 1
	}
	got, before, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(ask))
	require.NoError(t, err)
	require.Empty(t, before)
	var ids []string
	for i := range got {
		require.NotEqual(t, "another", got[i].User)
		ids = append(ids, fmt.Sprint(got[i].Campaign, got[i].Packet))
	}
	require.ElementsMatch(t, []string{"rain3", "rain4", "snow3"}, ids)
	got, _, err = f.Settler.Begin(t.Context(), asking("w1", 2), testkit.Batch(nil))
	require.NoError(t, err)
	require.Empty(t, got)
}

func testSeal(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 10)
	f.settles(t, append(grantsOf("rain", 1, 3), grant("rain", 5), grant("snow", 1))...)
	require.ErrorIs(t, f.ledger.Seal(t.Context(), "rain"), ErrNotSealable)
	require.ErrorIs(t, f.ledger.Seal(t.Context(), "typo"), ErrNoCampaign)
	_, err := f.ledger.Refund(t.Context(), func() []stream.Entry {
		e := closeOf("rain", 10, 4)
		e.Seq, e.Close.GrantedAmount = 6, fundedFor(3)+planned(5)
		e.Close.LeftAmount = fundedFor(10) - e.Close.GrantedAmount
		return one(e)
	}(), 0)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.ledger.Seal(t.Context(), "rain"))
	}
	totals, _, err := f.ledger.Totals(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, totals.Sealed)
	seqs, err := f.ledger.SealedSeqs(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, map[int][]stream.SeqRange{3: {{First: 1, Last: 3}, {First: 5, Last: 5}}}, seqs)
	seqs, err = f.ledger.SealedSeqs(t.Context(), "snow")
	require.NoError(t, err)
	require.Empty(t, seqs)

	check := func() (list []Difference, pages int) {
		inner := f.ledger.tables.Store
		f.ledger.tables.Store = &watched{Store: inner, query: func(_ context.Context, sql string, _ int) {
			if strings.Contains(sql, "FROM grants") {
				pages++
			}
		}}
		list, err := f.ledger.CheckConservation(t.Context())
		f.ledger.tables.Store = inner
		require.NoError(t, err)
		return list, pages
	}
	list, pages := check()
	require.Empty(t, list)
	require.Equal(t, 1, pages, "reads one page of grants of snow, but none of the sealed rain")
	f.tamper(t, db.Stmt{SQL: `UPDATE account SET balance = balance + 1 WHERE id = $1`,
		Args: []any{tables.UserAccount(grant("rain", 2).User, testCurrency)}})
	list, pages = check()
	require.Equal(t, 3, pages, "after a difference all grants are read again, even those of the sealed rain")
	require.Equal(t, "account "+tables.UserAccount(grant("rain", 2).User, testCurrency), list[len(list)-1].Where)
	f.tamper(t, db.Stmt{SQL: `UPDATE campaign SET grants = grants + 1 WHERE id = 'rain'`})
	list, _ = check()
	require.Equal(t, "number of the grants = grants", list[0].What)
	f.tamper(t, db.Stmt{SQL: `UPDATE seal SET users = seqs, seqs = users`},
		db.Stmt{SQL: `UPDATE seal SET users = substr(users, 1, 1)`},
		db.Stmt{SQL: `INSERT INTO archive (campaign, file, sha256, grants, amount, archived_at, deleted_at)
			SELECT campaign, 'rain.csv', 'x', grants, amount, 1, 1 FROM seal`})
	_, err = f.ledger.CheckEveryAccount(t.Context())
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
}
