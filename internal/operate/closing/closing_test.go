package closing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// B35, B36: Refund fails before the close, and while entries are pending. A repeated Refund returns the first refund.
func TestRefundInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, store.ErrNotClosed)
	_, err = b.Progress(t.Context(), "rain")
	require.ErrorIs(t, err, store.ErrNotClosed)
	_, err = b.Close(t.Context(), "snow", true)
	require.ErrorIs(t, err, store.ErrNotInRedis)
	_, err = b.Close(t.Context(), "rain", false)
	require.ErrorContains(t, err, "its window is open until")

	first := b.close()
	require.Equal(t, first, b.close())
	_, err = b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, payment.ErrSettling)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	waits, attempts := order(70, 50*time.Millisecond), 0
	waits.Settling = func(p *closing.Progress) {
		attempts++
		done, of := p.Events()
		require.Equal(t, []int64{0, 4}, []int64{done, of})
	}
	_, err = b.Refund(t.Context(), waits)
	require.ErrorIs(t, err, payment.ErrSettling)
	require.NotZero(t, attempts)
	require.Zero(t, b.ledger.posts)
	b.settle(3)
	for _, wrong := range []hongbao.Amount{0, 69, 71, 30} { // B51
		_, err = b.Refund(t.Context(), order(wrong, 0))
		require.ErrorContains(t, err, "the amount is 70 minor units")
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
	require.Zero(t, b.ledger.posts)
	require.Equal(t, "closed", b.state())
	r, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, payment.Refund{Campaign: "rain", Amount: 70, Packets: 7,
		Closes: []payment.Close{{Shard: b.k.Index(), Seq: 4}}}, r)
	require.Equal(t, "refunded", b.state())
	again, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, r, again)
	_, err = b.Refund(t.Context(), order(71, 0))
	require.ErrorContains(t, err, "the amount is 70 minor units")
	require.Equal(t, 1, b.ledger.posts)
	s := b.close()
	require.Equal(t, &r, s.Refund)
}

// F59: with Order.Wait set, Refund waits while entries are pending, and posts the refund once they are finished.
func TestRefundWaitsForSettlers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	var group errgroup.Group
	group.Go(func() error {
		_, err := b.Refund(t.Context(), order(70, 20*time.Second))
		return err
	})
	b.settle(3)
	require.NoError(t, group.Wait())
	require.Equal(t, 1, b.ledger.posts)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Refund(ended, order(70, time.Hour))
	require.ErrorIs(t, err, context.Canceled)
}

// The ledger has as many grants as the close counts, but its group has not finished the entries. The refund still
// waits, because another version of a grant may be in flight.
func TestRefundWaitsForTheGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.ledger.grants = 3
	_, err := b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, payment.ErrSettling)
	require.ErrorContains(t, err, "has finished shard")
	require.Zero(t, b.ledger.posts)
}

// The group has finished a grant that the ledger does not have. Refund does not wait for it, and fails unless the order
// names the missing grant.
func TestRefundWithDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.settle(2)
	_, err := b.Refund(t.Context(), order(70, time.Minute))
	require.ErrorContains(t, err, "dead letters")
	require.ErrorContains(t, err, "--missing 1 --amount 80")
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
	require.NotErrorIs(t, err, payment.ErrSettling)
	for _, o := range []closing.Order{{Amount: 80}, {Amount: 70, Missing: 1}, {Amount: 80, Missing: 2},
		{Amount: 80, Missing: -1}} {
		o.Campaign = "rain"
		_, err = b.Refund(t.Context(), o)
		require.Error(t, err)
		require.Zero(t, b.ledger.posts)
	}
	require.Equal(t, "closed", b.state())
	r, err := b.Refund(t.Context(), closing.Order{Campaign: "rain", Amount: 80, Missing: 1}) // confirmed
	require.NoError(t, err)
	require.EqualValues(t, 80, r.Amount)
	require.Equal(t, "refunded", b.state())
}

// A missing grant is a dead letter or in quarantine, and no person has decided about it. It may still be paid, so no
// order is accepted.
func TestRefundWaitsForDecisions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.addDeadLetter(b.k, "rain")
	b.close()
	b.settle(2)
	o := closing.Order{Campaign: "rain", Amount: 80, Missing: 1}
	refused := func(says string) {
		t.Helper()
		_, err := b.Refund(t.Context(), o)
		require.ErrorIs(t, err, closing.ErrMissing)
		require.ErrorContains(t, err, says)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
		require.Zero(t, b.ledger.posts)
		require.Equal(t, "closed", b.state())
	}
	refused("1 of them are dead letters")
	letters, err := b.k.Group("balance").Letters(t.Context(), "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	_, err = b.k.ResolveLetter(t.Context(), &store.Resolution{Sink: "balance", Letter: letters[0].ID,
		What: model.LetterDropped, Decision: stream.Decision{By: "ann", Why: "closed account"}})
	require.NoError(t, err)
	b.ledger.aside = []model.Quarantined{{ID: 1, Grant: hongbao.Grant{Campaign: "rain"}}}
	refused("1 wait in quarantine")
	b.ledger.aside[0].Grant.Campaign = "snow" // another campaign
	b.addDeadLetter(b.k, "snow")
	r, err := b.Refund(t.Context(), o)
	require.NoError(t, err)
	require.EqualValues(t, 80, r.Amount)
	b.addDeadLetter(b.k, "rain")
	again, err := b.Refund(t.Context(), o)
	require.NoError(t, err, "a repeat returns the existing refund")
	require.Equal(t, r, again)
}

// The ledger has more grants than the close counts, so someone else wrote to it. No order is accepted.
func TestRefundOfALedgerWithMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.settle(4)
	for _, o := range []closing.Order{order(70, 0), order(60, time.Minute), {Campaign: "rain", Amount: 60, Missing: -1}} {
		_, err := b.Refund(t.Context(), o)
		require.ErrorContains(t, err, "has paid 1 grants more than the close counts")
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
	}
	require.Zero(t, b.ledger.posts)
	require.Equal(t, "closed", b.state())
}

var errDied = errors.New("died")

// F57: a process dies at each step of a refund. Another process completes it, and the ledger posts one refund.
func TestRefundDiesAtEachStep(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]struct {
		at    func(b *bundle, cancel func())
		posts int
	}{
		"before the lock":     {func(b *bundle, _ func()) { b.locks = lost{} }, 0},
		"before it is posted": {func(b *bundle, _ func()) { b.ledger.before = func() error { return errDied } }, 0},
		"the answer is lost": {func(b *bundle, _ func()) {
			b.ledger.after = func() error { return hongbao.Errorf(hongbao.ClassUnknown, "%w", errDied) }
		}, 1},
		"before it is noted": {func(b *bundle, cancel func()) { b.locks = cancelling{b.locks, cancel} }, 1},
		"a wrong type in Redis": {func(b *bundle, _ func()) {
			require.NoError(b.t, b.rdb.Set(b.t.Context(), b.k.Keys.Refunded(), "x", 0).Err())
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.close()
			b.settle(3)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			locks := b.locks
			die.at(b, cancel)
			_, err := b.closer().Refund(ctx, b.row("rain"), order(70, 0))
			require.Error(t, err)
			require.Equal(t, die.posts, b.ledger.posts)
			require.Equal(t, "closed", b.state())

			b.locks, b.ledger.before, b.ledger.after = locks, nil, nil
			require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Refunded()).Err())
			r, err := b.closer().Refund(t.Context(), b.row("rain"), order(70, 0))
			require.NoError(t, err)
			require.EqualValues(t, 70, r.Amount)
			require.Equal(t, 1, b.ledger.posts)
			require.Equal(t, "refunded", b.state())
		})
	}
}

type lost struct{}

func (lost) Do(context.Context, string, func(context.Context) error) error { return errDied }

type cancelling struct {
	closing.Locker
	cancel func()
}

func (c cancelling) Do(ctx context.Context, name string, fn func(context.Context) error) error {
	err := c.Locker.Do(ctx, name, fn)
	c.cancel()
	return err
}

// F58: ten callers close and refund a campaign concurrently. The ledger posts one refund, and all callers get it.
func TestConcurrentRefunds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var group errgroup.Group
	got := make([]payment.Refund, 10)
	for i := range got {
		group.Go(func() error {
			if _, err := b.Close(t.Context(), "rain", true); err != nil {
				return err
			}
			var err error
			got[i], err = b.closer().Refund(t.Context(), b.row("rain"), order(70, 20*time.Second))
			return err
		})
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return b.state() == "closed" }, "it is closed")
	b.settle(3)
	require.NoError(t, group.Wait())
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	require.Equal(t, 1, b.ledger.posts)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := closing.New(closing.Config{Group: "*"})
	for _, part := range []string{"Store, Ledger, Locks and Log", "Group", "Poll"} {
		require.ErrorContains(t, err, part)
	}
	_, err = closing.NewRetirer(closing.RetirerConfig{Grace: -1})
	for _, part := range []string{"Store, Locks and Log", "Grace", "Every"} {
		require.ErrorContains(t, err, part)
	}
}
