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
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	sqlitedb "github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
	"github.com/hongbao-project/hongbao/producer"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// bundle is a deployment in Redis for tests that run several stages.
type bundle struct {
	rdb   redis.UniversalClient
	store *store.Store
	log   *zap.Logger
}

func setup(t *testing.T, n int) *bundle {
	t.Helper()
	return bundleOf(storetest.Initialized(t, n), zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
}

func bundleOf(st *store.Store, log *zap.Logger) *bundle {
	return &bundle{rdb: st.Redis(), store: st, log: log}
}

// spec returns the specification of a campaign that is open now. Tests may change it before they load it.
func spec(id string, packets int64, total hongbao.Amount) hongbao.Campaign {
	c := loaded.Rain(id, packets, total)
	c.Split = hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total}
	return c
}

func (b *bundle) load(t *testing.T, c hongbao.Campaign) ledger.Campaign {
	t.Helper()
	row := rowOf(c)
	_, err := loaded.Seeded(t.Context(), b.store, c, row.Seed)
	require.NoError(t, err)
	return row
}

// rowOf returns the row of a campaign in the ledger, with a new seed.
func rowOf(c hongbao.Campaign) ledger.Campaign {
	seed := campaign.NewSeed()
	return ledger.Campaign{Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: campaign.Commit(c, seed)}
}

func (b *bundle) producer(t *testing.T) *producer.Producer {
	t.Helper()
	cfg := producer.DefaultConfig()
	cfg.Deployment = deployment.Of(b.store, zap.NewNop())
	p, err := producer.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// work starts a worker of a sink, with a configuration that change may change. stop stops the worker.
func (b *bundle) work(t *testing.T, sink, name string, h hongbao.Handler,
	change func(*consumer.Config)) (w *consumer.Consumer, stop func()) {
	t.Helper()
	cfg := consumer.DefaultConfig()
	cfg.Deployment = deployment.Of(b.store, b.log)
	cfg.Group, cfg.Consumer, cfg.Handler = sink, name, h
	change(&cfg)
	w, err := consumer.New(cfg)
	require.NoError(t, err)
	return w, testkit.Go(t, w.Run)
}

func sqlite(file string) ledger.Config {
	return ledger.Config{Database: sqlitedb.Database{Path: file}, Retries: 5, Limits: db.Limits{Conns: 4,
		ConnectTimeout: 5 * time.Second, LockTimeout: 5 * time.Second, Timeout: 20 * time.Second}}
}

// newDatabase creates the tables of a ledger in an empty database, and opens the ledger.
func newDatabase(t *testing.T, c ledger.Config) *ledger.Ledger {
	t.Helper()
	_, err := ledger.Migrate(t.Context(), c)
	require.NoError(t, err)
	l, err := ledger.Open(t.Context(), c)
	require.NoError(t, err)
	return l
}

// ledger returns an SQLite ledger that has the campaigns, and a settler for it.
func (b *bundle) ledger(t *testing.T, campaigns ...ledger.Campaign) (*ledger.Ledger, *ledger.Settler) {
	t.Helper()
	l := newDatabase(t, sqlite(filepath.Join(t.TempDir(), "ledger.db")))
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	for _, c := range campaigns {
		_, err := l.CreateCampaign(t.Context(), c)
		require.NoError(t, err)
	}
	s, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: l, Plan: b.plans(t, l), Log: b.log})
	require.NoError(t, err)
	return l, s
}

func user(i int) string { return fmt.Sprintf("u%08d", i) }

// farAlong sets the seq of every shard to a large number. Tests then use lower seqs for grants that no grab made.
func (b *bundle) farAlong(t *testing.T) *bundle {
	t.Helper()
	storetest.FarAlong(t, b.store)
	return b
}
