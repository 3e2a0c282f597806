package ledger

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func one(closed stream.Entry) []stream.Entry { return []stream.Entry{closed} }

func (f *fixture) refunds(t *testing.T, closed stream.Entry) payment.Refund {
	t.Helper()
	r, err := f.ledger.Refund(t.Context(), one(closed), 0)
	require.NoError(t, err)
	require.Equal(t, closed.Close.LeftAmount, r.Amount)
	return r
}

// refundedOnce checks that the campaign has one refund, that the sponsor has the money back, and that the pool is
// empty.
func (f *fixture) refundedOnce(t *testing.T, closed stream.Entry) {
	t.Helper()
	c, _, err := f.ledger.Campaign(t.Context(), closed.Campaign)
	require.NoError(t, err)
	require.Equal(t, model.MoneyRefunded, c.State)
	require.Equal(t, closed.Close.GrantedAmount, c.Granted)
	require.Equal(t, closed.Close.LeftAmount, c.Refunded)
	require.Zero(t, f.balance(t, tables.PoolAccount(closed.Campaign)))
	require.Equal(t, -closed.Close.GrantedAmount, f.balance(t, tables.SponsorAccount("acme", testCurrency)))
	require.EqualValues(t, 1, f.count(t, `SELECT COUNT(*) FROM refund`))
	require.EqualValues(t, 1, f.count(t, `SELECT COUNT(*) FROM transfer WHERE kind = 'refund'`))
	f.holds(t, closed.Campaign, grantsOf(closed.Campaign, 1, closed.Close.Granted))
}

func (f *fixture) count(t *testing.T, sql string) int64 {
	t.Helper()
	return ledgertest.Number(t, f.ledger.tables, sql)
}

func testAfterRefund(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	closed := closeOf("rain", 10, 4)
	f.refunds(t, closed)
	f.settles(t, grantsOf("rain", 3, 6)...) // packets 3 and 4 are settled already; 5 and 6 come too late
	f.refundedOnce(t, closed)
	list := f.open(t)
	require.Len(t, list, 2)
	for _, q := range list {
		require.Equal(t, AfterRefund, q.Reason)
	}
	require.Len(t, f.reported, 2)
}

func testCouponAfterRefund(t *testing.T, f *fixture) {
	c := testCampaign(t, "coupon", 5)
	c.Spec.Kind, c.Spec.Currency, c.Spec.Total = hongbao.KindCoupon, "", 0
	_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, c.Spec))
	require.NoError(t, err)
	coupons := grantsOf("coupon", 1, 5)
	for i := range coupons {
		coupons[i].Amount = 0
		f.forged[keyOf(&coupons[i])] = 0
	}
	f.settles(t, coupons[:2]...)
	closed := closeOf("coupon", 5, 2)
	closed.Close.GrantedAmount, closed.Close.LeftAmount = 0, 0
	require.EqualValues(t, 3, f.refunds(t, closed).Packets)
	f.settles(t, coupons...)
	f.holds(t, "coupon", coupons[:2])
	require.Len(t, f.open(t), 3, "coupons are not granted after the refund, although they move no money")
}

func testRefundWaits(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	closed := closeOf("rain", 10, 4)
	for n := range int64(4) {
		_, err := f.ledger.Refund(t.Context(), one(closed), 0)
		require.ErrorIs(t, err, payment.ErrSettling)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
		require.False(t, hongbao.IsOutage(err))
		f.holds(t, "rain", grantsOf("rain", 1, n))
		f.settles(t, grant("rain", n+1))
	}
	_, found, err := f.ledger.RefundOf(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, found)
	r := f.refunds(t, closed)
	require.Equal(t, payment.Refund{
		Campaign: "rain", Currency: testCurrency, Sponsor: "acme", Amount: closed.Close.LeftAmount, Packets: 6, Created: r.Created,
		Closes: []payment.Close{{Shard: 3, Seq: 5}},
	}, r)
	stored, found, err := f.ledger.RefundOf(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, r, stored)
	require.Equal(t, r, f.refunds(t, closed), "a repeat")
	f.refundedOnce(t, closed)
}

func testRefundConflicts(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	for name, c := range map[string]struct {
		alter func(*stream.Entry)
		class hongbao.Class
	}{
		"fewer grants than the ledger has": {func(e *stream.Entry) { *e = closeOf("rain", 10, 3) }, hongbao.ClassConflict},
		"another amount": {func(e *stream.Entry) { e.Close.GrantedAmount++; e.Close.LeftAmount-- },
			hongbao.ClassConflict},
		"more packets than funded": {func(e *stream.Entry) { e.Close.Left++ }, hongbao.ClassConflict},
		"more money than funded":   {func(e *stream.Entry) { e.Close.LeftAmount++ }, hongbao.ClassConflict},
		"no close": {func(e *stream.Entry) { e.Kind = stream.EntryGrant },
			hongbao.ClassPermanent},
		"no seq": {func(e *stream.Entry) { e.Seq = 0 }, hongbao.ClassPermanent},
	} {
		e := closeOf("rain", 10, 4)
		c.alter(&e)
		_, err := f.ledger.Refund(t.Context(), one(e), 0)
		require.Error(t, err, name)
		require.Equal(t, c.class, hongbao.ClassOf(err), "%s: %v", name, err)
	}
	f.holds(t, "rain", grantsOf("rain", 1, 4))
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
}

// testRefundBehindTheClose replaces a grant that the close counted by another one of the same amount, which the close
// can't have counted. Although number and sum are right, Refund returns a Conflict.
func testRefundBehindTheClose(t *testing.T, f *fixture) {
	for id, forge := range map[string]func(*hongbao.Grant){
		"late":      func(g *hongbao.Grant) { g.Seq = 6 },
		"same":      func(g *hongbao.Grant) { g.Seq = 5 },
		"elsewhere": func(g *hongbao.Grant) { g.Shard, g.Seq = 4, 2 },
	} {
		f.create(t, id, 14)
		f.settles(t, grantsOf(id, 1, 3)...)
		closed, forged := closeOf(id, 14, 4), grant(id, 11)
		forge(&forged)
		require.Equal(t, planned(4), forged.Amount)
		f.settles(t, forged)
		held, err := f.ledger.Position(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, closed.Close, held)
		_, err = f.ledger.Refund(t.Context(), one(closed), 0)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, "packet 11")
		f.holds(t, id, append(grantsOf(id, 1, 3), forged))
	}
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
}

// testRefundMissing refunds a campaign with grants that an operator has decided not to pay. Their money is refunded,
// too.
func testRefundMissing(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 3)...)
	forged := grant("rain", 4)
	forged.Amount++
	f.settles(t, forged)
	closed := closeOf("rain", 10, 4)
	for missing, says := range map[int64]string{0: "settling", 1: "1 wait in quarantine", 2: "2 were declared missing",
		-1: "and -1 missing grants"} {
		_, err := f.ledger.Refund(t.Context(), one(closed), missing)
		require.ErrorContains(t, err, says)
	}
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: f.open(t)[0].ID, Decision: by("ann", "not paid")}, nil)
	require.NoError(t, err)
	_, err = f.ledger.Refund(t.Context(), one(closed), 0)
	require.ErrorIs(t, err, payment.ErrSettling)
	held, err := f.ledger.Position(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, closeOf("rain", 10, 3).Close, held)
	r, err := f.ledger.Refund(t.Context(), one(closed), 1)
	require.NoError(t, err)
	require.Equal(t, held.LeftAmount, r.Amount)
	require.EqualValues(t, 7, r.Packets)
	f.refundedOnce(t, closeOf("rain", 10, 3))
	f.settles(t, grant("rain", 4)) // replayed too late
	require.Equal(t, AfterRefund, f.open(t)[0].Reason)
	_, err = f.ledger.Position(t.Context(), "typo")
	require.ErrorIs(t, err, ErrNoCampaign)
}

func testRefundUnknown(t *testing.T, f *fixture) {
	_, err := f.ledger.Refund(t.Context(), one(closeOf("typo", 10, 4)), 0)
	require.ErrorIs(t, err, ErrNoCampaign)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	_, found, err := f.ledger.RefundOf(t.Context(), "typo")
	require.NoError(t, err)
	require.False(t, found)
}

func testRefundTampered(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	f.tamper(t, db.Stmt{SQL: `UPDATE campaign SET granted = granted - 1`})
	_, err := f.ledger.Refund(t.Context(), one(closeOf("rain", 10, 4)), 0)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
}

func testRefundTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	closed := closeOf("rain", 10, 4)
	second := newFixture(t, f.config)
	var group errgroup.Group
	got := make([]payment.Refund, 10)
	for i := range got {
		group.Go(func() (err error) {
			got[i], err = []*fixture{f, second}[i%2].ledger.Refund(context.Background(), one(closed), 0)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for _, r := range got {
		require.Equal(t, got[0], r, "all callers get the same refund")
	}
	f.refundedOnce(t, closed)
}

// dying is a store whose transactions fail after some statements, as if the process were killed.
type dying struct {
	db.Store
	after int // number of statements that run before the failure
}

var errDied = errors.New("died")

func (s *dying) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	return s.Store.Write(ctx, func(t db.Txn) ([]db.Stmt, error) {
		left := s.after
		last, err := fn(&dyingTxn{Txn: t, left: &left})
		if err != nil {
			return nil, err
		}
		for _, st := range last { // one by one, so that the failure can come between them
			if err := (&dyingTxn{Txn: t, left: &left}).Run(ctx, st); err != nil {
				return nil, err
			}
		}
		return nil, nil
	})
}

type dyingTxn struct {
	db.Txn
	left *int
}

func (t *dyingTxn) Run(ctx context.Context, stmts ...db.Stmt) error {
	if *t.left == 0 {
		return hongbao.Errorf(hongbao.ClassTransient, "%w", errDied)
	}
	*t.left--
	return t.Txn.Run(ctx, stmts...)
}

// looks returns how many statements a transaction needs to read and check the epochs of the given number of shards.
func (f *fixture) looks(shards int) int {
	return 1 + len(make(shardView, shards).unchanged(f.ledger.tables.Dialect))
}

// testRefundDies kills the refund before each of its statements, and finally after COMMIT, before the caller gets the
// result.
func testRefundDies(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	closed, inner := closeOf("rain", 10, 4), f.ledger.tables.Store
	deaths := 0
	for {
		f.ledger.tables.Store = &dying{Store: inner, after: deaths}
		_, err := f.ledger.Refund(t.Context(), one(closed), 0)
		f.ledger.tables.Store = inner
		if err == nil {
			break // committed, but the caller does not get the result
		}
		require.ErrorIs(t, err, errDied)
		require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
		f.holds(t, "rain", grantsOf("rain", 1, 4))
		deaths++
	}
	require.Equal(t, 6+f.looks(1), deaths, "the lock, five statements, and those that read and check the shard's epoch")
	f.refunds(t, closed)
	f.refundedOnce(t, closed)
}

// testRefundAmongSettlers tries refunds while settlers settle the last grants. A refund succeeds only after all grants
// are settled.
func testRefundAmongSettlers(t *testing.T, f *fixture) {
	const packets, granted = 300, 200
	f.create(t, "rain", packets)
	closed := closeOf("rain", packets, granted)
	var group, settlers errgroup.Group
	// One refund is tried per settled grant. Without this limit the refunds would starve the settlers.
	settled := make(chan struct{}, granted)
	for w := range int64(4) {
		settlers.Go(func() error {
			for p := w + 1; p <= granted; p += 4 {
				for _, err := range f.Handle(context.Background(), testkit.Batch([]hongbao.Grant{grant("rain", p)})) {
					if err != nil {
						return err
					}
				}
				settled <- struct{}{}
			}
			return nil
		})
	}
	var tries atomic.Int64
	for range 2 {
		group.Go(func() error {
			for range settled {
				tries.Add(1)
				if _, err := f.ledger.Refund(context.Background(), one(closed), 0); !errors.Is(err, payment.ErrSettling) {
					return err
				}
			}
			_, err := f.ledger.Refund(context.Background(), one(closed), 0)
			return err
		})
	}
	err := settlers.Wait()
	close(settled)
	require.NoError(t, errors.Join(err, group.Wait()))
	require.Positive(t, tries.Load())
	f.settles(t, grantsOf("rain", granted+1, granted+3)...)
	require.Len(t, f.open(t), 3)
	f.refundedOnce(t, closed)
}

func testReveal(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	_, err := f.ledger.Reveal(t.Context(), "rain")
	require.ErrorIs(t, err, ErrNotRefunded)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	_, err = f.ledger.Reveal(t.Context(), "typo")
	require.ErrorIs(t, err, ErrNoCampaign)
	c, _, err := f.ledger.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, c.Revealed.IsZero())
	f.refunds(t, closeOf("rain", 10, 0))
	first, err := f.ledger.Reveal(t.Context(), "rain")
	require.NoError(t, err)
	require.False(t, first.Revealed.IsZero())
	require.Equal(t, testCampaign(t, "rain", 10).Seed, first.Seed)
	again, err := f.ledger.Reveal(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, first, again)
}

func testUserGrants(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 10)
	for _, c := range []string{"rain", "snow"} {
		all := grantsOf(c, 1, 6)
		for i := range all {
			all[i].User = []string{"eve", "bob"}[i%2]
		}
		f.settles(t, all...)
	}
	list, err := f.ledger.UserGrants(t.Context(), "rain", "bob")
	require.NoError(t, err)
	var packets []int64
	for _, g := range list {
		require.Equal(t, "bob", g.User)
		require.Equal(t, "rain", g.Campaign)
		packets = append(packets, g.Packet)
	}
	require.Equal(t, []int64{2, 4, 6}, packets)
	list, err = f.ledger.UserGrants(t.Context(), "rain", "nobody")
	require.NoError(t, err)
	require.Empty(t, list)
}
