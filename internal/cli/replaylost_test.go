package cli

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// lostPaidGrants returns a deployment whose Redis has lost six grants that are paid, and whose shard was opened again.
// The topic has the grants with seqs 1 and 2.
func lostPaidGrants(t *testing.T, o options) *deployment {
	t.Helper()
	o.kafka, o.redis = true, testkit.NewRedis(t, testkit.RedisOptions{})
	d := setup(t, o)
	d.campaign("rain", 10, 1000)
	require.Equal(t, 2, d.crowdOf("rain", 0, 2))
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Equal(t, 4, d.crowdOf("rain", 2, 4))
	w = d.start("work", "--sink", "balance")
	testkit.Eventually(t, 30*time.Second, func() bool { return d.auditNow().Total.Settled == 6 }, "all are paid")
	w.stop(syscall.SIGTERM)

	k, ctx := d.store.Shard(0), t.Context()
	keys, err := d.rdb.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if key != k.Keys.Meta() && !strings.HasSuffix(key, ":{deployment}") {
			require.NoError(t, d.rdb.Del(ctx, key).Err())
		}
	}
	require.NoError(t, d.rdb.XAdd(ctx, &redis.XAddArgs{Stream: k.Keys.Events(), Values: []string{"2",
		fmt.Sprintf("epoch - 1 2 %d\n65535 6", time.Now().UnixMilli())}}).Err())
	require.NoError(t, d.rdb.HSet(ctx, k.Keys.Meta(), "epoch", 2, "seq", 65535, "skipped", "1-65535@2",
		"finished", 0).Err())
	w = d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	return d
}

// Redis has lost grants that are paid but not published, and the shard was opened again. The replay that the audit
// recommends publishes each of these grants once.
func TestReplayOfPaidGrantsThatRedisLost(t *testing.T) {
	t.Parallel()
	d := lostPaidGrants(t, options{})
	require.EqualValues(t, 4, d.auditNow().Found[audit.MissingInTopic])
	report := decided[model.ReplayReport](t, d.ok("replay", "repair", "--to", configs.SinkKafka, "--missing", "--json"))
	require.EqualValues(t, 4, report.Delivered)
	r := d.auditNow()
	require.Zero(t, r.Found[audit.MissingInTopic]+r.Found[audit.DuplicateInTopic], "%v", r.Differences)
	require.EqualValues(t, 6, r.Total.Published)
	again := decided[model.ReplayReport](t, d.ok("replay", "again", "--to", configs.SinkKafka, "--missing", "--json"))
	require.Zero(t, again.Delivered)
}

// Redis has lost two campaigns, and a person accepted the loss, so each campaign is only a stub there. A replay
// publishes the paid grants from the ledger, with the currency of the red packets and the codes of the coupons.
func TestReplayOfCampaignsThatRedisLost(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	d.ok("campaign", "create", coupons(t))
	d.ok("campaign", "load", "spring-coupons")
	require.Equal(t, 3, d.crowdOf("rain", 0, 3))
	code := d.grabJSON("spring-coupons", "u1", "--request-id", "r").Receipts[0].Code
	require.NotEmpty(t, code)
	w := d.start("work", "--sink", "balance")
	testkit.Eventually(t, 30*time.Second, func() bool { return d.auditNow().Total.Settled == 4 }, "all are paid")
	w.stop(syscall.SIGTERM)
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	d.acceptLoss("no file is left")

	report := decided[model.ReplayReport](t, d.ok("replay", "repair", "--to", configs.SinkKafka, "--missing", "--json"))
	require.EqualValues(t, 4, report.Delivered)
	events := d.tailed()
	require.Len(t, events, 4)
	for _, e := range events {
		if e.Campaign == "rain" {
			require.Equal(t, "CNY", e.Currency, e.Event)
		} else {
			require.Equal(t, code, e.Code, e.Event)
		}
	}
}

// The ledger has two wins with the same seq, as after two primaries, and the topic has one of them. A replay publishes
// the other one. A copy in another topic gets both, the second one by a replay with another name and a filter.
func TestReplayOfTwoWinsWithTheSameSeq(t *testing.T) {
	t.Parallel()
	d := lostPaidGrants(t, options{postgres: true})
	require.EqualValues(t, 1, d.exec("UPDATE grants SET seq = 2 WHERE seq = 4"))
	wins := func() (users []string) {
		for _, r := range d.records() {
			e, err := topic.DecodeMessage(r.Headers, r.Key, r.Value)
			require.NoError(t, err)
			users = append(users, e.Grant.User)
		}
		slices.Sort(users)
		return users
	}
	before := wins()
	require.Len(t, before, 2)
	report := decided[model.ReplayReport](t, d.ok("replay", "repair", "--to", configs.SinkKafka, "--missing", "--json"))
	require.EqualValues(t, 4, report.Delivered)
	all := wins()
	require.Len(t, all, 6)
	require.Len(t, slices.Compact(slices.Clone(all)), 6, "each win once")
	again := decided[model.ReplayReport](t, d.ok("replay", "again", "--to", configs.SinkKafka, "--missing", "--json"))
	require.Zero(t, again.Delivered)

	d.topic = testkit.Kafka(t).Topic(t, 2, nil)
	to := "topic:" + d.topic
	report = decided[model.ReplayReport](t, d.ok("replay", "copy", "--to", to, "--json"))
	require.Equal(t, []int64{5, 1}, []int64{report.Delivered, report.SameSeq})
	for i, user := range all {
		if has := wins(); !slices.Contains(has, user) {
			report = decided[model.ReplayReport](t, d.ok("replay", fmt.Sprint("rest", i), "--to", to, "--user", user, "--json"))
			require.Equal(t, []int64{1, 0}, []int64{report.Delivered, report.SameSeq})
		}
	}
	require.Equal(t, all, wins())
}
