package settlement

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// secondOf is a grant of a packet that the ledger has for somebody else.
func secondOf(packet int64, user string) hongbao.Grant {
	g := grant("rain", packet)
	g.User, g.Seq = user, 1000+packet
	return g
}

func testDecidePays(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.create(t, "rain", 10)
	paid := grantsOf("rain", 1, 3)
	f.settles(t, paid...)
	f.settles(t, secondOf(1, "bea"), secondOf(2, "bea"), secondOf(3, "cyd"))
	list := f.open(t)
	require.Len(t, list, 3)
	reserve := ReserveAccount(testCurrency)

	for range 3 { // a repeat moves nothing
		q, err := f.ledger.Decide(ctx, Decision{ID: list[0].ID, Pay: true, By: "ann", Why: "Redis dealt it twice"})
		require.NoError(t, err)
		require.Equal(t, "paid from the reserve: Redis dealt it twice", q.Resolution)
		require.Equal(t, "ann", q.ResolvedBy)
		require.False(t, q.Resolved.IsZero())
		require.Equal(t, planned(1), f.balance(t, UserAccount("bea", testCurrency)))
		require.Equal(t, -planned(1), f.balance(t, reserve))
	}
	_, err := f.ledger.Decide(ctx, Decision{ID: list[1].ID, Pay: true, By: "ann", Why: "as well"})
	require.NoError(t, err)
	require.Equal(t, planned(1)+planned(2), f.balance(t, UserAccount("bea", testCurrency)))
	require.Equal(t, -planned(1)-planned(2), f.balance(t, reserve))

	q, err := f.ledger.Decide(ctx, Decision{ID: list[2].ID, By: "bob", Why: "forged"})
	require.NoError(t, err)
	require.Equal(t, "void: forged", q.Resolution)
	require.Zero(t, f.balance(t, UserAccount("cyd", testCurrency)))
	for _, other := range []Decision{
		{ID: list[2].ID, Pay: true, By: "bob", Why: "forged"}, {ID: list[2].ID, By: "ann", Why: "forged"}, {ID: list[0].ID, By: "ann", Why: "no"},
	} {
		_, err := f.ledger.Decide(ctx, other)
		require.ErrorIs(t, err, ErrDecided, "the first decision stands")
		require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
	}
	f.settles(t, secondOf(1, "bea"), secondOf(3, "cyd")) // they come again: decided is decided
	require.Empty(t, f.open(t))
	f.holds(t, "rain", paid)

	all, err := f.ledger.QuarantineAll(ctx, 0, 10)
	require.NoError(t, err)
	require.Len(t, all, 3)
	one, found, err := f.ledger.Quarantined(ctx, list[2].ID)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, q, one)
	require.Equal(t, q, all[2])

	f.tamper(t, stmt{sql: `UPDATE account SET balance = balance - $2 WHERE id = $1`, args: []any{reserve, int64(5)}})
	differences, err := f.ledger.CheckConservation(ctx)
	require.NoError(t, err)
	var what []string
	for _, d := range differences {
		what = append(what, d.What)
	}
	require.Contains(t, what, "what the reserve gave = payments of quarantined grants")
}

func testDecideRefuses(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.settles(t, grantsOf("rain", 1, 2)...)
	list := f.open(t)
	require.Len(t, list, 2)
	pay := Decision{ID: list[0].ID, Pay: true, By: "ann", Why: "mended"}
	refused := func(d Decision, want error) {
		t.Helper()
		_, err := f.ledger.Decide(ctx, d)
		require.ErrorIs(t, err, want)
		require.Equal(t, hongbao.Permanent, hongbao.ClassOf(err))
		require.Len(t, f.open(t), 2, "nothing was decided")
	}
	refused(pay, ErrNotPayable) // no campaign
	f.create(t, "rain", 2)
	refused(pay, ErrNotPayable) // it can be settled now
	f.settles(t, grantsOf("rain", 1, 2)...)
	refused(pay, ErrNotPayable) // it is settled
	refused(Decision{ID: 99, By: "ann", Why: "mended"}, ErrNotInQuarantine)
	for _, d := range []Decision{
		{ID: 0, By: "ann", Why: "x"}, {ID: 1, By: "", Why: "x"}, {ID: 1, By: "a b", Why: "x"}, {ID: 1, By: "ann"},
		{ID: 1, By: "ann", Why: strings.Repeat("x", maxWhy+1)},
	} {
		_, err := f.ledger.Decide(ctx, d)
		require.Equal(t, hongbao.Permanent, hongbao.ClassOf(err))
	}
	_, err := f.ledger.Decide(ctx, Decision{ID: list[0].ID, By: "ann", Why: "settled by a replay"})
	require.NoError(t, err)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
	require.Zero(t, f.balance(t, ReserveAccount(testCurrency)))
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
			_, errs[i] = f.ledger.Decide(t.Context(), Decision{ID: list[i%2].ID, Pay: true, By: "ann", Why: "dealt twice"})
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, planned(1)+planned(2), f.balance(t, UserAccount("bea", testCurrency)))
	require.Equal(t, -planned(1)-planned(2), f.balance(t, ReserveAccount(testCurrency)))
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// testHookFails: what OnQuarantine could not do is not lost. The grant comes again, in the same batch as others that are in
// quarantine already, until the hook has done its part or a person has decided; the row is written once.
func testHookFails(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	bad := []hongbao.Grant{secondOf(1, "bea"), secondOf(2, "bea")}
	f.hookFails = hongbao.Outagef(hongbao.Transient, "redis is away")
	for round := 1; round <= 3; round++ {
		errs := f.Handle(t.Context(), append(grantsOf("rain", 3, 3), bad...))
		require.Len(t, errs, 3)
		require.NoError(t, errs[0], "another grant is settled all the same")
		for _, err := range errs[1:] {
			require.True(t, hongbao.IsOutage(err), "it comes again and takes no attempt: %v", err)
			require.ErrorIs(t, err, f.hookFails)
		}
		require.Equal(t, round, f.hooked, "the first failure ends it, the rest comes again as well")
		require.Len(t, f.open(t), 2)
	}
	f.hookFails = nil
	f.settles(t, bad...)
	require.Equal(t, 5, f.hooked, "for both of them")
	f.settles(t, bad...)
	require.Equal(t, 7, f.hooked, "each time that one comes which nobody has decided")
	for _, q := range f.open(t) {
		_, err := f.ledger.Decide(t.Context(), Decision{ID: q.ID, By: "ann", Why: "forged"})
		require.NoError(t, err)
	}
	f.settles(t, bad...)
	require.Equal(t, 7, f.hooked, "decided is decided")
	f.holds(t, "rain", grantsOf("rain", 1, 3))
}
