package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func lock(token string) *store.LockCall {
	return &store.LockCall{Name: "close", Token: token, Lease: time.Minute}
}

// closed loads a campaign, has users u1, u2, ... grab some packets, and closes it.
func (b *bundle) closed(t *testing.T, id string, packets int64, granted int) stream.Entry {
	t.Helper()
	b.load(t, spec(id, packets))
	for i := range granted {
		b.grab(t, id, []string{"u1/r1", "u2/r2", "u3/r3"}[i])
	}
	e, err := b.k.Place(id).Close(t.Context(), true, 0)
	require.NoError(t, err)
	return e
}

func TestCloseEndsACampaign(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	first := b.grab(t, "rain", "u1/r1", "u2/r2")
	before := b.dump(t)
	_, err := b.k.Place("rain").Close(t.Context(), false, 0)
	require.ErrorContains(t, err, "its window is open until")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.Empty(t, differ(before, b.dump(t)))
	_, err = b.k.Place("rain").CloseOf(t.Context())
	require.ErrorIs(t, err, store.ErrNotClosed)

	e, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	amount := first[0].Receipts[0].Amount + first[1].Receipts[0].Amount
	require.Equal(t, stream.Closing{Granted: 2, GrantedAmount: amount, Left: 3, LeftAmount: 50 - amount}, e.Close)
	require.EqualValues(t, 3, e.Seq)
	entries, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	e.ID = entries[1].ID
	require.Equal(t, e, entries[1], "the entry has what the call returned")

	answers, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1/r1", "u3/r3"), nil)
	require.NoError(t, err)
	require.Equal(t, first[0].Receipts, answers[0].Receipts, "a repeat gets its receipt")
	require.Equal(t, hongbao.OutcomeEnded, answers[1].Outcome)

	after := b.dump(t)
	again, err := b.k.Place("rain").Close(t.Context(), false, 0) // not early: a closed campaign's window is not checked
	require.NoError(t, err)
	stored, err := b.k.Place("rain").CloseOf(t.Context())
	require.NoError(t, err)
	e.ID = ""
	require.Equal(t, e, again)
	require.Equal(t, e, stored)
	require.Empty(t, differ(after, b.dump(t)))

	// The shard was opened again, and Redis still has the close. The ledger may refuse an event of the earlier epoch.
	// Found by the simulation.
	require.NoError(t, b.rdb.HIncrBy(t.Context(), b.k.Keys.Meta(), "epoch", 2).Err())
	e.Epoch += 2
	again, err = b.k.Place("rain").Close(t.Context(), false, 0)
	require.NoError(t, err)
	require.Equal(t, e, again)
	stored, err = b.k.Place("rain").CloseOf(t.Context())
	require.NoError(t, err)
	require.Equal(t, e, stored)
}

func TestCloseRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		prep  func(b *bundle)
		says  string
		class hongbao.Class
	}{
		"unknown": {func(*bundle) {}, store.ErrNotInRedis.Error(), hongbao.ClassPermanent},
		"loading": {func(b *bundle) { require.NoError(t, begin(t.Context(), b)) }, "never opened", hongbao.ClassPermanent},
		"frozen": {func(b *bundle) {
			b.load(t, spec("rain", 5))
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "frozen", "1").Err())
		}, "frozen", hongbao.ClassTransient},
		"a stock that does not fit": {func(b *bundle) {
			b.load(t, spec("rain", 5))
			require.NoError(t, b.rdb.RPush(t.Context(), b.k.Keys.Stock("rain"), "6 1").Err())
		}, "HBSTOCK", hongbao.ClassBroken},
		"a packet that left the stock by hand": {func(b *bundle) {
			b.load(t, spec("rain", 5))
			b.grab(t, "rain", "u1/r1", "u2/r2")
			require.NoError(t, b.rdb.RPop(t.Context(), b.k.Keys.Stock("rain")).Err())
		}, "the stock lacks 3 of 5 packets, and 2 users have receipts, at most 1 each", hongbao.ClassBroken},
		"a receipt that is gone": {func(b *bundle) {
			b.load(t, spec("rain", 5))
			b.grab(t, "rain", "u1/r1", "u2/r2")
			require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Receipts("rain"), "u1").Err())
		}, "the stock lacks 2 of 5 packets, and 1 users have receipts, at most 1 each", hongbao.ClassBroken},
		"a receipt from nowhere, several allowed": {func(b *bundle) {
			c := spec("rain", 5)
			c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}}
			b.load(t, c)
			b.grab(t, "rain", "u1/r1")
			require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Receipts("rain"), "u2", "5 1 2 3 r").Err())
		}, "the stock lacks 1 of 5 packets, and 2 users have receipts, at most 2 each", hongbao.ClassBroken},
	} {
		t.Run(name, func(t *testing.T) {
			b := setupOn(t, b.rdb)
			c.prep(b)
			before := b.dump(t)
			_, err := b.k.Place("rain").Close(t.Context(), true, 0)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.class, hongbao.ClassOf(err))
			require.Empty(t, differ(before, b.dump(t)))
		})
	}
}

// A campaign is closed before its window. Grabs then get ended, not not_started.
func TestClosedBeforeItsWindow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 5)
	c.From, c.To = c.From.Add(2*time.Hour), c.To.Add(2*time.Hour)
	b.load(t, c)
	_, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	answers, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeEnded, answers[0].Outcome)
}

// Ten callers grab and close the same campaign concurrently (F58). All get the same close entry, and nothing is
// granted after it.
func TestConcurrentCloses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 400))
	var group errgroup.Group
	got := make([]stream.Entry, 10)
	for i := range got {
		group.Go(func() error {
			_, err := b.k.Place("rain").Grab(t.Context(), call("rain", grabber(i, 0), grabber(i, 1), grabber(i, 2)), nil)
			if err == nil {
				got[i], err = b.k.Place("rain").Close(t.Context(), true, 0)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
	entries, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	last := entries[len(entries)-1]
	require.Equal(t, stream.EntryClose, last.Kind)
	var granted int64
	for _, e := range entries[:len(entries)-1] {
		require.Equal(t, stream.EntryGrant, e.Kind)
		granted += e.Events()
	}
	require.Equal(t, granted, last.Close.Granted)
	last.ID = ""
	for _, e := range got {
		require.Equal(t, last, e)
	}
}

func grabber(i, j int) string { return string(rune('a'+i)) + string(rune('a'+j)) }

func TestRefundedAndRetired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("snow", 3))
	_, err := b.k.Place("snow").Refunded(t.Context())
	require.ErrorIs(t, err, store.ErrNotClosed)
	_, err = b.k.Place("none").Refunded(t.Context())
	require.ErrorIs(t, err, store.ErrNotInRedis)
	_, err = b.k.Place("snow").PurgeCampaign(t.Context(), 0)
	require.ErrorContains(t, err, "it is open, only a refunded one")

	closed := b.closed(t, "rain", 5, 2)
	held, err := b.k.Place("rain").UserReceipts(t.Context(), "u1")
	require.NoError(t, err)
	require.Len(t, held.Receipts, 1)
	none, err := b.k.Place("rain").UserReceipts(t.Context(), "u9")
	require.NoError(t, err)
	require.Empty(t, none.Receipts)
	at, err := b.k.Place("rain").Refunded(t.Context())
	require.NoError(t, err)
	again, err := b.k.Place("rain").Refunded(t.Context())
	require.NoError(t, err)
	require.Equal(t, at, again)
	same, err := b.k.Place("rain").Close(t.Context(), false, 0)
	require.NoError(t, err)
	require.Equal(t, closed, same)

	left, err := b.k.Place("rain").PurgeCampaign(t.Context(), time.Hour)
	require.NoError(t, err)
	require.InDelta(t, time.Hour.Minutes(), left.Minutes(), 1)
	due, err := b.k.DueToRetire(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	require.Empty(t, due)
	testkit.Eventually(t, 30*time.Second, func() bool {
		due, err = b.k.DueToRetire(t.Context(), 0, 10)
		return err == nil && len(due) == 1
	}, "its grace is over")
	require.Equal(t, []string{"rain"}, due)
	for range 2 {
		left, err = b.k.Place("rain").PurgeCampaign(t.Context(), 0)
		require.NoError(t, err)
		require.Zero(t, left)
	}
	for _, key := range []string{b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.LoadedTotals("rain", 1), b.k.Keys.Receipts("rain"),
		b.k.Keys.Counters("rain", "c"),
		b.k.Keys.Refunded()} {
		n, err := b.rdb.Exists(t.Context(), key).Result()
		require.NoError(t, err)
		require.Zero(t, n, key)
	}
	_, err = b.k.Place("rain").UserReceipts(t.Context(), "u1")
	require.ErrorIs(t, err, store.ErrNotInRedis)
}

func TestLockHasOneOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	taken, _, err := b.k.TakeLock(ctx, lock("w1"))
	require.NoError(t, err)
	require.True(t, taken)
	taken, _, err = b.k.TakeLock(ctx, lock("w1"))
	require.NoError(t, err)
	require.True(t, taken, "a repeat whose answer was lost")
	taken, held, err := b.k.TakeLock(ctx, lock("w2"))
	require.NoError(t, err)
	require.False(t, taken)
	require.Positive(t, held)
	for _, own := range []func(string) (bool, error){
		func(w string) (bool, error) { return b.k.RenewLock(ctx, lock(w)) },
		func(w string) (bool, error) { return b.k.ReleaseLock(ctx, lock(w)) },
	} {
		mine, err := own("w2")
		require.NoError(t, err)
		require.False(t, mine, "another's token")
		mine, err = own("w1")
		require.NoError(t, err)
		require.True(t, mine)
	}
	gone, err := b.k.RenewLock(ctx, lock("w1"))
	require.NoError(t, err)
	require.False(t, gone, "a released lock can't be renewed")
	_, _, err = b.k.TakeLock(ctx, &store.LockCall{Name: "a b", Token: "w1", Lease: time.Minute})
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

func TestGroupFinished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	finished := func(seq int64) (int64, bool) {
		n, exists, err := b.k.Group("balance").Finished(t.Context(), seq)
		require.NoError(t, err)
		return n, exists
	}
	_, exists := finished(1)
	require.False(t, exists, "no stream")
	e := b.closed(t, "rain", 5, 3)
	_, exists = finished(e.Seq)
	require.False(t, exists, "no group")
	b.group(t, "balance")
	n, exists := finished(e.Seq)
	require.True(t, exists)
	require.Zero(t, n, "nothing delivered")
	raw := b.read(t, "balance", "w1", 2)
	n, _ = finished(e.Seq)
	require.Zero(t, n, "delivered and pending")
	_, err := b.k.Group("balance").Ack(t.Context(), nil, []string{raw[0].ID})
	require.NoError(t, err)
	n, _ = finished(e.Seq)
	require.EqualValues(t, 1, n)
	for _, r := range append(raw[1:], b.read(t, "balance", "w1", 9)...) {
		_, err = b.k.Group("balance").Ack(t.Context(), nil, []string{r.ID})
		require.NoError(t, err)
	}
	n, _ = finished(e.Seq)
	require.Equal(t, e.Seq, n)
}

// A forged entry with a seq far ahead is pending. Finished does not count the events below that seq as finished.
func TestGroupFinishedPassesOverForgedEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.group(t, "balance")
	require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Keys.Events(),
		Values: testkit.Entry("grant", "rain", 1<<40, 1, 1700000000000, "77 9 thief - -")}).Err())
	e := b.closed(t, "rain", 5, 3)
	raw := b.read(t, "balance", "w1", 1)
	require.Len(t, raw, 1, "only the forged entry is delivered, and it is pending")
	n, exists, err := b.k.Group("balance").Finished(t.Context(), e.Seq)
	require.NoError(t, err)
	require.True(t, exists)
	require.Zero(t, n)
}

// A restore has withheld packets of a campaign that was ended from the ledger later. A close returns that end. Found by
// the simulation.
func TestCloseOfALostCampaignWithWithheldPackets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 5))
	b.begin(t)
	require.NoError(t, b.k.Withhold(t.Context(), attempt, "rain", store.Withholding{Last: 1, Front: []int{3}}))
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen", "mend").Err())
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", store.StateFrozen).Err())
	require.NoError(t, b.k.EndLost(t.Context(), &store.LostCampaign{ID: "rain", Packets: 5, Total: 50, Loaded: 5,
		LoadedAmount: 50, Granted: 2, GrantedAmount: 20}))
	e, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.Equal(t, stream.Closing{Granted: 2, GrantedAmount: 20, Left: 3, LeftAmount: 30}, e.Close)
	list, err := b.k.Place("rain").Withheld(t.Context())
	require.NoError(t, err)
	require.Empty(t, list)

	b.load(t, spec("snow", 5))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("snow"), "withheld", "1 10").Err())
	_, err = b.k.Place("snow").Close(t.Context(), true, 0)
	require.ErrorContains(t, err, "HBDAMAGED the field withheld")
}
