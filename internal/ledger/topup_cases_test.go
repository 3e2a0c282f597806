package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// added returns an order to add n packets to a test campaign, which must have the number of packets in has.
func added(campaign string, generation int, has, n int64) TopUp {
	o := TopUp{
		Campaign: campaign, ID: fmt.Sprintf("order-%d", generation), Expect: fundedFor(has), Generation: generation,
		Packets: n, Total: fundedFor(has+n) - fundedFor(has), Hash: fmt.Sprintf("hash-%d", generation),
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 200}, Decision: by("ann", "it rains so well"),
	}
	copy(o.Seed[:], fmt.Sprintf("seed %d of %s", generation, campaign))
	return o
}

// dealt records that the packets of a top-up are in Redis.
func (f *fixture) dealt(t require.TestingT, l *Ledger, campaign string, generation int) {
	epochs, err := l.Epochs(context.Background())
	require.NoError(t, err)
	require.NoError(t, l.TopUpDealt(context.Background(), campaign, generation, epochs))
}

// tops carries out a top-up, and records that its packets are dealt.
func (f *fixture) tops(t require.TestingT, o TopUp) StoredTopUp {
	stored, err := f.ledger.TopUp(context.Background(), o)
	require.NoError(t, err)
	f.dealt(t, f.ledger, o.Campaign, o.Generation)
	return stored
}

func (f *fixture) stored(t *testing.T, campaign string) StoredCampaign {
	t.Helper()
	c, found, err := f.ledger.Campaign(t.Context(), campaign)
	require.NoError(t, err)
	require.True(t, found)
	return c
}

func testTopUp(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.create(t, "snow", 3)
	order := added("rain", 2, 10, 5)
	first, err := f.ledger.TopUp(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, StoredTopUp{TopUp: order, First: 11, Created: first.Created}, first)
	c := f.stored(t, "rain")
	require.EqualValues(t, 15, c.Packets)
	require.Equal(t, fundedFor(15), c.Funded)
	require.EqualValues(t, 10, c.Spec.Packets, "the published specification does not change")
	require.Equal(t, fundedFor(15), f.balance(t, tables.PoolAccount("rain")))
	require.Equal(t, -fundedFor(15)-fundedFor(3), f.balance(t, tables.SponsorAccount("acme", testCurrency)))
	require.EqualValues(t, 1, f.count(t, `SELECT COUNT(*) FROM transfer WHERE id = 'funding:rain:2' AND kind = 'funding'`))

	again := order
	again.Seed[0]++
	again.Hash, again.Why = "another draw", "the answer was lost"
	repeated, err := f.ledger.TopUp(t.Context(), again)
	require.NoError(t, err)
	require.Equal(t, first, repeated, "a repeated order returns the first draw")
	require.Equal(t, c, f.stored(t, "rain"), "funded once")

	open, err := f.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Equal(t, []StoredTopUp{first}, open)
	young := f.unfinished(t, 1, 0)
	require.Less(t, young.TopUps.Oldest, time.Hour)
	require.Zero(t, young.Credits.Oldest)
	f.tamper(t, db.Stmt{SQL: `UPDATE generation SET created_at = created_at - 7200000`})
	require.InDelta(t, 2*time.Hour, f.unfinished(t, 1, 0).TopUps.Oldest, float64(time.Hour))
	f.tamper(t, db.Stmt{SQL: `UPDATE generation SET created_at = created_at + 7200000`})
	earlier := func() []hongbao.Amount {
		totals, _, err := f.books().Totals(t.Context(), "rain")
		require.NoError(t, err)
		return totals.Earlier
	}
	require.Equal(t, []hongbao.Amount{fundedFor(10)}, earlier())
	for range 2 {
		f.dealt(t, f.ledger, "rain", 2)
	}
	require.Empty(t, earlier())
	f.tops(t, added("rain", 3, 15, 1))
	require.NoError(t, f.ledger.TopUpsLost(t.Context(), "rain", 1))
	require.Equal(t, []hongbao.Amount{fundedFor(10), fundedFor(15)}, earlier(), "Redis has lost both, or one of them")
	f.dealt(t, f.ledger, "rain", 2)
	require.Equal(t, []hongbao.Amount{fundedFor(15)}, earlier())
	f.dealt(t, f.ledger, "rain", 3)
	_, list, err := f.ledger.CampaignWithTopUps(t.Context(), "rain")
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.False(t, list[0].Dealt.IsZero())
	require.EqualValues(t, 16, list[1].First)
	open, err = f.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
	f.unfinished(t, 0, 0)
	f.settles(t, grantsOf("rain", 1, 16)...)
	f.holds(t, "rain", grantsOf("rain", 1, 16))
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
}

func (f *fixture) unfinished(t *testing.T, topUps, credits int64) Unfinished {
	t.Helper()
	u, err := f.ledger.Unfinished(t.Context())
	require.NoError(t, err)
	require.Equal(t, [2]int64{topUps, credits}, [2]int64{u.TopUps.Count, u.Credits.Count})
	return u
}

// A refused order changes nothing.
// A standby without the last commits takes the ledger's place, and lacks a top-up that this process knows. Its packets
// go to quarantine, and the campaign's own packets are paid from the pool.
func testTopUpLostByAPromotion(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.tops(t, added("rain", 2, 10, 5))
	_, found, err := f.ledger.lookUp(t.Context(), "rain", 15)
	require.NoError(t, err)
	require.True(t, found)
	more := int64(fundedFor(15) - fundedFor(10))
	f.tamper(t, db.Stmt{SQL: `DELETE FROM generation`}, db.Stmt{SQL: `DELETE FROM transfer WHERE id = 'funding:rain:2'`},
		db.Stmt{SQL: `UPDATE campaign SET packets = 10, funded = funded - $1`, Args: []any{more}},
		db.Stmt{SQL: moveMoney, Args: []any{tables.PoolAccount("rain"), -more}},
		db.Stmt{SQL: moveMoney, Args: []any{tables.SponsorAccount("acme", testCurrency), more}})
	own := grantsOf("rain", 1, 10)
	f.settles(t, append(grantsOf("rain", 11, 15), own[:4]...)...)
	f.settles(t, own...)
	f.holds(t, "rain", own)
	for _, q := range f.open(t) {
		require.Equal(t, PacketNotPlanned, q.Reason)
		require.Greater(t, q.Grant.Packet, int64(10))
	}
	require.Len(t, f.open(t), 5)
	require.Zero(t, f.balance(t, tables.PoolAccount("rain")))
}

func testTopUpRefused(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.tops(t, added("rain", 2, 10, 5))
	coded := testCampaign(t, "coded", 10)
	coded.Spec.Codes = &hongbao.Codes{Pattern: "####"}
	_, err := f.ledger.CreateCampaign(t.Context(), canonical(t, coded.Spec))
	require.NoError(t, err)
	f.create(t, "closed", 2)
	require.NoError(t, f.ledger.BeginClose(t.Context(), "closed"))
	f.create(t, "ended", 2)
	f.refunds(t, closeOf("ended", 2, 0))
	order := added("rain", 3, 15, 5)
	for name, c := range map[string]struct {
		alter func(o *TopUp)
		is    error
		says  string
		class hongbao.Class
	}{
		"another total": {func(o *TopUp) { o.Expect = fundedFor(10) }, ErrFundedOtherwise,
			fmt.Sprintf("it is %d minor units now, and the order expects %d", fundedFor(15), fundedFor(10)),
			hongbao.ClassConflict},
		"another order under the id": {func(o *TopUp) { o.ID = "order-2" }, ErrOrderUsed, "order-2", hongbao.ClassConflict},
		"too many packets": {func(o *TopUp) { o.Packets = hongbao.MaxPackets - 14 }, ErrNoTopUp, "10000001",
			hongbao.ClassPermanent},
		"too much money": {func(o *TopUp) { o.Total = hongbao.MaxAmount }, ErrNoTopUp, "at most", hongbao.ClassPermanent},
		"another generation": {func(o *TopUp) { o.Generation = 2 }, nil, "its next generation is 3, not 2",
			hongbao.ClassTransient},
		"no campaign": {func(o *TopUp) { o.Campaign = "nothing" }, ErrNoCampaign, "nothing", hongbao.ClassPermanent},
		"codes":       {func(o *TopUp) { o.Campaign = "coded" }, ErrNoTopUp, "codes", hongbao.ClassPermanent},
		"closed": {func(o *TopUp) { o.Campaign, o.Generation, o.Expect = "closed", 2, fundedFor(2) }, ErrNoTopUp,
			"a close has begun", hongbao.ClassPermanent},
		"refunded": {func(o *TopUp) { o.Campaign, o.Generation, o.Expect = "ended", 2, fundedFor(2) }, ErrNoTopUp,
			"refunded", hongbao.ClassPermanent},
		"no decider":  {func(o *TopUp) { o.By, o.Why = "", "" }, nil, "who decides", hongbao.ClassPermanent},
		"no packets":  {func(o *TopUp) { o.Packets = 0 }, nil, "0 packets", hongbao.ClassPermanent},
		"no seed":     {func(o *TopUp) { o.Seed = [32]byte{} }, nil, "all zeros", hongbao.ClassPermanent},
		"no id":       {func(o *TopUp) { o.ID = "" }, nil, "the order's id", hongbao.ClassPermanent},
		"less money":  {func(o *TopUp) { o.Total = -1 }, nil, "the total is -1", hongbao.ClassPermanent},
		"less before": {func(o *TopUp) { o.Expect = -1 }, nil, "the expected total is -1", hongbao.ClassPermanent},
	} {
		o := order
		c.alter(&o)
		_, err := f.ledger.TopUp(t.Context(), o)
		require.ErrorContains(t, err, c.says, name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, name)
		}
		require.Equal(t, c.class, hongbao.ClassOf(err), "%s: %v", name, err)
	}
	_, err = f.ledger.TopUp(t.Context(), order)
	require.NoError(t, err)
	_, err = f.ledger.TopUp(t.Context(), added("rain", 4, 20, 5))
	require.ErrorIs(t, err, ErrTopUpOpen)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.EqualValues(t, 20, f.stored(t, "rain").Packets)
	require.EqualValues(t, 3+3, f.count(t, `SELECT COUNT(*) FROM transfer WHERE kind = 'funding'`))
	f.holds(t, "rain", nil)
}

// Many concurrent orders expect the same total. Only one of them succeeds.
func testTopUpTogether(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	var group errgroup.Group
	won := make(chan string, 16)
	for i := range 8 {
		for range 2 { // each order is sent twice
			group.Go(func() error {
				o := added("rain", 2, 10, 5)
				o.ID = fmt.Sprint("order-", i)
				switch _, err := f.ledger.TopUp(context.Background(), o); {
				case err == nil:
					won <- o.ID
				case !errors.Is(err, ErrFundedOtherwise):
					return err
				}
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	close(won)
	ids := map[string]bool{}
	for id := range won {
		ids[id] = true
	}
	require.Len(t, ids, 1)
	require.EqualValues(t, 15, f.stored(t, "rain").Packets)
	f.holds(t, "rain", nil)
	require.Equal(t, -fundedFor(15), f.balance(t, tables.SponsorAccount("acme", testCurrency)))
}

// A top-up and a close run at once. If the close comes first, the top-up fails. Otherwise the close fails until the
// added packets are dealt.
func testTopUpAmongCloses(t *testing.T, f *fixture) {
	for i := range 8 {
		id := fmt.Sprint("rain", i)
		f.create(t, id, 10)
		var top, end error
		var group errgroup.Group
		group.Go(func() error { _, top = f.ledger.TopUp(context.Background(), added(id, 2, 10, 5)); return nil })
		group.Go(func() error { end = f.ledger.BeginClose(context.Background(), id); return nil })
		require.NoError(t, group.Wait())
		c := f.stored(t, id)
		if top == nil {
			require.ErrorIs(t, end, ErrTopUpOpen)
			require.EqualValues(t, 15, c.Packets)
			require.Zero(t, c.Closing)
			f.dealt(t, f.ledger, id, 2)
			require.NoError(t, f.ledger.BeginClose(t.Context(), id))
			c = f.stored(t, id)
		} else {
			require.ErrorIs(t, top, ErrNoTopUp)
			require.NoError(t, end)
			require.EqualValues(t, 10, c.Packets)
		}
		require.NotZero(t, c.Closing)
		require.NoError(t, f.ledger.BeginClose(t.Context(), id))
		require.Equal(t, c, f.stored(t, id), "a repeat")
	}
	require.NoError(t, f.ledger.BeginClose(t.Context(), "nothing"))
}

// testTopUpDies kills the top-up before each of its statements, and finally after COMMIT, before the caller gets the
// result.
func testTopUpDies(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	inner, deaths := f.ledger.tables.Store, 0
	for {
		f.ledger.tables.Store = &dying{Store: inner, after: deaths}
		_, err := f.ledger.TopUp(t.Context(), added("rain", 2, 10, 5))
		f.ledger.tables.Store = inner
		if err == nil {
			break // committed, but the caller does not get the result
		}
		require.ErrorIs(t, err, errDied)
		require.Zero(t, f.count(t, `SELECT COUNT(*) FROM generation`))
		f.holds(t, "rain", nil)
		require.Equal(t, fundedFor(10), f.balance(t, tables.PoolAccount("rain")))
		deaths++
	}
	require.Equal(t, 6, deaths, "the locks and five statements")
	_, err := f.ledger.TopUp(t.Context(), added("rain", 2, 10, 5))
	require.NoError(t, err)
	require.Equal(t, fundedFor(15), f.balance(t, tables.PoolAccount("rain")))
	f.holds(t, "rain", nil)
}

// A settler has cached a campaign before a top-up. For packets above the cached number it reads the ledger again, once
// per batch. A packet that is also above the ledger's number goes to quarantine.
func testSettleAdded(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	other := open(t, f.config)
	_, err := other.TopUp(t.Context(), added("rain", 2, 10, 5))
	require.NoError(t, err)
	f.settles(t, append(grantsOf("rain", 9, 15), grant("rain", 17), grant("rain", 18))...)
	list := f.open(t)
	require.Len(t, list, 2)
	for _, q := range list {
		require.Equal(t, PacketNotPlanned, q.Reason)
		require.Greater(t, q.Grant.Packet, int64(15))
	}
	f.dealt(t, other, "rain", 2)
	_, err = other.TopUp(t.Context(), added("rain", 3, 15, 5))
	require.NoError(t, err)
	f.dealt(t, other, "rain", 3)
	require.ErrorIs(t, f.decides(list[0].ID, true), ErrNotPayable, "Decide takes the top-up into account, too")
	early := list[0].Grant.Packet
	f.settles(t, grant("rain", 20), grant("rain", 3), grant("rain", 19), grant("rain", early))
	require.Len(t, f.open(t), 2)
	f.holds(t, "rain", append(append(append(grantsOf("rain", 1, 3), grantsOf("rain", 9, 15)...), grant("rain", early)),
		grantsOf("rain", 19, 20)...))
}

// The refund and the sums of a day include the money of top-ups.
func testRefundAdded(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.tops(t, added("rain", 2, 10, 5))
	f.settles(t, grantsOf("rain", 1, 12)...)
	_, err := f.ledger.Refund(t.Context(), []stream.Entry{closeOf("rain", 10, 10)}, 0)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "the close does not count the added packets: %v", err)
	held, err := f.ledger.Position(t.Context(), "rain")
	require.NoError(t, err)
	require.EqualValues(t, 3, held.Left)
	sums, err := f.books().Day(t.Context(), books.Day{Campaign: "rain", From: time.UnixMilli(0), To: time.Now().Add(time.Hour)},
		func(*books.Line) error { return nil })
	require.NoError(t, err)
	require.Equal(t, fundedFor(15), sums.Funded)
	closed := closeOf("rain", 15, 12)
	f.refunds(t, closed)
	f.refundedOnce(t, closed)
}

// A shard is opened after a caller has found the packets of a top-up in Redis. Redis may have lost them, so the top-up
// stays open until a caller finds them again.
func testTopUpDealtBeforeAnOpening(t *testing.T, f *fixture) {
	f.opened(t, 10)
	_, err := f.ledger.TopUp(t.Context(), added("rain", 2, 10, 5))
	require.NoError(t, err)
	epochs, err := f.ledger.Epochs(t.Context())
	require.NoError(t, err)
	require.Len(t, epochs, 6)
	require.NoError(t, f.ledger.Fence(t.Context(), Fence{Shard: 3, From: epochs[3], Epoch: epochs[3] + 1}))
	require.NoError(t, f.ledger.TopUpsLost(t.Context(), "rain", 1))
	err = f.ledger.TopUpDealt(t.Context(), "rain", 2, epochs)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
	open, err := f.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Len(t, open, 1)
	f.dealt(t, f.ledger, "rain", 2)
	open, err = f.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
}
