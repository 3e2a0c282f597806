package app

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// config returns the configuration of an environment.
func config(t *testing.T, env ...string) *configs.Config {
	t.Helper()
	cfg, err := configs.Load("", env, nil)
	require.NoError(t, err)
	return cfg
}

// opened returns an App that skips the checks of openRedis, so its Redis need not be initialized.
func opened(t *testing.T, cfg *configs.Config) *App {
	t.Helper()
	a, err := New(cfg, zap.NewNop(), Hooks{})
	require.NoError(t, err)
	a.AcceptRedis()
	t.Cleanup(func() {
		var err error
		a.Shut(&err)
		require.NoError(t, err)
	})
	return a
}

// onServers returns an App with its own Redis and its own database.
func onServers(t *testing.T, driver, dsn string, allow string, env ...string) *App {
	t.Helper()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	cfg := config(t, append(env, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_REDIS_ADDRS="+server.Addr,
		"HONGBAO_LEDGER_DRIVER="+driver, "HONGBAO_LEDGER_DSN="+dsn, "HONGBAO_UNSAFE_ALLOW="+allow)...)
	_, err := ledger.Migrate(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	a := opened(t, cfg)
	l, err := ledger.Open(t.Context(), cfg.LedgerConfig())
	require.NoError(t, err)
	_, err = l.Initialize(t.Context(), a.deploymentRow())
	require.NoError(t, errors.Join(err, l.Close()))
	return a
}

// creates adds a campaign with one packet to the ledger.
func creates(t *testing.T, a *App, id string) hongbao.Campaign {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	spec := campaign.Complete(hongbao.Campaign{ID: id, Sponsor: "acme", Currency: "CNY", Packets: 1, Total: 1,
		From: now, To: now.Add(time.Hour), TimeZone: "UTC"})
	_, err := a.ledger.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: campaign.NewSeed(), Hash: "h",
		Canonical: campaign.Canonical(spec)})
	require.NoError(t, err)
	return spec
}

// onRedis returns an App with its own Redis of four shards. Redis has campaign rain with the given durability class on
// places shards. A user may win two packets.
func onRedis(t *testing.T, server *testkit.RedisServer, class hongbao.Durability, places int) *App {
	t.Helper()
	cfg := config(t, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_PRODUCER_DURABILITY_TIMEOUT=150ms",
		"HONGBAO_REDIS_ADDRS="+server.Addr, "HONGBAO_REDIS_POOL_SIZE=10", "HONGBAO_DEPLOYMENT_SHARDS=4")
	a := opened(t, cfg)
	require.NoError(t, a.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	loads(t, a, "rain", class, places)
	return a
}

func loads(t *testing.T, a *App, id string, class hongbao.Durability, places int) {
	t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	c := campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 500, Packets: 50,
		Split: hongbao.Split{Mode: hongbao.SplitEven}, From: now.Add(-time.Hour), To: now.Add(time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: class, Shards: places,
		Limits: []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}},
	})
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	require.NoError(t, err)
	loader, err := a.loader()
	require.NoError(t, err)
	require.NoError(t, loader.Load(t.Context(), c, plan, campaign.Commit(c, seed), nil))
}

// grants wins a packet for the user on the campaign's first shard, without waiting for durability.
func grants(t *testing.T, a *App, user string) {
	t.Helper()
	grantsOn(t, a, a.store.Home("rain"), user)
}

func grantsOn(t *testing.T, a *App, k *store.Shard, user string) {
	t.Helper()
	call := &store.GrabCall{Campaign: "rain", MaxBacklog: 1e6,
		Grabs: []*hongbao.Grab{{Campaign: "rain", User: user, RequestID: "r1"}}}
	answers, err := k.Grab(t.Context(), call, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
}
