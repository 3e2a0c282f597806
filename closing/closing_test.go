package closing_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/closing"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/lua"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// memLedger is a ledger in memory: it refunds once, when it holds what the close tells.
type memLedger struct {
	mu      sync.Mutex
	grants  int64
	refunds map[string]hongbao.Refund
	posts   int
	// before and after stand for a process that dies, or an answer that is lost; nil for nothing.
	before, after func() error
}

func (l *memLedger) Refund(_ context.Context, closed hongbao.Entry, missing int64) (hongbao.Refund, error) {
	if l.before != nil {
		if err := l.before(); err != nil {
			return hongbao.Refund{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.refunds[closed.Campaign]
	if !ok {
		if l.grants+missing < closed.Close.Granted {
			return r, hongbao.Errorf(hongbao.Transient, "%w: %d of %d", hongbao.ErrSettling, l.grants, closed.Close.Granted)
		}
		l.posts++
		r = hongbao.Refund{Campaign: closed.Campaign, Amount: total - hongbao.Amount(10*l.grants), Packets: 10 - l.grants, Shard: closed.Shard, Seq: closed.Seq}
		l.refunds[closed.Campaign] = r
	}
	if l.after != nil {
		return hongbao.Refund{}, l.after()
	}
	return r, nil
}

func (l *memLedger) RefundOf(_ context.Context, campaign string) (hongbao.Refund, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.refunds[campaign]
	return r, ok, nil
}

func (l *memLedger) Held(context.Context, string) (hongbao.Closing, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sum := hongbao.Amount(10 * l.grants)
	return hongbao.Closing{Granted: l.grants, GrantedAmount: sum, Left: 10 - l.grants, LeftAmount: total - sum}, nil
}

// mutex is a Locker within one process.
type mutex struct{ mu sync.Mutex }

func (m *mutex) Do(ctx context.Context, _ string, fn func(context.Context) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fn(ctx)
}

type bundle struct {
	t      *testing.T
	rdb    *redis.Client
	space  *lua.Space
	k      lua.Keys
	ledger *memLedger
	locks  closing.Locker
	log    *zap.Logger
	*closing.Closer
}

const total = 100

// setup is a deployment with campaign "rain" of ten packets, of which the first three are granted.
func setup(t *testing.T) *bundle {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	space, err := lua.NewSpace(testkit.Prefix(t), 2)
	require.NoError(t, err)
	b := &bundle{
		t: t, rdb: testkit.Redis(t).Client(t), space: space, k: space.Home("rain"), locks: &mutex{}, log: zaptest.NewLogger(t),
		ledger: &memLedger{refunds: map[string]hongbao.Refund{}},
	}
	require.NoError(t, lua.Init(t.Context(), b.rdb, space, "test"))
	_, err = lua.CreateGroup(t.Context(), b.rdb, b.k, "balance")
	require.NoError(t, err)
	_, err = lua.Begin(t.Context(), b.rdb, b.k, &lua.BeginCall{Campaign: "rain", Hash: "h", Fields: []string{
		"from", "1000", "to", "9000000000000", "packets", "10", "total", "100", "user_campaign", "1", "user_day", "", "user_hour", "",
		"fact_names", "", "fact_limits", "", "zone", "0:0",
	}})
	require.NoError(t, err)
	_, err = lua.LoadChunk(t.Context(), b.rdb, b.k, &lua.Chunk{Campaign: "rain", Hash: "h", First: 1,
		Amounts: []hongbao.Amount{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}})
	require.NoError(t, err)
	require.NoError(t, lua.SetState(t.Context(), b.rdb, b.k, "rain", "open", "loading"))
	answers, err := lua.Grab(t.Context(), b.rdb, b.k, &lua.GrabCall{Campaign: "rain", MaxBacklog: 1e6,
		Grabs: []*hongbao.Grab{{Campaign: "rain", User: "u1"}, {Campaign: "rain", User: "u2"}, {Campaign: "rain", User: "u3"}}}, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.Granted, answers[2].Outcome)
	b.Closer = b.closer()
	return b
}

func (b *bundle) closer() *closing.Closer {
	b.t.Helper()
	c, err := closing.New(closing.Config{
		Redis: b.rdb, Space: b.space, Ledger: b.ledger, Locks: b.locks, Group: "balance", Log: b.log, Poll: 10 * time.Millisecond,
	})
	require.NoError(b.t, err)
	return c
}

func (b *bundle) close() closing.Standing {
	b.t.Helper()
	s, err := b.Close(b.t.Context(), "rain", true)
	require.NoError(b.t, err)
	require.Equal(b.t, hongbao.Amount(total-30), s.Amount())
	return s
}

// settle has the ledger hold so many grants, and then, as a worker does, its group finish everything.
func (b *bundle) settle(grants int64) {
	b.t.Helper()
	b.ledger.mu.Lock()
	b.ledger.grants = grants
	b.ledger.mu.Unlock()
	raw, err := lua.ReadNew(b.t.Context(), b.rdb, b.k, "balance", "w1", 100, 0)
	require.NoError(b.t, err)
	for _, r := range raw {
		_, err := lua.Ack(b.t.Context(), b.rdb, b.k, "balance", nil, []string{r.ID})
		require.NoError(b.t, err)
	}
}

func (b *bundle) state() string {
	b.t.Helper()
	state, err := b.rdb.HGet(b.t.Context(), b.k.Campaign("rain"), "state").Result()
	require.NoError(b.t, err)
	return state
}

// B35, B36: before the close, twice, with entries pending.
func TestRefundInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, lua.ErrNotClosed)
	_, err = b.Standing(t.Context(), "rain")
	require.ErrorIs(t, err, lua.ErrNotClosed)
	_, err = b.Close(t.Context(), "typo", true)
	require.ErrorIs(t, err, lua.ErrNotInRedis)
	_, err = b.Close(t.Context(), "rain", false)
	require.ErrorContains(t, err, "its window is open until")

	first := b.close()
	require.Equal(t, first, b.close())
	_, err = b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, hongbao.ErrSettling)
	require.Equal(t, hongbao.Transient, hongbao.ClassOf(err))
	_, err = b.Refund(t.Context(), order(70, 50*time.Millisecond))
	require.ErrorIs(t, err, hongbao.ErrSettling)
	require.Zero(t, b.ledger.posts)
	b.settle(3)
	for _, wrong := range []hongbao.Amount{0, 69, 71, 30} { // B51
		_, err = b.Refund(t.Context(), order(wrong, 0))
		require.ErrorContains(t, err, "the amount is 70 minor units")
		require.Equal(t, hongbao.Permanent, hongbao.ClassOf(err))
	}
	require.Zero(t, b.ledger.posts)
	require.Equal(t, "closed", b.state())
	r, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, hongbao.Refund{Campaign: "rain", Amount: 70, Packets: 7, Shard: b.k.Index(), Seq: 4}, r)
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

// F59: it waits while entries are pending, and goes on by itself.
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

// That the ledger holds as many grants as the close tells is not enough: the group must have finished them, so that none of
// another version is still on its way.
func TestRefundWaitsForTheGroup(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.ledger.grants = 3
	_, err := b.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, hongbao.ErrSettling)
	require.ErrorContains(t, err, "has finished shard")
	require.Zero(t, b.ledger.posts)
}

// A grant that the group has finished and the ledger does not hold is not waited for.
func TestRefundWithDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.settle(2)
	_, err := b.Refund(t.Context(), order(70, time.Minute))
	require.ErrorContains(t, err, "dead letters")
	require.ErrorContains(t, err, "--missing 1 --amount 80")
	require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
	require.NotErrorIs(t, err, hongbao.ErrSettling)
	for _, o := range []closing.Order{{Amount: 80}, {Amount: 70, Missing: 1}, {Amount: 80, Missing: 2}, {Amount: 80, Missing: -1}} {
		o.Campaign = "rain"
		_, err = b.Refund(t.Context(), o)
		require.Error(t, err)
		require.Zero(t, b.ledger.posts)
	}
	require.Equal(t, "closed", b.state())
	r, err := b.Refund(t.Context(), closing.Order{Campaign: "rain", Amount: 80, Missing: 1}) // a person has decided it
	require.NoError(t, err)
	require.EqualValues(t, 80, r.Amount)
	require.Equal(t, "refunded", b.state())
}

// A ledger that holds more than the close tells of was written by something else: no order refunds it.
func TestRefundOfALedgerWithMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.close()
	b.settle(4)
	for _, o := range []closing.Order{order(70, 0), order(60, time.Minute), {Campaign: "rain", Amount: 60, Missing: -1}} {
		_, err := b.Refund(t.Context(), o)
		require.ErrorContains(t, err, "has paid 1 grants more than the close tells of")
		require.Equal(t, hongbao.Conflict, hongbao.ClassOf(err))
	}
	require.Zero(t, b.ledger.posts)
	require.Equal(t, "closed", b.state())
}

func order(amount hongbao.Amount, wait time.Duration) closing.Order {
	return closing.Order{Campaign: "rain", Amount: amount, Wait: wait}
}

var errDied = errors.New("died")

// F57: it dies at each step; another process goes on, and there is one refund.
func TestRefundDiesAtEachStep(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]struct {
		at    func(b *bundle, cancel func())
		posts int // by the one that died
	}{
		"before the lock":     {func(b *bundle, _ func()) { b.locks = lost{} }, 0},
		"before it is posted": {func(b *bundle, _ func()) { b.ledger.before = func() error { return errDied } }, 0},
		"the answer is lost": {func(b *bundle, _ func()) {
			b.ledger.after = func() error { return hongbao.Errorf(hongbao.Unknown, "%w", errDied) }
		}, 1},
		"before it is noted": {func(b *bundle, cancel func()) { b.locks = cancelling{b.locks, cancel} }, 1},
		"a wrong type in Redis": {func(b *bundle, _ func()) {
			require.NoError(b.t, b.rdb.Set(b.t.Context(), b.k.Refunded(), "x", 0).Err())
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
			_, err := b.closer().Refund(ctx, order(70, 0))
			require.Error(t, err)
			require.Equal(t, die.posts, b.ledger.posts)
			require.Equal(t, "closed", b.state())

			b.locks, b.ledger.before, b.ledger.after = locks, nil, nil
			require.NoError(t, b.rdb.Del(t.Context(), b.k.Refunded()).Err())
			r, err := b.closer().Refund(t.Context(), order(70, 0))
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

// F58: ten close and refund at once.
func TestConcurrentRefunds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var group errgroup.Group
	got := make([]hongbao.Refund, 10)
	for i := range got {
		group.Go(func() error {
			if _, err := b.Close(t.Context(), "rain", true); err != nil {
				return err
			}
			var err error
			got[i], err = b.closer().Refund(t.Context(), order(70, 20*time.Second))
			return err
		})
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return b.state() == "closed" }, "it is closed")
	b.settle(3)
	require.NoError(t, group.Wait())
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	require.Equal(t, 1, b.ledger.posts)
}

// A refunded campaign leaves Redis after its grace; what is not refunded stays.
func TestRetire(t *testing.T) {
	t.Parallel()
	b := setup(t)
	retirer := func(grace time.Duration) *closing.Retirer {
		r, err := closing.NewRetirer(closing.RetirerConfig{Redis: b.rdb, Space: b.space, Locks: b.locks, Log: b.log, Grace: grace, Every: 10 * time.Millisecond})
		require.NoError(t, err)
		return r
	}
	b.close()
	b.settle(3)
	gone, err := retirer(0).Retire(t.Context())
	require.NoError(t, err)
	require.Empty(t, gone, "it is closed, and not refunded")
	r, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	gone, err = retirer(time.Hour).Retire(t.Context())
	require.NoError(t, err)
	require.Empty(t, gone, "its grace runs")

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	run := retirer(0)
	go func() { done <- run.Run(ctx) }()
	testkit.Eventually(t, 10*time.Second, func() bool {
		n, err := b.rdb.Exists(t.Context(), b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Receipts("rain"), b.k.Refunded()).Result()
		return err == nil && n == 0
	}, "it has left Redis")
	stop()
	require.NoError(t, <-done)
	s, err := b.Close(t.Context(), "rain", false)
	require.NoError(t, err)
	require.Equal(t, closing.Standing{Refund: &r}, s, "the ledger knows")
	again, err := b.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, r, again)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := closing.New(closing.Config{Group: "*"})
	for _, part := range []string{"Redis, Space, Ledger, Locks and Log", "Group", "Poll"} {
		require.ErrorContains(t, err, part)
	}
	_, err = closing.NewRetirer(closing.RetirerConfig{Grace: -1})
	for _, part := range []string{"Redis, Space, Locks and Log", "Grace", "Every"} {
		require.ErrorContains(t, err, part)
	}
}
