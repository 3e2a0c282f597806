package ledger

import (
	"slices"
	"testing"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

func testRepeat(t *testing.T, f *fixture) {
	f.create(t, "rain", 100)
	all := grantsOf("rain", 1, 70)
	f.settles(t, all[:50]...)
	f.settles(t, all[:50]...)
	f.settles(t, all[20:]...)
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	f.settles(t, reversed...)
	f.settles(t)
	f.holds(t, "rain", all)
	require.Empty(t, f.open(t))

	users := make(map[string]hongbao.Amount)
	var granted hongbao.Amount
	for _, g := range all {
		users[g.User] += g.Amount
		granted += g.Amount
	}
	for user, want := range users {
		require.Equal(t, want, f.balance(t, tables.UserAccount(user, testCurrency)))
	}
	require.Equal(t, fundedFor(100)-granted, f.balance(t, tables.PoolAccount("rain")))
	require.Equal(t, -fundedFor(100), f.balance(t, tables.SponsorAccount("acme", testCurrency)))
}

func testManyCampaigns(t *testing.T, f *fixture) {
	f.create(t, "rain", 30)
	f.create(t, "snow", 30)
	dollars := testCampaign(t, "usd", 30)
	dollars.Spec.Currency = "USD"
	_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, dollars.Spec))
	require.NoError(t, err)
	var mixed []hongbao.Grant
	for p := int64(30); p >= 1; p-- {
		mixed = append(mixed, grant("usd", p), grant("rain", p), grant("snow", p))
	}
	f.settles(t, mixed...)
	for _, id := range []string{"rain", "snow", "usd"} {
		f.holds(t, id, grantsOf(id, 1, 30))
		require.Zero(t, f.balance(t, tables.PoolAccount(id)), "every packet was granted")
	}
	user := grant("usd", 7).User
	require.Equal(t, planned(7), f.balance(t, tables.UserAccount(user, "USD")), "a user has one account per currency")
	require.Equal(t, 2*planned(7), f.balance(t, tables.UserAccount(user, testCurrency)))
}

func testCoupons(t *testing.T, f *fixture) {
	c := testCampaign(t, "coupon", 5)
	c.Spec.Kind, c.Spec.Currency, c.Spec.Total = hongbao.KindCoupon, "", 0
	_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, c.Spec))
	require.NoError(t, err)
	coupons := grantsOf("coupon", 1, 5)
	for i := range coupons {
		coupons[i].Amount = 0
		f.forged[keyOf(&coupons[i])] = 0
	}
	f.settles(t, coupons...)
	f.settles(t, coupons...)
	f.holds(t, "coupon", coupons)
	_, found, err := f.ledger.Balance(t.Context(), tables.UserAccount(coupons[0].User, ""))
	require.NoError(t, err)
	require.False(t, found, "a user who was never credited has no account")
	thief := coupons[2]
	thief.User = "thief"
	f.settles(t, thief)
	require.Len(t, f.open(t), 1)
}

func testLongBatch(t *testing.T, f *fixture) {
	const packets = MaxBatch + pageRows + 42 // not a multiple of the rows of one statement
	f.create(t, "rain", packets)
	all := grantsOf("rain", 1, packets)
	f.settles(t, all[:3]...)
	f.settles(t, all...)
	f.holds(t, "rain", all)
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
}

func testAltered(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	altered := grantsOf("rain", 1, 4)
	altered[0].User = "thief"
	altered[1].Amount += 1
	altered[2].Shard = 4
	altered[3].Seq = 99
	for range 3 { // repeated batches change nothing
		f.settles(t, append(slices.Clone(altered), grant("rain", 5))...)
	}
	list := f.open(t)
	require.Len(t, list, 4)
	slices.SortFunc(list, func(a, b model.Quarantined) int { return int(a.Grant.Packet - b.Grant.Packet) })
	for i, want := range []model.QuarantineReason{DifferentUser, DifferentAmount, DifferentShard, DifferentSeq} {
		require.Equal(t, want, list[i].Reason)
		altered[i].Currency = "CNY" // of the campaign
		require.Equal(t, altered[i], list[i].Grant)
		has := grant("rain", int64(i)+1)
		has.EntryID = ""
		require.Equal(t, has, *list[i].Has)
		require.NotZero(t, list[i].Created)
		require.Zero(t, list[i].Resolved)
	}
	require.Len(t, f.reported, 4, "each is reported once")
	f.holds(t, "rain", grantsOf("rain", 1, 5))
	require.Zero(t, f.balance(t, tables.UserAccount("thief", testCurrency)))

	again := grant("rain", 1) // as if restored to Redis after a loss: another epoch, the same facts
	again.Epoch, again.RequestID = 2, ""
	f.settles(t, again)
	require.Len(t, f.open(t), 4)
}

func testTwiceInBatch(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	other := grant("rain", 2)
	other.User = "thief"
	f.settles(t, grant("rain", 2), grant("rain", 1), other, grant("rain", 2), grant("rain", 1), grant("rain", 1))
	f.holds(t, "rain", grantsOf("rain", 1, 2))
	list := f.open(t)
	require.Len(t, list, 1)
	require.Equal(t, DifferentUser, list[0].Reason)
	require.Equal(t, "thief", list[0].Grant.User)
	require.Equal(t, grant("rain", 2).User, list[0].Has.User)
}

func testIDs(t *testing.T, f *fixture) {
	long, marks := "", ""
	for c := byte('!'); c <= '~'; c++ {
		marks += string(c)
	}
	for len(long) < hongbao.MaxIDLength {
		long += `\`
	}
	users := []string{"ann", "Ann", "ANN", marks, long, `"`, `'`, `\'`, `$1`, `?`, `%`, `;--`, "<&>"}
	f.create(t, "rain", int64(len(users)))
	grants := grantsOf("rain", 1, int64(len(users)))
	for i := range grants {
		grants[i].User, grants[i].RequestID, grants[i].Seq = users[i], users[i], 1<<62+int64(i)
	}
	f.settles(t, grants...)
	f.settles(t, grants...)
	f.holds(t, "rain", grants)
	for i, user := range users {
		require.Equal(t, grants[i].Amount, f.balance(t, tables.UserAccount(user, testCurrency)), user)
	}
	other := grants[0]
	other.User = users[1]
	f.settles(t, other)
	list := f.open(t)
	require.Len(t, list, 1)
	require.Equal(t, DifferentUser, list[0].Reason)
	require.Equal(t, users[0], list[0].Has.User)
}

func testNotPlanned(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.disown(t, "nowhere")
	more := grant("rain", 1)
	more.Amount++
	negative := grant("rain", 2)
	negative.Amount = -5
	f.forged[keyOf(&negative)] = -5
	zero, beyond, nowhere := grant("rain", 0), grant("rain", 11), grant("nowhere", 1)
	for range 2 {
		f.settles(t, more, grant("rain", 3), negative, zero, beyond, nowhere)
	}
	reasons := make(map[packetKey]model.QuarantineReason)
	for _, q := range f.open(t) {
		reasons[keyOf(&q.Grant)] = q.Reason
		require.Nil(t, q.Has)
	}
	require.Equal(t, map[packetKey]model.QuarantineReason{
		{"rain", 1}: AmountNotPlanned, {"rain", 2}: AmountNotPlanned, {"rain", 0}: PacketNotPlanned,
		{"rain", 11}: PacketNotPlanned, {"nowhere", 1}: NoCampaign,
	}, reasons)
	f.holds(t, "rain", []hongbao.Grant{grant("rain", 3)})
}

func testPlanFails(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.setPlan(t, func(_ string, packet int64) (hongbao.Amount, bool, error) {
		if packet == 2 {
			return 0, false, hongbao.Errorf(hongbao.ClassTransient, "the plan is being read")
		}
		return planned(packet), packet != 3, nil
	})
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 3)))
	require.Len(t, errs, 3)
	require.NoError(t, errs[0])
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[1]))
	require.True(t, hongbao.IsWaiting(errs[2]))
	f.holds(t, "rain", grantsOf("rain", 1, 1))
	require.Empty(t, f.open(t))

	asked := 0
	f.setPlan(t, func(string, int64) (hongbao.Amount, bool, error) {
		asked++
		return 0, false, hongbao.Outagef(hongbao.ClassTransient, "the plan's store is down")
	})
	errs = f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 4, 9)))
	require.Equal(t, 1, asked, "one timeout is enough")
	require.Len(t, errs, 6)
	for _, err := range errs {
		require.True(t, hongbao.IsOutage(err))
	}
	f.holds(t, "rain", grantsOf("rain", 1, 1))
}

func testMalformed(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	bad := grantsOf("rain", 1, 6)
	bad[0].User = ""
	bad[1].User = "a\x00b"
	bad[2].RequestID = "two words"
	bad[3].Seq = -1
	bad[4].Campaign = "No Such"
	errs := f.Handle(t.Context(), testkit.Batch(bad))
	require.Len(t, errs, 6)
	for _, err := range errs[:5] {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%v", err)
	}
	require.NoError(t, errs[5])
	f.holds(t, "rain", grantsOf("rain", 6, 6))
	require.Empty(t, f.open(t))
	bad = grantsOf("rain", 7, 8)
	for name, b := range map[string]hongbao.Batch{
		"no epoch":       {Shard: bad[0].Shard, Grants: bad},
		"another shard":  {Shard: bad[0].Shard + 1, Epoch: 1, Grants: bad},
		"negative shard": {Shard: -1, Epoch: 1, Grants: bad},
	} {
		errs := f.Handle(t.Context(), b)
		require.Len(t, errs, 2, name)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(errs[0]), name)
	}
	f.holds(t, "rain", grantsOf("rain", 6, 6))
}

func testOverdraft(t *testing.T, f *fixture) {
	f.create(t, "rain", 100)
	f.create(t, "snow", 10)
	all := append(grantsOf("rain", 1, 100), grantsOf("snow", 1, 10)...)
	for _, i := range []int{40, 90} { // two grants that are more than the funding
		all[i].Amount = fundedFor(100)
		f.forged[keyOf(&all[i])] = all[i].Amount
	}
	f.settles(t, all...)
	f.settles(t, all...)
	list := f.open(t)
	require.Len(t, list, 2)
	for _, q := range list {
		require.Equal(t, OverFunded, q.Reason)
		require.Equal(t, fundedFor(100), q.Grant.Amount)
		require.Nil(t, q.Has)
	}
	require.Len(t, f.reported, 2)
	f.holds(t, "rain", slices.Concat(all[:40], all[41:90], all[91:100]))
	f.holds(t, "snow", grantsOf("snow", 1, 10))
}

func testOverflow(t *testing.T, f *fixture) {
	const packets = 2_100 // 2,100 times MaxAmount is above 2^63
	f.create(t, "rain", packets)
	all := grantsOf("rain", 1, packets)
	for i := range all[:len(all)-1] {
		all[i].Amount = hongbao.MaxAmount
		f.forged[keyOf(&all[i])] = hongbao.MaxAmount
	}
	f.settles(t, all...)
	require.Len(t, f.open(t), packets-1)
	f.holds(t, "rain", all[len(all)-1:])
}

func testBalanceOverflow(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	rich := tables.UserAccount(grant("rain", 1).User, testCurrency)
	f.tamper(t, db.Stmt{SQL: `INSERT INTO account (id, kind, currency, balance) VALUES ($1, 'user', $2, $3)`,
		Args: []any{rich, testCurrency, int64(1<<63 - 1)}})
	errs := f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 1)))
	require.Len(t, errs, 1)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]), "%v", errs[0])
	require.Equal(t, hongbao.Amount(1<<63-1), f.balance(t, rich))
	require.Equal(t, fundedFor(10), f.balance(t, tables.PoolAccount("rain")))

	errs = f.Handle(t.Context(), testkit.Batch(grantsOf("rain", 1, 7))) // the other grants of the batch are settled
	require.Len(t, errs, 7)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]), "%v", errs[0])
	for _, err := range errs[1:] {
		require.NoError(t, err)
	}
	require.Equal(t, fundedFor(10)-fundedFor(7)+planned(1), f.balance(t, tables.PoolAccount("rain")))
	require.Equal(t, planned(2), f.balance(t, tables.UserAccount(grant("rain", 2).User, testCurrency)))
}

func testSettledAfterQuarantine(t *testing.T, f *fixture) {
	f.disown(t, "rain")
	f.settles(t, grantsOf("rain", 1, 3)...)
	require.Len(t, f.open(t), 3)
	f.create(t, "rain", 3)
	f.settles(t, grantsOf("rain", 1, 3)...) // a replay after the campaign was created
	f.holds(t, "rain", grantsOf("rain", 1, 3))
	require.Len(t, f.open(t), 3, "only an operator can decide the rows in quarantine")
}

// testGuards changes rows without the checks of this package: the database's constraints refuse the changes.
func testGuards(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	for _, sql := range []string{
		`UPDATE campaign SET granted = funded + 1`,
		`UPDATE campaign SET refunded = funded`,
		`UPDATE campaign SET granted = -1`,
		`UPDATE account SET balance = -1 WHERE kind = 'pool'`,
		`UPDATE account SET balance = -1 WHERE kind = 'user'`,
		`UPDATE grants SET amount = -1`,
		`UPDATE campaign SET state = 'refunded'`,
		`UPDATE campaign SET state = 'refunded', refunded = funded - granted - 1`,
		`UPDATE campaign SET revealed_at = 1`,
	} {
		err := f.ledger.tables.Store.Write(t.Context(), func(db.Txn) ([]db.Stmt, error) { return []db.Stmt{{SQL: sql}}, nil })
		require.ErrorIs(t, err, db.ErrOverdraw, sql)
	}
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// Grants of a campaign that the ledger does not have wait until the campaign is created or disowned (issue 8, point 3).
// No attempt is counted. Other grants of the batch are settled.
func testUnknownCampaignWaits(t *testing.T, f *fixture) {
	f.create(t, "rain", 3)
	both := append(grantsOf("lost", 1, 3), grantsOf("rain", 1, 3)...)
	for range 2 {
		errs := f.Handle(t.Context(), testkit.Batch(both))
		require.Len(t, errs, 6)
		for i, err := range errs {
			if i >= 3 {
				require.NoError(t, err, "the other grants are settled")
				continue
			}
			require.True(t, hongbao.IsWaiting(err), "%v", err)
			require.ErrorIs(t, err, ErrNoCampaign)
			require.NotSame(t, errs[(i+1)%3], err, "a shared error would count as a failure of the batch")
		}
	}
	require.Empty(t, f.open(t))
	f.holds(t, "rain", grantsOf("rain", 1, 3))

	f.create(t, "lost", 3)
	f.settles(t, both...)
	f.holds(t, "lost", grantsOf("lost", 1, 3))
	err := f.ledger.Disown(t.Context(), "lost", by("ann", "gone"))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "the ledger has the campaign")
	for _, who := range []string{"", "a b"} {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(f.ledger.Disown(t.Context(), "never", by(who, "gone"))))
	}

	f.disown(t, "never")
	f.disown(t, "never")
	f.settles(t, grantsOf("never", 1, 2)...)
	list := f.open(t)
	require.Len(t, list, 2)
	require.Equal(t, NoCampaign, list[0].Reason)
}

// testPutAside checks that PutAside sends only grants of disowned campaigns to quarantine.
func testPutAside(t *testing.T, f *fixture) {
	f.create(t, "rain", 3)
	f.disown(t, "never")
	grants := slices.Concat(grantsOf("never", 1, 2), grantsOf("lost", 1, 1), grantsOf("rain", 1, 1))
	grants = append(grants, hongbao.Grant{Campaign: "never", Packet: 3})
	for range 2 {
		errs := f.PutAside(t.Context(), testkit.Batch(grants))
		require.Equal(t, []error{nil, nil}, errs[:2])
		require.True(t, hongbao.IsWaiting(errs[2]), "%v", errs[2])
		require.ErrorIs(t, errs[2], ErrNoCampaign)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[3]), "%v", errs[3])
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[4]), "it is malformed: %v", errs[4])
		require.Len(t, f.open(t), 2)
	}
	f.holds(t, "rain", nil)
	f.holds(t, "never", nil)
}
