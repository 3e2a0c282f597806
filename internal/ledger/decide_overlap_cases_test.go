package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (f *fixture) decides(id int64, pay bool) error {
	_, err := f.ledger.Decide(context.Background(), Resolution{ID: id, Pay: pay, Decision: by("ann", "decided")},
		f.Settler.config.Plan)
	return err
}

// during runs fn while the next transaction that writes with f is about to commit. On SQLite fn then waits until that
// transaction has ended, because SQLite runs one at a time. The result waits for fn.
func (f *fixture) during(fn func()) (wait func()) {
	inner, done := f.ledger.tables.Store, make(chan struct{})
	var once sync.Once
	f.ledger.tables.Store = &tap{Store: inner, beforeCommit: func(context.Context) {
		once.Do(func() {
			go func() {
				defer close(done)
				fn()
			}()
			if f.config.kind() != sqlite.Name {
				<-done
			}
		})
	}}
	return func() {
		<-done
		f.ledger.tables.Store = inner
	}
}

// payments returns how often each user was paid for each packet, by SQL of its own.
func (f *fixture) payments(t testing.TB) map[string]int64 {
	t.Helper()
	paid := make(map[string]int64)
	require.NoError(t, f.ledger.tables.Store.Read(t.Context(), func(x db.Txn) error {
		err := x.Query(t.Context(), `SELECT campaign, packet, user_id FROM grants`, nil, func(s db.Scan) error {
			var campaign, user string
			var packet int64
			err := s(&campaign, &packet, &user)
			paid[fmt.Sprintf("%s:%d:%s", campaign, packet, user)]++
			return err
		})
		if err != nil {
			return err
		}
		return x.Query(t.Context(), `SELECT id FROM transfer WHERE id LIKE 'quarantine:%'`, nil, func(s db.Scan) error {
			var id string
			err := s(&id)
			paid[strings.TrimPrefix(id, "quarantine:")]++
			return err
		})
	}))
	return paid
}

// paysOnce checks that no user was paid twice for a packet.
func (f *fixture) paysOnce(t testing.TB) {
	t.Helper()
	for of, times := range f.payments(t) {
		require.EqualValues(t, 1, times, "payments of campaign:packet:user %s", of)
	}
	differences, err := f.books().CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

// payableLater has the reasons that a top-up, or the creation of the campaign, removes. Each function puts the grant of
// packet 11 into quarantine, and then changes the ledger so that it would settle the grant.
var payableLater = map[model.QuarantineReason]func(*testing.T, *fixture){
	PacketNotPlanned: func(t *testing.T, f *fixture) {
		f.create(t, "rain", 10)
		f.settles(t, grant("rain", 11))
		f.tops(t, added("rain", 2, 10, 5))
	},
	OverFunded: func(t *testing.T, f *fixture) {
		f.create(t, "rain", 10)
		f.tops(t, added("rain", 2, 10, 1))
		forged := grant("rain", 10) // has eaten the money of packet 11
		forged.Amount += planned(11)
		f.forged[keyOf(&forged)] = forged.Amount
		f.settles(t, append(grantsOf("rain", 1, 9), forged)...)
		f.settles(t, grant("rain", 11))
		order := added("rain", 3, 11, 5)
		f.tops(t, order)
	},
	NoCampaign: func(t *testing.T, f *fixture) {
		f.disown(t, "rain")
		f.settles(t, grant("rain", 11))
		f.create(t, "rain", 20)
	},
}

// testDecideSettleable checks that the reserve does not pay a grant that a settler would still take, whatever the
// reason was for which it went to quarantine.
func testDecideSettleable(reason model.QuarantineReason) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		payableLater[reason](t, f)
		list := f.open(t)
		require.Len(t, list, 1)
		require.Equal(t, reason, list[0].Reason)
		err := f.decides(list[0].ID, true)
		require.ErrorIs(t, err, ErrNotPayable, "the wrong pool pays")
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		require.ErrorContains(t, err, "hongbao replay")
		require.Zero(t, f.balance(t, tables.ReserveAccount(testCurrency)))
		f.settles(t, grant("rain", 11))
		f.paysOnce(t)
		require.EqualValues(t, 1, f.payments(t)["rain:11:"+grant("rain", 11).User])
	}
}

// testDecideFenced checks that the reserve may pay a grant that only a fence keeps from being settled.
func testDecideFenced(t *testing.T, f *fixture) {
	f.opened(t, 20)
	f.settles(t, grant("rain", 22))
	f.tops(t, added("rain", 2, 20, 5))
	list := f.open(t)
	require.Len(t, list, 1)
	require.ErrorIs(t, f.decides(list[0].ID, true), ErrNotPayable)
	f.fence(t, 2, 5)
	f.settles(t, grant("rain", 22))
	require.NoError(t, f.decides(list[0].ID, true))
	f.paysOnce(t)
}

// testDecideOverlaps decides about a grant while a settler is about to commit its payment.
func testDecideOverlaps(reason model.QuarantineReason, pay bool) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		payableLater[reason](t, f)
		list := f.open(t)
		require.Len(t, list, 1)
		other := newFixture(t, f.config)
		var decided error
		wait := f.during(func() { decided = other.decides(list[0].ID, pay) })
		f.settles(t, grant("rain", 11))
		wait()
		q, _, err := f.ledger.Quarantined(t.Context(), list[0].ID)
		require.NoError(t, err)
		f.paysOnce(t)
		switch {
		case pay:
			require.ErrorIs(t, decided, ErrNotPayable)
			require.True(t, q.Resolved.IsZero())
			require.EqualValues(t, 1, f.payments(t)["rain:11:"+q.Grant.User])
		case f.config.kind() == sqlite.Name: // the decision came after the payment
			require.NoError(t, decided)
		default:
			require.NoError(t, decided)
			require.Zero(t, f.payments(t)["rain:11:"+q.Grant.User], "a void grant was paid")
		}
	}
}

// testDecideOverlapsBegin decides about a grant while a worker is about to note that it asks a remote for the credit.
func testDecideOverlapsBegin(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	g := grant("rain", 11)
	f.settles(t, g)
	list := f.open(t)
	require.Len(t, list, 1)
	other := newFixture(t, f.config)
	call := payment.CreditCall{Owner: "a", Batch: 1, OwnedFor: time.Hour, SinceGrant: true}
	begin := func() []payment.AlreadyInLedger {
		held, _, err := f.Begin(t.Context(), call, testkit.Batch([]hongbao.Grant{g}))
		require.NoError(t, err)
		return held
	}
	if f.config.kind() == sqlite.Name {
		begin()
	} else {
		var decided error
		wait := f.during(func() { decided = other.decides(list[0].ID, false) })
		held := begin()
		wait()
		require.NoError(t, decided)
		require.Len(t, held, 1)
		require.True(t, held[0].Aside, "the remote would be asked for a void grant")
	}
}

// testDecidePending checks that the reserve does not pay a grant while a remote may have booked its credit.
func testDecidePending(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 1)...)
	bea := secondOf(1, "bea")
	f.settles(t, bea)
	list := f.open(t)
	require.Len(t, list, 1)
	f.tamper(t, db.Stmt{SQL: `INSERT INTO pending (campaign, packet, user_id, amount, shard, seq, epoch, request_id,
		granted_at, owner, batch, since, asked_at) SELECT campaign, packet, user_id, amount, shard, seq, epoch, request_id,
		granted_at, 'a', 1, 1, 1 FROM quarantine`})
	err := f.decides(list[0].ID, true)
	require.ErrorIs(t, err, payment.ErrSettling)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.Zero(t, f.balance(t, tables.UserAccount("bea", testCurrency)))
	f.tamper(t, db.Stmt{SQL: `DELETE FROM pending`})
	require.NoError(t, f.decides(list[0].ID, true))
	f.paysOnce(t)
}

// testSettlePaidElsewhere checks that a packet that the reserve has paid to its user is not paid again under another
// event.
func testSettlePaidElsewhere(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.tops(t, added("rain", 2, 10, 1))
	forged := grant("rain", 10)
	forged.Amount += planned(11)
	f.forged[keyOf(&forged)] = forged.Amount
	f.settles(t, append(grantsOf("rain", 1, 9), forged)...)
	f.settles(t, grant("rain", 11))
	list := f.open(t)
	require.Len(t, list, 1)
	require.NoError(t, f.decides(list[0].ID, true), "the pool has no money for it")
	f.tops(t, added("rain", 3, 11, 5))
	again := grant("rain", 11)
	again.Seq += 1000
	f.settles(t, grant("rain", 11), again)
	f.paysOnce(t)
	list = f.open(t)
	require.Len(t, list, 1)
	require.Equal(t, DifferentSeq, list[0].Reason)
	require.ErrorIs(t, f.decides(list[0].ID, true), ErrNotPayable)
	f.settles(t, again)
	f.paysOnce(t)
}

// testPaidTwiceIsFound plants a second payment of a grant. All sums agree, but CheckConservation names it.
func testPaidTwiceIsFound(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 3)...)
	f.settles(t, secondOf(1, "bea"))
	require.NoError(t, f.decides(f.open(t)[0].ID, true))
	f.paysOnce(t)
	g := grant("rain", 2)
	credits := f.ledger.creditUsers([]credit{{tables.UserAccount(g.User, testCurrency), testCurrency, g.Amount}})
	reserve := tables.ReserveAccount(testCurrency)
	f.tamper(t, append(credits, db.Stmt{SQL: moveMoney, Args: []any{reserve, -int64(g.Amount)}},
		db.Stmt{SQL: insertTransfer, Args: []any{"quarantine:rain:2:" + g.User, "funding", "rain", reserve,
			tables.UserAccount(g.User, testCurrency), int64(g.Amount), int64(0), int64(0), int64(1)}})...)
	for _, check := range []func(context.Context) ([]books.Difference, error){f.books().CheckConservation, f.books().CheckEveryAccount} {
		differences, err := check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []books.Difference{{Where: "campaign rain, packet 2, user " + g.User,
			What: "payments of the packet to this user, from the pool and from the reserve", Want: 1, Got: 2}}, differences)
	}
}

// testDecideAmongSettlers settles, decides and tops up at once, for a while.
func testDecideAmongSettlers(t *testing.T, f *fixture) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	second := newFixture(t, f.config)
	var paidByReserve, voided atomic.Int64
	for round := range rounds {
		id := fmt.Sprintf("rain%d", round)
		if round%2 == 0 {
			f.disown(t, id)
			f.settles(t, grantsOf(id, 2, 12)...)
		}
		f.create(t, id, 4)
		forged := grant(id, 1) // eats the money of other packets, so there is always a grant that only the reserve can pay
		forged.Amount *= 3
		f.forged[keyOf(&forged)], second.forged[keyOf(&forged)] = forged.Amount, forged.Amount
		f.settles(t, append(grantsOf(id, 2, 12), forged)...)
		var group errgroup.Group
		group.Go(func() error {
			for generation, has := 2, int64(4); has < 12; generation, has = generation+1, has+4 {
				if _, err := second.ledger.TopUp(context.Background(), added(id, generation, has, 4)); err != nil {
					return err
				}
				second.dealt(t, second.ledger, id, generation)
			}
			return nil
		})
		for i := range 4 {
			who := []*fixture{f, second}[i%2]
			group.Go(func() error {
				for range 12 {
					batch := append(grantsOf(id, 2, 12), forged)
					rand.Shuffle(len(batch), func(a, b int) { batch[a], batch[b] = batch[b], batch[a] })
					if errs := who.Handle(context.Background(), testkit.Batch(batch[:1+rand.IntN(12)])); slices.ContainsFunc(errs,
						func(err error) bool { return err != nil && !hongbao.IsOutage(err) }) {
						return fmt.Errorf("settle: %v", errs)
					}
				}
				return nil
			})
		}
		for range 2 {
			group.Go(func() error {
				for range 6 {
					list, err := second.ledger.Quarantine(context.Background(), 0, 1000)
					if err != nil {
						return err
					}
					for _, q := range list {
						pay := rand.IntN(3) > 0
						if second.decides(q.ID, pay) != nil {
							continue
						}
						if pay {
							paidByReserve.Add(1)
						} else {
							voided.Add(1)
						}
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		f.paysOnce(t)
	}
	t.Logf("%d were paid from the reserve, %d were void", paidByReserve.Load(), voided.Load())
}
