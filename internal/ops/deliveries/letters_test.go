package deliveries

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// bySink returns one pick per sink. If the caller continues after a dead letter, the first pick is for the sink of that
// letter.
func TestPickBySink(t *testing.T) {
	t.Parallel()
	both := deadletter.Filter{Sinks: []string{"balance", "kafka"}, Class: "permanent"}
	one := func(sink string) deadletter.Filter {
		return deadletter.Filter{Sinks: []string{sink}, Class: "permanent"}
	}
	require.Equal(t, []deadletter.Pick{{Filter: one("balance")}, {Filter: one("kafka")}},
		bySink(&deadletter.Pick{Filter: both}))
	require.Equal(t, []deadletter.Pick{{Filter: one("balance"), After: "balance/0/1-1"}, {Filter: one("kafka")}},
		bySink(&deadletter.Pick{Filter: both, After: "balance/0/1-1"}))
	require.Equal(t, []deadletter.Pick{{Filter: one("kafka"), After: "kafka/0/1-1"}},
		bySink(&deadletter.Pick{Filter: both, After: "kafka/0/1-1"}))
	require.Equal(t, []deadletter.Pick{{Filter: one("kafka"), IDs: []string{"kafka/0/1-1"}}},
		bySink(&deadletter.Pick{Filter: both, IDs: []string{"kafka/0/1-1"}}))
}

// A requeue or a replay uses the batch size and the rate of its sink, also if a person has set the rate.
func TestRequeueKeepsTheSinksBounds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	a.Config.Sinks.Balance.GrantsPerSecond, a.Config.Sinks.Balance.BatchGrants = 700, 30
	bounds := Of(a).sinkBounds(t.Context(), "balance")
	require.InDelta(t, 700, bounds.Rate, 0)
	require.Equal(t, 30, bounds.BatchGrants)
	require.Zero(t, Of(a).sinkBounds(t.Context(), "kafka").Rate)
	rate := 500
	_, err := Of(a).LimitSink(t.Context(), "balance", &rate, stream.Decision{By: "ann", Why: "the bank asked for it"})
	require.NoError(t, err)
	require.InDelta(t, 500, Of(a).sinkBounds(t.Context(), "balance").Rate, 0)
	require.NoError(t, a.Redis().Del(t.Context(), a.Store().Shard(0).Keys.Sink("balance")).Err())
	require.InDelta(t, 500, Of(a).sinkBounds(t.Context(), "balance").Rate, 0, "another shard still has the limit")

	again := Of(a).boundsOf(t.Context(), "balance", 0, time.Minute)
	require.Equal(t, delivery.Options{BatchGrants: 30, Rate: 500, Patience: time.Minute}, again)
	again = Of(a).boundsOf(t.Context(), "balance", 900, 0)
	require.Equal(t, delivery.Options{BatchGrants: 30, Rate: 900}, again, "the request's own rate takes precedence")
	again = Of(a).boundsOf(t.Context(), "topic:other", 0, 0)
	require.Equal(t, delivery.Options{BatchGrants: a.Config.Publisher.BatchGrants}, again, "another topic is no sink")
}

// The topic is down. A dry run of a requeue still counts the letters, because it delivers nothing.
func TestRequeueIsCountedWithoutTheTopic(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	a.Config.Publisher.Brokers = []string{testkit.FreeAddr(t)}
	require.NoError(t, a.Redis().XAdd(t.Context(), &redis.XAddArgs{Stream: a.Store().Shard(0).Keys.Dead("kafka"),
		Values: []string{"seq", "1", "class", "permanent"}}).Err())
	o := Requeue{DryRun: true, Decision: stream.Decision{By: "ann", Why: "test"},
		Pick: deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}}}
	report, err := Of(a).Requeue(t.Context(), o)
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Matched)
	o.DryRun, o.Pick.Expect = false, &report.Matched
	_, err = Of(a).Requeue(t.Context(), o)
	require.ErrorContains(t, err, "kafka")
}

// A letter is written after the letters of the filter were counted. A drop does not drop that letter.
func TestDropKeepsToTheLettersThatWereCounted(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	k := a.Store().Shard(0)
	bury := func() {
		require.NoError(t, a.Redis().XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Dead("kafka"),
			Values: []string{"seq", "1", "class", "permanent"}}).Err())
	}
	bury()
	bury()
	looks, expect := 0, int64(2)
	pick := deadletter.Pick{Expect: &expect, Filter: deadletter.Filter{Sinks: []string{"kafka"}, Sees: func(string) bool {
		if looks++; looks == 2 { // the last letter that is counted
			bury()
		}
		return true
	}}}
	report, err := Of(a).DropLetters(t.Context(), pick, stream.Decision{By: "ann", Why: "test"}, false)
	require.NoError(t, err)
	require.EqualValues(t, 2, report.Resolved)
	require.EqualValues(t, 1, a.Redis().XLen(t.Context(), k.Keys.Dead("kafka")).Val())
}
