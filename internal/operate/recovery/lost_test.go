package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func (w *world) ender() *recovery.Ender {
	return &recovery.Ender{Store: w.store, Books: w.ledger, Group: "balance",
		Owed: func(context.Context, string) ([]stream.Owed, error) { return w.owed, nil }}
}

// lost is a person's order to refund a lost campaign. Each packet of the campaign is worth 10.
func lost(amount hongbao.Amount) model.LostRefund {
	return model.LostRefund{Campaign: id, Amount: amount, Decision: by("ann", "no file is left")}
}

// accepts waits until the recoverer raises the alarm, and then lets a person accept the loss.
func (w *world) accepts(t *testing.T) {
	t.Helper()
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "no file is left")))
}

func (w *world) finish(t *testing.T) {
	t.Helper()
	_, err := w.shard().Group("balance").Create(t.Context())
	require.NoError(t, err)
	raw, err := w.shard().Group("balance").ReadNew(t.Context(), "w", 1000, 0)
	require.NoError(t, err)
	for i := range raw {
		e, err := stream.ParseEntry(0, raw[i].ID, raw[i].Values)
		require.NoError(t, err)
		_, err = w.shard().Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: e.Seq, Last: e.Last()}),
			[]string{e.ID})
		require.NoError(t, err)
	}
}

func (w *world) refundedOnce(t *testing.T, left hongbao.Amount) {
	t.Helper()
	c, _, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, model.MoneyRefunded, c.State)
	require.Equal(t, left, c.Refunded)
	require.Equal(t, hongbao.Amount(10_000)-left, c.Granted)
	differences, err := books.Of(w.ledger.Tables()).CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeEnded: 2}, outcomes(w.grab(t, w.rdb, 2)))
}

// Redis has lost everything. A person refunds the campaign with the exact amount, a repeat returns the same refund, and
// the campaign leaves Redis.
func TestLostCampaignEnds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	for _, act := range []func() error{
		func() error { _, err := w.ender().Progress(t.Context(), id); return err },
		func() error { _, err := w.ender().Refund(t.Context(), lost(9_000)); return err },
	} {
		require.ErrorContains(t, act(), "nothing says that Redis has lost any of it", "Redis has lost nothing yet")
	}
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	_, err := w.ender().Refund(t.Context(), lost(9_000))
	require.ErrorIs(t, err, store.ErrFrozen)
	require.ErrorContains(t, err, "`hongbao recover`")
	w.accepts(t)

	at, err := w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, &recovery.Ending{
		Campaign: id, Currency: "CNY", Sponsor: "acme", Redis: recovery.Remains{State: "frozen"}, Packets: 1000,
		Funded: 10_000,
		Paid:   100, PaidAmount: 1_000, Left: 900, LeftAmount: 9_000,
	}, at)
	_, err = w.ender().Refund(t.Context(), lost(8_999))
	require.ErrorContains(t, err, "the amount is 9000 minor units, not 8999")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)),
		"the refused refund has changed nothing")

	var first payment.Refund
	for range 2 {
		r, err := w.ender().Refund(t.Context(), lost(9_000))
		require.NoError(t, err)
		require.Equal(t, []any{hongbao.Amount(9_000), int64(900), "ann"}, []any{r.Amount, r.Packets, r.By})
		if first.Campaign != "" {
			require.Equal(t, first, r)
		}
		first = r
		w.refundedOnce(t, 9_000)
	}
	_, err = w.ender().Refund(t.Context(), lost(8_999))
	require.ErrorContains(t, err, "was refunded before")
	due, err := w.shard().DueToRetire(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{id}, due)
	left, err := w.shard().Place(id).PurgeCampaign(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, left)
	at, err = w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{"", ""}, []any{at.Redis.State, at.Next("")})
}

// closeAndRefund closes a campaign whose grants the ledger has, and refunds it.
func (w *world) closeAndRefund(t *testing.T, id string, places []store.Place) {
	t.Helper()
	require.NoError(t, w.ledger.BeginClose(t.Context(), id))
	c, _, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	var closes []stream.Entry
	for _, k := range places {
		e, err := k.Close(t.Context(), true, c.Packets)
		require.NoError(t, err)
		closes = append(closes, e)
	}
	_, err = w.ledger.Refund(t.Context(), closes, 0)
	require.NoError(t, err)
	for _, k := range places {
		_, err := k.Refunded(t.Context())
		require.NoError(t, err)
	}
}

// A person closes and refunds a campaign, then Redis loses everything. The acceptance writes a stub of the campaign,
// so that a process that saw it open answers ended. The stub leaves Redis after the grace.
func TestRefundedCampaignIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		grabbed, places int
	}{
		{"one shard, no grants", 0, 1}, {"one shard, some grants", 10, 1}, {"one of two shards is lost", 0, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := setupOf(t, c.places)
			lost := id
			if c.places > 1 {
				lost = w.idAt(0)
				w.fundOver(t, lost, 0, c.places)
			}
			places := w.store.Places(lost, c.places)
			if c.grabbed > 0 {
				w.grab(t, w.rdb, c.grabbed)
				w.settle(t)
			}
			w.closeAndRefund(t, lost, places)
			w.loses(t, places[0].Shard)
			w.accepts(t)

			answers, err := places[0].Grab(t.Context(), storetest.Call(lost, "u/r"), nil)
			require.NoError(t, err)
			require.Equal(t, hongbao.OutcomeEnded, answers[0].Outcome)
			known, err := w.store.Campaign(lost).Places(t.Context())
			require.NoError(t, err)
			require.Equal(t, places, known)
			stub, err := places[0].CampaignFields(t.Context())
			require.NoError(t, err)
			require.True(t, stub.Lost)
			require.EqualValues(t, c.grabbed, stub.Granted)
			left, err := places[0].PurgeCampaign(t.Context(), 0)
			require.NoError(t, err)
			require.Zero(t, left)
		})
	}
}

// Redis has lost only the last grants of a campaign. The refund is refused until the ledger has settled the grants that
// Redis still has.
func TestRolledBackCampaignEnds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	answers := w.grab(t, w.rdb, 100)
	old := w.older(t)
	w.grab(t, w.rdb, 50)
	w.restart(t, old)
	w.accepts(t)
	at, err := w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, recovery.Remains{State: "frozen", Packets: 1000, Granted: 100, GrantedAmount: 1_000}, at.Redis)
	require.Equal(t, recovery.Waiting{Stream: 100}, at.Waiting)
	_, err = w.ender().Refund(t.Context(), lost(10_000))
	require.ErrorIs(t, err, payment.ErrSettling)
	require.ErrorContains(t, err, "100 grants are in the stream")

	require.NoError(t, w.rdb.XDel(t.Context(), w.store.Shard(0).Keys.Events(), firstEntry(t, w)).Err())
	at, err = w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, recovery.Waiting{Receipts: 100}, at.Waiting, "receipts without an entry still wait")
	require.Contains(t, at.Waiting.Steps(id)[0], "`hongbao replay NAME --to balance --campaign rain`")
	w.owed[0] = stream.Owed{{First: 41, Last: stream.Forever}}
	at, err = w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, recovery.Waiting{Receipts: 60}, at.Waiting, "the replay leaves out what the sink does not owe")
	w.owed[0] = nil
	w.pay(t, answers)
	_, err = w.ender().Refund(t.Context(), lost(9_000))
	require.NoError(t, err)
	w.refundedOnce(t, 9_000)
	repeat := w.again(t, "u1")
	require.Equal(t, hongbao.OutcomeAlreadyGranted, repeat.Outcome, "the user gets the receipt again")
}

func firstEntry(t *testing.T, w *world) string {
	t.Helper()
	rows, err := w.rdb.XRangeN(t.Context(), w.store.Shard(0).Keys.Events(), "-", "+", 1).Result()
	require.NoError(t, err)
	return rows[0].ID
}

// pay settles the grants in these answers, and makes the ledger's group finish them.
func (w *world) pay(t *testing.T, answers []hongbao.Answer) {
	t.Helper()
	settler := w.settler(t)
	grants := make([]hongbao.Grant, len(answers))
	for i := range answers {
		r := &answers[i].Receipts[0]
		grants[i] = hongbao.Grant{Campaign: id, User: fmt.Sprintf("u%d", i+1), Packet: r.Packet, Amount: r.Amount,
			Shard: r.Shard, Seq: r.Seq, Epoch: 1,
			RequestID: r.RequestID, Time: r.Time}
	}
	require.Nil(t, settler.Handle(t.Context(), testkit.Batch(grants)))
	_, err := w.shard().Group("balance").Ack(t.Context(),
		stream.OfCampaign("", stream.SeqRange{First: 1, Last: int64(len(grants))}), nil)
	require.NoError(t, err)
}

// again lets a user grab once more without a request id.
func (w *world) again(t *testing.T, user string) hongbao.Answer {
	t.Helper()
	answers, err := w.shard().Place(id).Grab(t.Context(), storetest.Call(id, user), nil)
	require.NoError(t, err)
	return answers[0]
}

// A lost campaign has a dead letter and a grant in quarantine. The refund is refused until a person has decided about
// both.
func TestLostCampaignWaitsForDecisions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 1)
	w.settle(t)
	old := w.older(t)
	w.grab(t, w.rdb, 2)
	w.settle(t)
	w.restart(t, old)
	w.accepts(t)
	w.finish(t)

	stolen := hongbao.Grant{Campaign: id, Packet: 1, User: "mallory", Amount: 10, Seq: 1, Time: time.Now()}
	require.Nil(t, w.settler(t).Handle(t.Context(), testkit.Batch([]hongbao.Grant{stolen})))
	letter := w.store.Shard(0).Keys.Dead("balance")
	require.NoError(t, w.rdb.XAdd(t.Context(),
		&redis.XAddArgs{Stream: letter, Values: []any{"seq", 2, "entry.3", "grant " + id + " 2"}}).Err())
	require.NoError(t, w.rdb.XAdd(t.Context(),
		&redis.XAddArgs{Stream: letter, Values: []any{"seq", 3, "entry.3", "grant snow 3"}}).Err())
	at, err := w.ender().Progress(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, recovery.Waiting{Letters: 1, Quarantine: 1}, at.Waiting)
	_, err = w.ender().Refund(t.Context(), lost(9_970))
	require.ErrorContains(t, err, "`hongbao dead drop`")
	require.ErrorContains(t, err, "`hongbao quarantine resolve`")
	require.NoError(t, w.rdb.Del(t.Context(), letter).Err())
	list, err := w.ledger.Quarantine(t.Context(), 0, 10)
	require.NoError(t, err)
	_, err = w.ledger.Decide(t.Context(), ledger.Resolution{ID: list[0].ID, Decision: by("ann", "forged")}, nil)
	require.NoError(t, err)
	_, err = w.ender().Refund(t.Context(), lost(9_970))
	require.NoError(t, err)
	w.refundedOnce(t, 9_970)
}

// killedBooks is a ledger whose RefundLost succeeds and returns an error, as if the process had died after it.
type killedBooks struct {
	*ledger.Ledger
	refunds int
}

var errKilled = errors.New("killed")

func (b *killedBooks) RefundLost(ctx context.Context, o model.LostRefund) (payment.Refund, error) {
	_, err := b.Ledger.RefundLost(ctx, o)
	b.refunds++
	return payment.Refund{}, errors.Join(err, errKilled)
}

// The process dies after the ledger's refund and before the mark in Redis. Then ten callers refund concurrently. All
// get the first refund, and the campaign has ended.
func TestLostCampaignKilledAndTogether(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, w *world){
		"a stub": func(t *testing.T, w *world) {
			require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
			w.accepts(t)
		},
		"nothing is left": func(t *testing.T, w *world) { // as if someone had deleted the keys
			k := w.store.Shard(0)
			require.NoError(t, w.rdb.Del(t.Context(), k.Keys.Campaign(id), k.Keys.Stock(id), k.Keys.LoadedTotals(id, 1), k.Keys.Receipts(id)).Err())
			w.finish(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.grab(t, w.rdb, 100)
			w.settle(t)
			prepare(t, w)
			books := &killedBooks{Ledger: w.ledger}
			killed := w.ender()
			killed.Books = books
			_, err := killed.Refund(t.Context(), lost(9_000))
			require.ErrorIs(t, err, errKilled)
			require.Equal(t, 1, books.refunds, "the fault fired")
			at, err := w.ender().Progress(t.Context(), id)
			require.NoError(t, err)
			require.NotNil(t, at.Refund)

			var group errgroup.Group
			got := make([]payment.Refund, 10)
			for i := range got {
				group.Go(func() error {
					var err error
					got[i], err = w.ender().Refund(t.Context(), lost(9_000))
					return err
				})
			}
			require.NoError(t, group.Wait())
			for _, r := range got {
				require.Equal(t, *at.Refund, r)
			}
			w.refundedOnce(t, 9_000)
		})
	}
}

// Every operation on a frozen campaign fails with an error that names the command that ends the campaign.
func TestFrozenCampaignNamesItsEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	w.accepts(t)
	c, _, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	for name, act := range map[string]func() error{
		"resume": func() error { return testkit.ErrOf(w.store.Campaign(id).Resume(t.Context(), by("ann", "test"))) },
		"pause":  func() error { return testkit.ErrOf(w.store.Campaign(id).Pause(t.Context(), by("ann", "test"))) },
		"load":   func() error { _, err := loaded.Seeded(t.Context(), w.store, c.Spec, c.Seed); return err },
		"close":  func() error { _, err := w.shard().Place(id).Close(t.Context(), true, 0); return err },
		"refund": func() error { _, err := w.shard().Place(id).CloseOf(t.Context()); return err },
	} {
		err := act()
		require.ErrorIs(t, err, store.ErrLost, name)
		require.ErrorContains(t, err, "`hongbao campaign refund-lost rain`", name)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), name)
	}
}
