package ledger

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// fence ends the epochs of shard 3 that are older than epoch.
func (f *fixture) fence(t *testing.T, epoch, floor int64) {
	t.Helper()
	require.NoError(t, f.ledger.Fence(t.Context(), Fence{Shard: 3, From: epoch - 1, Epoch: epoch, Floor: floor}))
}

// in returns copies of the grants with another epoch.
func in(epoch int64, grants ...hongbao.Grant) []hongbao.Grant {
	list := slices.Clone(grants)
	for i := range list {
		list[i].Epoch = epoch
	}
	return list
}

// leavesOut settles grants, and requires that exactly the given packets fail because of a fence.
func (f *fixture) leavesOut(t *testing.T, grants []hongbao.Grant, packets ...int64) {
	t.Helper()
	var got []int64
	for i, err := range f.Handle(t.Context(), testkit.Batch(grants)) {
		if err != nil {
			requireFenced(t, err)
			got = append(got, grants[i].Packet)
		}
	}
	require.ElementsMatch(t, packets, got)
}

func requireFenced(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ErrFenced)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.True(t, hongbao.IsOutage(err))
}

// A fence leaves out the grants of older epochs above its floor, except grants that are already paid.
func testSettleFenced(t *testing.T, f *fixture) {
	f.opened(t, 30)
	old := grantsOf("rain", 1, 10)
	f.settles(t, append(slices.Clone(old[:3]), old[8])...)
	f.fence(t, 2, 5)
	for range 2 {
		f.leavesOut(t, old, 6, 7, 8, 10)
		f.holds(t, "rain", slices.Concat(old[:5], old[8:9]))
	}
	redealt := in(2, old[5:8]...)
	redealt[0].User = "another"
	f.settles(t, redealt...)
	f.leavesOut(t, old, 6, 10) // 7 and 8 are paid in epoch 2 with the same facts
	elsewhere := grantsOf("rain", 20, 21)
	for i := range elsewhere {
		elsewhere[i].Shard = 2
	}
	f.settles(t, elsewhere...)
	f.leavesOut(t, old[9:], 10)

	require.Nil(t, f.Handle(t.Context(), testkit.BatchIn(2, old[9:])), "a replay has read the grant in epoch 2")

	f.fence(t, 3, 12)
	f.leavesOut(t, append(in(2, grantsOf("rain", 11, 13)...), grant("rain", 14)), 13, 14)
	f.settles(t, in(3, grantsOf("rain", 13, 14)...)...)
	require.Empty(t, f.open(t))
	f.holds(t, "rain", slices.Concat(old[:5], redealt, old[8:10], in(2, grantsOf("rain", 11, 12)...),
		in(3, grantsOf("rain", 13, 14)...), elsewhere))
}

// Grants that a fence leaves out do not go to quarantine. Grants that are in quarantine count as handled, and are not
// paid.
func testQuarantineFenced(t *testing.T, f *fixture) {
	f.opened(t, 100)
	room := grant("rain", 9) // more than the funding until the test raises the funding
	room.Amount = fundedFor(101)
	f.forged[keyOf(&room)] = room.Amount
	unplanned := grant("rain", 10)
	unplanned.Packet = 101
	f.settles(t, room, unplanned, grant("rain", 1), secondOf(1, "bea"))
	require.Len(t, f.open(t), 3)
	f.fence(t, 2, 5)
	f.tamper(t, db.Stmt{SQL: `UPDATE campaign SET funded = funded * 3`})
	late, other := grant("rain", 11), secondOf(1, "cid")
	late.Packet = 102
	f.leavesOut(t, []hongbao.Grant{room, unplanned, secondOf(1, "bea"), late, other, grant("rain", 2)}, 102, 1)
	require.Len(t, f.open(t), 3)
	require.EqualValues(t, 2, f.count(t, `SELECT COUNT(*) FROM grants`))
}

// If the funding does not cover a batch, grants that a fence leaves out do not block the others.
func testOverdraftFenced(t *testing.T, f *fixture) {
	f.opened(t, 100)
	f.fence(t, 2, 50)
	all := append(grantsOf("rain", 1, 60), in(2, grantsOf("rain", 61, 100)...)...)
	for _, i := range []int{20, 70} { // two grants that are more than the funding
		all[i].Amount = fundedFor(100)
		f.forged[keyOf(&all[i])] = all[i].Amount
	}
	f.leavesOut(t, all, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60)
	require.Len(t, f.open(t), 2)
	f.holds(t, "rain", slices.Concat(all[:20], all[21:50], all[60:70], all[71:]))
}

// Begin refuses grants that a fence leaves out, so no remote credits them. Grants that were pending before the fence
// continue.
func testBeginFenced(t *testing.T, f *fixture) {
	f.opened(t, 10)
	ctx, s := t.Context(), f.Settler
	_, _, err := s.Begin(ctx, asking("w1", 1), testkit.Batch(grantsOf("rain", 1, 6)))
	require.NoError(t, err)
	require.Nil(t, s.Record(ctx, testkit.Batch(grantsOf("rain", 1, 1))))
	f.fence(t, 2, 2)
	_, _, err = s.Begin(ctx, asking("w1", 2), testkit.Batch(grantsOf("rain", 6, 7)))
	requireFenced(t, err)
	require.ErrorContains(t, err, "event 3-7 of epoch 1: ")
	other := grant("rain", 6)
	other.User = "another"
	_, _, err = s.Begin(ctx, asking("w1", 2), testkit.Batch([]hongbao.Grant{other}))
	requireFenced(t, err)
	require.Equal(t, []int64{2, 3, 4, 5, 6}, f.pending(t))
	held, before, err := s.Begin(ctx, asking("w1", 3), testkit.Batch(append(grantsOf("rain", 1, 6), in(2, grantsOf("rain", 7, 7)...)...)))
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Len(t, before, 5)
	for _, p := range before {
		require.True(t, p.Taken)
	}
	redealt := in(2, grant("rain", 8))
	redealt[0].User = "another"
	_, _, err = s.Begin(ctx, asking("w1", 4), testkit.Batch(redealt))
	require.NoError(t, err)

	errs := s.Record(ctx, testkit.Batch(grantsOf("rain", 2, 8)))
	require.Len(t, errs, 7)
	require.Equal(t, make([]error, 6), errs[:6], "these grants were pending")
	requireFenced(t, errs[6])
	require.Equal(t, []int64{8}, f.pending(t), "the pending row of epoch 2 stays")
	require.Nil(t, s.Record(ctx, testkit.Batch(redealt)))
	require.Empty(t, f.open(t))
	f.holds(t, "rain", append(append(grantsOf("rain", 1, 6), grant("rain", 7)), redealt...))
}

// A worker forgets the pending row of a fenced grant while another worker begins the grant: the second worker gets
// ErrFenced.
func testForgottenBehindAFence(t *testing.T, f *fixture) {
	if f.config.kind() == sqlite.Name {
		return // SQLite runs one transaction at a time
	}
	f.opened(t, 10)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 1, 1)))
	require.NoError(t, err)
	f.fence(t, 2, 0)
	inner := f.ledger.tables.Store
	b := &between{Store: inner, at: 3}
	b.hook = func() {
		f.ledger.tables.Store = inner
		require.NoError(t, f.Settler.Forget(t.Context(), 1, time.Time{}, grantsOf("rain", 1, 1)))
		f.ledger.tables.Store = b
	}
	f.ledger.tables.Store = b
	_, _, err = f.Settler.Begin(t.Context(), asking("w1", 2), testkit.Batch(grantsOf("rain", 1, 1)))
	f.ledger.tables.Store = inner
	requireFenced(t, err)
	require.Negative(t, b.at)
	require.Empty(t, f.pending(t))
}

// Refund and RefundLost refuse a close that a fence leaves out.
func testRefundFenced(t *testing.T, f *fixture) {
	ctx := t.Context()
	f.opened(t, 10)
	f.create(t, "snow", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	f.fence(t, 2, 4)
	closed := closeOf("rain", 10, 4)
	_, err := f.ledger.Refund(ctx, one(closed), 0)
	requireFenced(t, err)
	require.ErrorContains(t, err, "event 3-5 of epoch 1: ")
	lost := lostOf(4)
	lost.Closes = []payment.Close{{Shard: 3, Seq: 5, Epoch: 1}}
	_, err = f.ledger.RefundLost(ctx, lost)
	requireFenced(t, err)
	require.Zero(t, f.count(t, `SELECT COUNT(*) FROM refund`))
	below := closeOf("snow", 10, 0) // seq 1
	f.refunds(t, below)
	again := closed
	again.Epoch = 2
	r := f.refunds(t, again)
	got, err := f.ledger.Refund(ctx, one(closed), 0)
	require.NoError(t, err, "a repeated call returns the refund, even for a fenced close")
	require.Equal(t, r, got)

	d := f.deal(t, "hail", 10, 2, 3, 5)
	closes := d.closes()
	closes[1].Seq = 9
	_, err = f.ledger.Refund(ctx, closes, 0)
	requireFenced(t, err)
	closes[1].Epoch = 2
	_, err = f.ledger.Refund(ctx, closes, 0)
	require.NoError(t, err)
	f.conserved(t)
}

// A transaction that has run the statements of unchanged blocks a Fence until it ends. If a Fence commits before these
// statements, they fail with db.ErrAgain.
func testFenceWaits(t *testing.T, f *fixture) {
	f.opened(t, 10)
	items := itemsOf(grantsOf("rain", 1, 1), 0)
	fenceWithin := func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return f.ledger.Fence(ctx, Fence{Shard: 3, From: 1, Epoch: 2})
	}
	settle := func(before, after func()) error {
		return f.ledger.tables.Store.Write(t.Context(), func(x db.Txn) ([]db.Stmt, error) {
			seen := shardViewOf(items)
			if err := x.Run(t.Context(), seen.queries()...); err != nil {
				return nil, err
			}
			before()
			err := x.Run(t.Context(), seen.unchanged(f.ledger.tables.Dialect)...)
			if err == nil {
				after()
			}
			return nil, err
		})
	}
	require.NoError(t, settle(func() {}, func() { require.Error(t, fenceWithin(200*time.Millisecond)) }))
	if f.config.kind() == sqlite.Name {
		return // SQLite runs one write transaction at a time
	}
	err := settle(func() { require.NoError(t, fenceWithin(10*time.Second)) }, func() { t.Error("the shard has moved") })
	require.ErrorIs(t, err, db.ErrAgain)
}

// linger takes the time of up to seven reads.
func (f *fixture) linger() error {
	for range rand.IntN(8) {
		if _, err := f.ledger.Shard(context.Background(), 3); err != nil {
			return err
		}
	}
	return nil
}

// Settlers and remote credits race with fences. After a Fence has returned, every grant above its floor that an older
// epoch has paid, or may pay, is visible.
func testFenceAmongSettlers(t *testing.T, f *fixture) {
	const rounds, packets, workers = 60, 24, 3
	f.opened(t, rounds*packets)
	second := newFixture(t, f.config)
	var seen, refused atomic.Int64
	for round := range int64(rounds) {
		epoch, floor := round+1, round*packets+packets/4
		settle := func(who *fixture, g []hongbao.Grant, remote bool) error {
			ctx := context.Background()
			errs := []error{nil}
			if !remote {
				errs = who.Handle(ctx, testkit.Batch(g))
			} else if _, _, errs[0] = who.Settler.Begin(ctx, asking("w", rand.Int64()|1), testkit.Batch(g)); errs[0] == nil {
				errs = who.Settler.Record(ctx, testkit.Batch(g))
			}
			for _, err := range errs {
				if errors.Is(err, ErrFenced) {
					refused.Add(1)
				} else if err != nil {
					return err
				}
			}
			return nil
		}
		fenced := make(chan struct{})
		if round%8 > 0 { // else the fence comes first
			close(fenced)
		}
		var group errgroup.Group
		var settlers sync.WaitGroup
		settlers.Add(workers)
		for w := range workers {
			who, remote := []*fixture{f, second}[w%2], w == 2
			mine := in(epoch, grantsOf("rain", round*packets+int64(w*packets/workers)+1,
				round*packets+int64((w+1)*packets/workers))...)
			rand.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			group.Go(func() error {
				defer settlers.Done()
				<-fenced
				for part := range slices.Chunk(mine, 2) {
					if err := settle(who, part, remote); err != nil {
						return err
					}
				}
				return nil
			})
		}
		var then Lost
		group.Go(func() (err error) {
			if round%8 == 0 {
				defer close(fenced)
			}
			if round%8 == 4 { // the fence comes last; on a busy machine all other rounds may have one order
				settlers.Wait()
			}
			if err := f.linger(); err != nil { // fence at a random moment
				return err
			}
			fence := Fence{Shard: 3, From: epoch, Epoch: epoch + 1, Floor: floor}
			if err = f.ledger.Fence(context.Background(), fence); err == nil {
				then, err = f.ledger.LostEvents(context.Background(), 3, floor)
			}
			return err
		})
		require.NoError(t, group.Wait())
		now, err := f.ledger.LostEvents(t.Context(), 3, floor)
		require.NoError(t, err)
		require.Equal(t, then, now, "round %d", round)
		seen.Add(int64(len(now.Grants)))
	}
	require.Positive(t, seen.Load())
	require.Positive(t, refused.Load())
	t.Logf("%d grants were above the floors, %d were refused", seen.Load(), refused.Load())
	f.conserved(t)
}
