package test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bundle is what a test of the whole needs of Redis: one deployment of its own.
type bundle struct {
	rdb   redis.UniversalClient
	store *store.Store
	log   *zap.Logger
}

func setup(t *testing.T, n int) *bundle {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	rdb := testkit.Redis(t).Client(t)
	st, err := store.Of(rdb, hongbao.Space{Prefix: testkit.Prefix(t), Shards: n})
	require.NoError(t, err)
	b := &bundle{rdb: rdb, store: st, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))}
	require.NoError(t, st.Found(t.Context(), store.FoundCall{Deployment: "test"}))
	return b
}

// spec is a campaign that is open now; change it before it is loaded.
func spec(id string, packets int64, total hongbao.Amount) hongbao.Campaign {
	now := time.Now().Truncate(time.Millisecond)
	return campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: total, Packets: packets,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total}, From: now.Add(-time.Hour),
		To:       now.Add(time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: hongbao.DurabilityFast,
	})
}

func (b *bundle) load(t *testing.T, c hongbao.Campaign) ledger.Campaign {
	t.Helper()
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	require.NoError(t, err)
	st, err := load.New(b.store, load.Config{Chunk: 1000})
	require.NoError(t, err)
	hash := campaign.Commit(c, seed)
	require.NoError(t, st.Load(t.Context(), c, plan, hash, nil))
	return ledger.Campaign{Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: hash}
}

func (b *bundle) producer(t *testing.T) *producer.Producer {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Redis, cfg.Space, cfg.Deployment = b.rdb, b.store.Space(), "test"
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// newDatabase makes the tables of a ledger in an empty database, and opens it.
func newDatabase(t *testing.T, c ledger.Config) *ledger.Ledger {
	t.Helper()
	_, err := ledger.Migrate(t.Context(), c)
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), c)
	require.NoError(t, err)
	return l
}

// ledger is an SQLite ledger with the campaigns, and the settler on it.
func (b *bundle) ledger(t *testing.T, campaigns ...ledger.Campaign) (*ledger.Ledger, *ledger.Settler) {
	t.Helper()
	l := newDatabase(t, ledger.Config{
		Driver: ledger.SQLite, DSN: filepath.Join(t.TempDir(), "ledger.db"), Conns: 4, ConnectTimeout: 5 * time.Second,
		LockTimeout: 5 * time.Second, Timeout: 20 * time.Second, Retries: 5,
	})
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	for _, c := range campaigns {
		_, err := l.CreateCampaign(t.Context(), c)
		require.NoError(t, err)
	}
	plans, err := campaign.NewPlans(campaign.PlansConfig{MaxPackets: hongbao.MaxPackets,
		Source: func(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, error) {
			c, _, err := l.Campaign(ctx, id)
			return c.Spec, c.Seed, err
		}})
	require.NoError(t, err)
	s, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: l, Plan: plans, Log: b.log})
	require.NoError(t, err)
	return l, s
}

func user(i int) string { return fmt.Sprintf("u%08d", i) }

// farAlong makes every shard look as if it had come a long way: for grants that no grab wrote.
func (b *bundle) farAlong(t *testing.T) *bundle {
	t.Helper()
	for i := range b.store.Len() {
		require.NoError(t, b.rdb.HSet(t.Context(), b.store.Shard(i).Keys.Meta(), "seq", 1<<40).Err())
	}
	return b
}
