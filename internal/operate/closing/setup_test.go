package closing_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// memLedger is a ledger in memory. It posts one refund, once it has the grants that the closes count.
type memLedger struct {
	mu      sync.Mutex
	grants  int64
	refunds map[string]payment.Refund
	shards  int   // number of shards over which the campaign is dealt
	packets int64 // packets of the campaign, including top-ups
	aside   []model.Quarantined
	posts   int
	// before and after simulate a process that dies, or an answer that is lost. They are nil if nothing fails.
	before, after func() error
}

func (l *memLedger) Refund(_ context.Context, closes []stream.Entry, missing int64) (payment.Refund, error) {
	if l.before != nil {
		if err := l.before(); err != nil {
			return payment.Refund{}, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := closes[0].Campaign
	r, ok := l.refunds[id]
	if !ok {
		r = payment.Refund{Campaign: id, Amount: total - hongbao.Amount(10*l.grants), Packets: 10 - l.grants}
		granted := int64(0)
		for _, c := range closes {
			granted += c.Close.Granted
			r.Closes = append(r.Closes, payment.Close{Shard: c.Shard, Seq: c.Seq})
		}
		if l.grants+missing < granted {
			return r, hongbao.Errorf(hongbao.ClassTransient, "%w: %d of %d", payment.ErrSettling, l.grants, granted)
		}
		l.posts++
		l.refunds[id] = r
	}
	if l.after != nil {
		return payment.Refund{}, l.after()
	}
	return r, nil
}

func (l *memLedger) RefundOf(_ context.Context, campaign string) (payment.Refund, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.refunds[campaign]
	return r, ok, nil
}

func (l *memLedger) Campaign(_ context.Context, id string) (c ledger.StoredCampaign, found bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Spec = hongbao.Campaign{ID: id, Packets: 10, Total: total, Shards: l.shards}
	c.Packets = max(c.Spec.Packets, l.packets)
	c.Funded, c.Granted, c.Grants = total, hongbao.Amount(10*l.grants), l.grants
	return c, true, nil
}

func (l *memLedger) Quarantine(_ context.Context, after int64, _ int) ([]model.Quarantined, error) {
	if after > 0 {
		return nil, nil
	}
	return l.aside, nil
}

type mutex struct{ mu sync.Mutex }

func (m *mutex) Do(ctx context.Context, _ string, fn func(context.Context) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fn(ctx)
}

type bundle struct {
	t      *testing.T
	rdb    *redis.Client
	store  *store.Store
	k      *store.Shard
	ledger *memLedger
	locks  closing.Locker
	log    *zap.Logger
	*closing.Closer
}

const total = 100

// setup returns a deployment with campaign "rain" of ten packets, of which the first three are granted.
func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, testkit.Redis(t))
}

func setupOn(t *testing.T, server *testkit.RedisServer) *bundle {
	t.Helper()
	b := setupOver(t, server, 2, 1)
	storetest.Grab(t, b.k, "rain", "u1", "u2", "u3")
	b.Closer = b.closer()
	return b
}

// setupOver returns a deployment of n shards. The campaign is dealt over the given number of places.
func setupOver(t *testing.T, server *testkit.RedisServer, n, places int) *bundle {
	t.Helper()
	rdb := server.Client(t)
	st := storetest.InitializedOn(t, rdb, n)
	b := &bundle{
		t: t, rdb: rdb, store: st, k: st.Home("rain").Shard, locks: &mutex{}, log: zaptest.NewLogger(t),
		ledger: &memLedger{refunds: map[string]payment.Refund{}, shards: places},
	}
	for _, k := range st.Places("rain", places) {
		_, err := k.Group("balance").Create(t.Context())
		require.NoError(t, err)
	}
	b.load("rain", places)
	return b
}

// load opens a campaign of ten packets of 10 over the given number of shards.
func (b *bundle) load(id string, places int) {
	b.t.Helper()
	c := loaded.Rain(id, 10, total)
	c.Shards = places
	_, err := loaded.Seeded(b.t.Context(), b.store, c, campaign.NewSeed())
	require.NoError(b.t, err)
}

func (b *bundle) row(id string) *ledger.StoredCampaign {
	b.t.Helper()
	c, _, err := b.ledger.Campaign(b.t.Context(), id)
	require.NoError(b.t, err)
	return &c
}

func (b *bundle) Close(ctx context.Context, id string, early bool) (closing.Progress, error) {
	return b.Closer.Close(ctx, b.row(id), early)
}

func (b *bundle) Progress(ctx context.Context, id string) (closing.Progress, error) {
	return b.Closer.Progress(ctx, b.row(id))
}

func (b *bundle) Refund(ctx context.Context, o closing.Order) (payment.Refund, error) {
	return b.Closer.Refund(ctx, b.row(o.Campaign), o)
}

func (b *bundle) closer() *closing.Closer {
	b.t.Helper()
	c, err := closing.New(closing.Config{
		Store: b.store, Ledger: b.ledger, Locks: b.locks, Group: "balance", Log: b.log,
		Poll: 10 * time.Millisecond,
	})
	require.NoError(b.t, err)
	return c
}

func (b *bundle) close() closing.Progress {
	b.t.Helper()
	s, err := b.Close(b.t.Context(), "rain", true)
	require.NoError(b.t, err)
	require.Equal(b.t, hongbao.Amount(total-30), s.Amount())
	return s
}

// addDeadLetter writes a dead letter for a grant of the campaign on this shard.
func (b *bundle) addDeadLetter(k *store.Shard, campaign string) {
	b.t.Helper()
	require.NoError(b.t, b.rdb.XAdd(b.t.Context(), &redis.XAddArgs{Stream: k.Keys.Dead("balance"), Values: []string{
		"v", "2", "group", "balance", "entry", "1-1", "seq", "1", "grant", "1 10 u1 - -", "class", "permanent",
		"reason", "closed account", "attempts", "1", "first", "1", "last", "2",
		"entry.3", "grant " + campaign + " 1 1 1700000000000 -",
	}}).Err())
}

// settle sets the number of grants in the ledger, and makes the ledger's group finish everything.
func (b *bundle) settle(grants int64) {
	b.t.Helper()
	b.ledger.mu.Lock()
	b.ledger.grants = grants
	b.ledger.mu.Unlock()
	raw, err := b.k.Group("balance").ReadNew(b.t.Context(), "w1", 100, 0)
	require.NoError(b.t, err)
	for _, r := range raw {
		_, err := b.k.Group("balance").Ack(b.t.Context(), nil, []string{r.ID})
		require.NoError(b.t, err)
	}
}

func (b *bundle) state() string {
	b.t.Helper()
	state, err := b.rdb.HGet(b.t.Context(), b.k.Keys.Campaign("rain"), "state").Result()
	require.NoError(b.t, err)
	return state
}

func order(amount hongbao.Amount, wait time.Duration) closing.Order {
	return closing.Order{Campaign: "rain", Amount: amount, Wait: wait}
}
