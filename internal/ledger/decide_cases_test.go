package ledger

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func testDecidePays(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.create(t, "rain", 10)
	paid := grantsOf("rain", 1, 3)
	f.settles(t, paid...)
	f.settles(t, secondOf(1, "bea"), secondOf(2, "bea"), secondOf(3, "cyd"))
	list := f.open(t)
	require.Len(t, list, 3)
	reserve := tables.ReserveAccount(testCurrency)

	for range 3 { // only the first call moves money
		q, err := f.ledger.Decide(ctx, Resolution{ID: list[0].ID, Pay: true, Decision: by("ann", "Redis dealt it twice")},
			f.Settler.config.Plan)
		require.NoError(t, err)
		require.Equal(t, "paid from the reserve: Redis dealt it twice", q.Resolution)
		require.Equal(t, "ann", q.ResolvedBy)
		require.False(t, q.Resolved.IsZero())
		require.Equal(t, planned(1), f.balance(t, tables.UserAccount("bea", testCurrency)))
		require.Equal(t, -planned(1), f.balance(t, reserve))
	}
	_, err := f.ledger.Decide(ctx, Resolution{ID: list[1].ID, Pay: true, Decision: by("ann", "as well")}, f.Settler.config.Plan)
	require.NoError(t, err)
	require.Equal(t, planned(1)+planned(2), f.balance(t, tables.UserAccount("bea", testCurrency)))
	require.Equal(t, -planned(1)-planned(2), f.balance(t, reserve))

	q, err := f.ledger.Decide(ctx, Resolution{ID: list[2].ID, Decision: by("bob", "forged")}, nil)
	require.NoError(t, err)
	require.Equal(t, "void: forged", q.Resolution)
	require.Zero(t, f.balance(t, tables.UserAccount("cyd", testCurrency)))
	for _, other := range []Resolution{
		{ID: list[2].ID, Pay: true, Decision: by("bob", "forged")}, {ID: list[2].ID, Decision: by("ann", "forged")},
		{ID: list[0].ID, Decision: by("ann", "no")},
	} {
		_, err := f.ledger.Decide(ctx, other, f.Settler.config.Plan)
		require.ErrorIs(t, err, ErrDecided, "the first decision stays")
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
	}
	f.settles(t, secondOf(1, "bea"), secondOf(3, "cyd")) // redelivered grants stay decided
	require.Empty(t, f.open(t))
	f.holds(t, "rain", paid)

	walked := 0
	require.NoError(t, f.ledger.EachQuarantined(ctx, func(*model.Quarantined) { walked++ }))
	all, err := f.ledger.QuarantineAll(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, 3, walked)
	one, found, err := f.ledger.Quarantined(ctx, list[2].ID)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, q, one)
	require.Equal(t, q, all[2])

	f.tamper(t, db.Stmt{SQL: `UPDATE account SET balance = balance - $2 WHERE id = $1`, Args: []any{reserve, int64(5)}})
	differences, err := f.books().CheckConservation(ctx)
	require.NoError(t, err)
	var what []string
	for _, d := range differences {
		what = append(what, d.What)
	}
	require.Contains(t, what, "what the reserve gave = payments of quarantined grants")
}

func testDecideRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.disown(t, "rain")
	f.settles(t, grantsOf("rain", 1, 2)...)
	list := f.open(t)
	require.Len(t, list, 2)
	pay := Resolution{ID: list[0].ID, Pay: true, Decision: by("ann", "fixed")}
	refused := func(d Resolution, want error) {
		t.Helper()
		_, err := f.ledger.Decide(ctx, d, f.Settler.config.Plan)
		require.ErrorIs(t, err, want)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		require.Len(t, f.open(t), 2, "nothing was decided")
	}
	refused(pay, ErrNotPayable) // no campaign
	f.create(t, "rain", 2)
	refused(pay, ErrNotPayable) // the grant can be settled now that the campaign exists
	f.settles(t, grantsOf("rain", 1, 2)...)
	refused(pay, ErrNotPayable) // it is settled
	refused(Resolution{ID: 99, Decision: by("ann", "fixed")}, ErrNotInQuarantine)
	for _, d := range []Resolution{
		{ID: 0, Decision: by("ann", "x")}, {ID: 1, Decision: by("", "x")}, {ID: 1, Decision: by("a b", "x")},
		{ID: 1, Decision: by("ann", "")}, {ID: 1, Decision: by("ann", strings.Repeat("x", 1_001))},
	} {
		_, err := f.ledger.Decide(ctx, d, f.Settler.config.Plan)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	_, err := f.ledger.Decide(ctx, Resolution{ID: list[0].ID, Decision: by("ann", "settled by a replay")}, nil)
	require.NoError(t, err)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
	require.Zero(t, f.balance(t, tables.ReserveAccount(testCurrency)))
}

func testDecideTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	f.settles(t, secondOf(1, "bea"), secondOf(2, "bea"))
	list := f.open(t)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() {
			_, errs[i] = f.ledger.Decide(t.Context(), Resolution{ID: list[i%2].ID, Pay: true, Decision: by("ann", "dealt twice")},
				f.Settler.config.Plan)
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, planned(1)+planned(2), f.balance(t, tables.UserAccount("bea", testCurrency)))
	require.Equal(t, -planned(1)-planned(2), f.balance(t, tables.ReserveAccount(testCurrency)))
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// testHookFails lets the hook OnQuarantine fail. Grants in quarantine are redelivered until the hook succeeds or an
// operator has decided about them. Their rows are written only once.
func testHookFails(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	bad := []hongbao.Grant{secondOf(1, "bea"), secondOf(2, "bea")}
	f.hookFails = hongbao.Outagef(hongbao.ClassTransient, "Redis is down")
	for round := 1; round <= 3; round++ {
		errs := f.Handle(t.Context(), testkit.Batch(append(grantsOf("rain", 3, 3), bad...)))
		require.Len(t, errs, 3)
		require.NoError(t, errs[0], "another grant is settled anyway")
		for _, err := range errs[1:] {
			require.True(t, hongbao.IsOutage(err), "the grant is redelivered without counting an attempt: %v", err)
			require.ErrorIs(t, err, f.hookFails)
		}
		require.Equal(t, round, f.hooked, "after a failure the hook is not called again in this batch")
		require.Len(t, f.open(t), 2)
	}
	f.hookFails = nil
	f.settles(t, bad...)
	require.Equal(t, 5, f.hooked, "called for both grants")
	f.settles(t, bad...)
	require.Equal(t, 7, f.hooked, "called for each redelivery of an undecided grant")
	for _, q := range f.open(t) {
		_, err := f.ledger.Decide(t.Context(), Resolution{ID: q.ID, Decision: by("ann", "forged")}, nil)
		require.NoError(t, err)
	}
	f.settles(t, bad...)
	require.Equal(t, 7, f.hooked, "not called for a decided grant")
	f.holds(t, "rain", grantsOf("rain", 1, 3))
}

// testDecidePaysOnce checks that a user is paid for a packet only once, even if the packet has several events, several
// rows in quarantine, or concurrent decisions about them.
func testDecidePaysOnce(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	again := secondOf(1, grant("rain", 1).User) // the packet's paid user, with another seq
	bea, beaAgain := secondOf(2, "bea"), secondOf(2, "bea")
	beaAgain.Seq += 1000
	f.settles(t, again, bea, beaAgain)
	list := f.open(t)
	require.Len(t, list, 3)
	pay := func(q model.Quarantined) error {
		_, err := f.ledger.Decide(t.Context(), Resolution{ID: q.ID, Pay: true, Decision: by("ann", "dealt twice")},
			f.Settler.config.Plan)
		return err
	}
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, ErrNotPayable)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	refused(pay(list[0]))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { errs[i] = pay(list[1+i%2]) })
	}
	wg.Wait()
	paid := 0
	for _, err := range errs {
		if err == nil {
			paid++
			continue
		}
		refused(err)
	}
	require.Equal(t, 4, paid, "all decisions about the row that was paid first succeed")
	require.Equal(t, planned(2), f.balance(t, tables.UserAccount("bea", testCurrency)))
	require.Equal(t, planned(1), f.balance(t, tables.UserAccount(again.User, testCurrency)))
	require.Equal(t, -planned(2), f.balance(t, tables.ReserveAccount(testCurrency)))
	require.Len(t, f.open(t), 2)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// testDecidePaysNoMore checks that a decision never pays more than the plan's amount.
func testDecidePaysNoMore(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	more, less, none := grant("rain", 1), grant("rain", 2), grant("rain", 11)
	more.Amount++
	less.Amount--
	f.settles(t, more, less, none)
	list := f.open(t)
	require.Len(t, list, 3)
	plan := ledgertest.Plan(func(_ string, packet int64) (hongbao.Amount, bool, error) {
		return planned(packet), packet <= 10,
			nil
	})
	for i, want := range []error{ErrNotPayable, nil, ErrNotPayable} {
		_, err := f.ledger.Decide(t.Context(), Resolution{ID: list[i].ID, Pay: true, Decision: by("ann", "x")}, plan)
		require.ErrorIs(t, err, want)
	}
	require.Equal(t, -less.Amount, f.balance(t, tables.ReserveAccount(testCurrency)))
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: list[0].ID, Pay: true, Decision: by("ann", "x")}, nil)
	require.ErrorIs(t, err, ErrNotPayable, "the plan is unknown")
}

// testVoidStaysVoid checks that a void grant is not paid when it is redelivered, although it could be settled now.
func testVoidStaysVoid(t *testing.T, f *fixture) {
	f.disown(t, "rain")
	f.settles(t, grantsOf("rain", 1, 3)...)
	list := f.open(t)
	require.Len(t, list, 3)
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: list[1].ID, Decision: by("ann", "forged")}, nil)
	require.NoError(t, err)
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	f.holds(t, "rain", []hongbao.Grant{grant("rain", 1), grant("rain", 3), grant("rain", 4)})
	other := secondOf(2, "bea") // a grant of the same packet to another user
	f.settles(t, grant("rain", 2), other, grant("rain", 2))
	f.holds(t, "rain", []hongbao.Grant{grant("rain", 1), other, grant("rain", 3), grant("rain", 4)})
	require.Len(t, f.open(t), 2)
}
