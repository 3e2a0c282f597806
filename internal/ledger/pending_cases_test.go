package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

func asking(owner string, batch int64) payment.CreditCall {
	return payment.CreditCall{Owner: owner, Batch: batch, OwnedFor: time.Hour}
}

// pending returns the packets that have a pending row.
func (f *fixture) pending(t *testing.T) (packets []int64) {
	t.Helper()
	list, err := f.Settler.Pending(t.Context(), 0, hongbao.Grant{}, 1000)
	require.NoError(t, err)
	for _, p := range list {
		packets = append(packets, p.Grant.Packet)
	}
	return packets
}

// The worker that begins credits owns them for OwnedFor. After that another worker takes them over; their age still
// counts from the first Begin.
func testPending(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	ctx := t.Context()
	held, before, err := f.Settler.Begin(ctx, asking("w1", 1), testkit.Batch(grantsOf("rain", 1, 3)))
	require.NoError(t, err)
	require.Empty(t, held)
	require.Empty(t, before)
	held, before, err = f.Settler.Begin(ctx, asking("w2", 2), testkit.Batch(grantsOf("rain", 2, 4)))
	require.NoError(t, err)
	require.Empty(t, held)
	require.Len(t, before, 2, "packet 4 is new")
	for i, p := range before {
		require.Equal(t, "w1", p.Owner)
		require.EqualValues(t, 1, p.Batch)
		require.False(t, p.Taken)
		require.WithinRange(t, time.Now().Add(-p.Age), time.Now().Add(-time.Minute), time.Now().Add(time.Minute))
		g := grant("rain", p.Grant.Packet)
		g.EntryID = ""
		require.Equal(t, g, p.Grant, "%d", i)
	}
	require.NoError(t, f.Settler.Forget(ctx, 2, time.Time{}, grantsOf("rain", 1, 3)))
	require.Equal(t, []int64{1, 2, 3, 4}, f.pending(t), "another call's rows stay")
	_, before, err = f.Settler.Begin(ctx, asking("w1", 3), testkit.Batch(grantsOf("rain", 1, 1)))
	require.NoError(t, err)
	require.True(t, before[0].Taken, "the owner may continue at once")
	require.EqualValues(t, 1, before[0].Batch)
	f.tamper(t, db.Stmt{SQL: `UPDATE pending SET since = since - 7200000`},
		db.Stmt{SQL: `UPDATE pending SET asked_at = asked_at - 7200000 WHERE packet > $1`, Args: []any{int64(1)}})
	altered := grant("rain", 3)
	altered.User = "another"
	_, before, err = f.Settler.Begin(ctx, asking("w2", 4), testkit.Batch(append(grantsOf("rain", 1, 2), altered)))
	require.NoError(t, err)
	require.Len(t, before, 3)
	for _, p := range before {
		require.Equal(t, p.Grant.Packet == 2, p.Taken, "the owner of packet 1 has begun again, and packet 3 is another grant")
		require.GreaterOrEqual(t, p.Age, 2*time.Hour, "the age counts from the first begin")
	}
	require.NoError(t, f.Settler.Forget(ctx, 1, time.Time{}, grantsOf("rain", 2, 3)))
	require.Equal(t, []int64{1, 2, 4}, f.pending(t), "packet 2 no longer belongs to the first owner")
	require.Nil(t, f.Settler.Record(ctx, testkit.Batch(grantsOf("rain", 1, 2))))
	require.Equal(t, []int64{4}, f.pending(t))
	f.holds(t, "rain", grantsOf("rain", 1, 2))
	held, before, err = f.Settler.Begin(ctx, asking("w1", 5), testkit.Batch(grantsOf("rain", 1, 5)))
	require.NoError(t, err)
	require.Len(t, held, 2)
	require.Len(t, before, 1)
	require.Equal(t, []int64{3, 4, 5}, f.pending(t), "a recorded grant is not pending")
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, _, err = f.Settler.Begin(over, asking("w1", 6), testkit.Batch(grantsOf("rain", 6, 6)))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, f.Settler.Forget(over, 5, time.Time{}, grantsOf("rain", 3, 3)), context.Canceled)
}

// A worker begins its own credit again after another call has listed it. The other call must not delete the row.
func testPendingAgain(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 1, 2)))
	require.NoError(t, err)
	f.tamper(t, db.Stmt{SQL: `UPDATE pending SET asked_at = asked_at - 1000`})
	listed := func() []payment.Pending {
		list, err := f.Settler.Pending(t.Context(), 0, hongbao.Grant{}, 10)
		require.NoError(t, err)
		return list
	}
	old := listed()
	_, before, err := f.Settler.Begin(t.Context(), asking("w1", 2), testkit.Batch(grantsOf("rain", 1, 1)))
	require.NoError(t, err)
	require.Equal(t, old[0].Asked, before[0].Asked)
	require.NoError(t, f.Settler.Forget(t.Context(), 1, old[0].Asked, grantsOf("rain", 1, 2)))
	require.Equal(t, []int64{1}, f.pending(t), "only packet 2 is as it was listed")
	now := listed()
	require.EqualValues(t, 1, now[0].Batch)
	require.NoError(t, f.Settler.Forget(t.Context(), 1, now[0].Asked, grantsOf("rain", 1, 1)))
	require.Empty(t, f.pending(t))
}

// With SinceGrant, which replays set, a pending credit is as old as its grant.
func testPendingSinceGrant(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	call := asking("w1", 1)
	call.SinceGrant = true
	old, young := grant("rain", 1), grant("rain", 2)
	old.Time, young.Time = time.Now().Add(-3*time.Hour).UTC().Truncate(time.Millisecond),
		time.Now().Add(3*time.Hour).UTC().Truncate(time.Millisecond)
	_, _, err := f.Settler.Begin(t.Context(), call, testkit.Batch([]hongbao.Grant{old, young}))
	require.NoError(t, err)
	require.GreaterOrEqual(t, f.unfinished(t, 0, 2).Credits.Oldest, 2*time.Hour)
	list, err := f.Settler.Pending(t.Context(), 0, hongbao.Grant{}, 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.GreaterOrEqual(t, list[0].Age, 2*time.Hour)
	require.Less(t, list[0].Idle, time.Hour)
	require.Less(t, list[1].Age, time.Hour, "if the grant is from the future, the age counts from now")
	none, err := f.Settler.Pending(t.Context(), time.Hour, hongbao.Grant{}, 10)
	require.NoError(t, err)
	require.Empty(t, none)
	next, err := f.Settler.Pending(t.Context(), 0, list[0].Grant, 10)
	require.NoError(t, err)
	require.Len(t, next, 1)
	require.EqualValues(t, 2, next[0].Grant.Packet)
}

// A grant in quarantine is held, so it does not become pending. Another grant of the same packet is not held. A worker
// leaves a held grant aside if no credit of it was requested. A replay leaves it aside only if a person has decided.
func testPendingQuarantined(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	paid, other := grant("rain", 3), grant("rain", 3)
	other.User = "another"
	f.settles(t, paid, other)
	f.disown(t, "nowhere")
	f.settles(t, grantsOf("nowhere", 1, 3)...)
	require.Len(t, f.open(t), 4)
	_, err := f.ledger.Decide(t.Context(), Resolution{ID: f.open(t)[1].ID, Decision: by("ann", "not paid")}, nil)
	require.NoError(t, err)
	altered := grant("nowhere", 2)
	altered.User = "another"
	got, before, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch([]hongbao.Grant{other, grant("rain", 4),
		grant("nowhere", 1), altered, grant("nowhere", 3)}))
	require.NoError(t, err)
	require.Empty(t, before)
	want := []payment.AlreadyInLedger{{Grant: paid}, {Grant: grant("nowhere", 1), Aside: true},
		{Grant: grant("nowhere", 3), Aside: true}}
	for i := range want {
		want[i].EntryID = ""
	}
	require.ElementsMatch(t, want, got)
	require.Equal(t, []int64{2, 4}, f.pending(t))
	require.Nil(t, f.Settler.Record(t.Context(), testkit.Batch([]hongbao.Grant{altered, grant("rain", 4)})),
		"the ledger does not have campaign nowhere")
	require.Empty(t, f.pending(t))
	require.Len(t, f.open(t), 4)
	replay := asking("w1", 2)
	replay.SinceGrant = true
	got, _, err = f.Settler.Begin(t.Context(), replay, testkit.Batch([]hongbao.Grant{grant("nowhere", 1), grant("nowhere", 3)}))
	require.NoError(t, err)
	want = want[1:]
	want[1].Aside = false
	require.ElementsMatch(t, want, got, "a person has decided packet 1")
}

// Many workers begin the same grants at once and forget them again. At most one worker at a time may request the credit
// of a grant.
func testPendingTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	var inside [7]atomic.Int64 // by packet
	var begun atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			list := grantsOf("rain", 4, 6)
			for i := range 20 {
				call := asking(fmt.Sprintf("w%d", w), int64(1+w*1000+i))
				_, before, err := f.Settler.Begin(t.Context(), call, testkit.Batch(list))
				if err != nil {
					t.Errorf("begin: %v", err)
					return
				}
				fresh := slices.DeleteFunc(slices.Clone(list), func(g hongbao.Grant) bool {
					return slices.ContainsFunc(before, func(p payment.Pending) bool { return p.Grant.Packet == g.Packet })
				})
				for _, g := range fresh {
					begun.Add(1)
					if n := inside[g.Packet].Add(1); n != 1 {
						t.Errorf("%d workers may ask for packet %d at once", n, g.Packet)
					}
				}
				for _, g := range fresh {
					inside[g.Packet].Add(-1)
				}
				if err := f.Settler.Forget(t.Context(), call.Batch, time.Time{}, list); err != nil {
					t.Errorf("forget: %v", err)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, begun.Load())
	require.Empty(t, f.pending(t))
}

// A refund waits for credits that a remote may have booked, and names them. After the refund no credit can be begun.
func testRefundPending(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 1, 7)))
	require.NoError(t, err)
	require.Nil(t, f.Settler.Record(t.Context(), testkit.Batch(grantsOf("rain", 1, 5))))
	e := closeOf("rain", 10, 5)
	_, err = f.ledger.Refund(t.Context(), one(e), 0)
	require.ErrorIs(t, err, payment.ErrSettling)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "2 credits")
	require.ErrorContains(t, err, "[6 7]")
	require.NoError(t, f.Settler.Forget(t.Context(), 1, time.Time{}, grantsOf("rain", 6, 7)))
	_, err = f.ledger.Refund(t.Context(), one(e), 0)
	require.NoError(t, err)
	_, _, err = f.Settler.Begin(t.Context(), asking("w1", 2), testkit.Batch(grantsOf("rain", 8, 8)))
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	require.Empty(t, f.pending(t))
	f.holds(t, "rain", grantsOf("rain", 1, 5))
}
