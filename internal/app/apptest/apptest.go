// Package apptest opens an App for the tests of the operations.
package apptest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Opened returns an App that skips the checks of OpenRedis, so its Redis need not be initialized.
func Opened(t *testing.T, cfg *configs.Config) *app.App {
	t.Helper()
	a, err := app.New(cfg, zap.NewNop(), app.Hooks{})
	require.NoError(t, err)
	a.AcceptRedis()
	t.Cleanup(func() {
		var err error
		a.Shut(&err)
		require.NoError(t, err)
	})
	return a
}

// OnServers returns an App with its own Redis and its own database.
func OnServers(t *testing.T, driver, dsn string, allow string, env ...string) *app.App {
	t.Helper()
	return Opened(t, configstest.OnServers(t, driver, dsn, allow, env...))
}

// Creates adds a campaign with one packet to the ledger.
func Creates(t *testing.T, a *app.App, id string) hongbao.Campaign {
	t.Helper()
	now := time.Now().Truncate(time.Second)
	spec := campaign.Complete(hongbao.Campaign{ID: id, Sponsor: "acme", Currency: "CNY", Packets: 1, Total: 1,
		From: now, To: now.Add(time.Hour), TimeZone: "UTC"})
	_, err := a.Ledger().CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Seed: campaign.NewSeed(), Hash: "h",
		Canonical: campaign.Canonical(spec)})
	require.NoError(t, err)
	return spec
}

// OnRedis returns an App with its own Redis of four shards. Redis has campaign rain with the given durability class on
// places shards. A user may win two packets.
func OnRedis(t *testing.T, server *testkit.RedisServer, class hongbao.Durability, places int) *app.App {
	t.Helper()
	cfg := configstest.Config(t, "HONGBAO_DEPLOYMENT_ID=test", "HONGBAO_PRODUCER_DURABILITY_TIMEOUT=150ms",
		"HONGBAO_REDIS_ADDRS="+server.Addr, "HONGBAO_REDIS_POOL_SIZE=10", "HONGBAO_DEPLOYMENT_SHARDS=4")
	a := Opened(t, cfg)
	require.NoError(t, a.Store().Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	Loads(t, a, "rain", class, places)
	return a
}

// Loads loads a campaign of 50 packets, of which a user may win two.
func Loads(t *testing.T, a *app.App, id string, class hongbao.Durability, places int) {
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
	loader, err := a.Loader()
	require.NoError(t, err)
	require.NoError(t, loader.Load(t.Context(), c, plan, campaign.Commit(c, seed), nil))
}

// Grants wins a packet for the user on the campaign's first shard, without waiting for durability.
func Grants(t *testing.T, a *app.App, user string) {
	t.Helper()
	GrantsOn(t, a, a.Store().Home("rain").Shard, user)
}

// GrantsOn wins a packet of campaign rain for the user on a shard.
func GrantsOn(t *testing.T, a *app.App, k *store.Shard, user string) {
	t.Helper()
	call := &store.GrabCall{MaxBacklog: 1e6,
		Grabs: []*hongbao.Grab{{Campaign: "rain", User: user, RequestID: "r1"}}}
	answers, err := k.Place("rain").Grab(t.Context(), call, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
}
