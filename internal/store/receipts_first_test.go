package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A winner grabs again, without a request id or with a new one, while the campaign is paused, ended or not started.
// The answer has the winner's receipts. A user without packets is refused.
func TestWinnerGetsTheReceiptInEveryState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, hold := range []int64{1, 3} {
		for what, change := range map[hongbao.Outcome]func(id string) error{
			hongbao.OutcomePaused: func(id string) error {
				return testkit.ErrOf(b.store.Campaign(id).Pause(t.Context(), by("ann", "test")))
			},
			hongbao.OutcomeEnded: func(id string) error {
				_, err := b.k.Place(id).Close(t.Context(), true, 0)
				return err
			},
			hongbao.OutcomeNotStarted: func(id string) error { // as if the clock of Redis were set back
				return b.rdb.HSet(t.Context(), b.k.Keys.Campaign(id), "from", time.Now().Add(time.Hour).UnixMilli()).Err()
			},
		} {
			id := fmt.Sprintf("%s-%d", what, hold)
			c := spec(id, 10)
			c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: hold}}
			b.load(t, c)
			won := b.grab(t, id, "winner/r1")[0].Receipts
			require.NoError(t, change(id))
			answers, err := b.k.Place(id).Grab(t.Context(), call(id, "winner/r2", "loser/r3", "winner"), nil)
			require.NoError(t, err)
			require.Equal(t, what, answers[1].Outcome, id)
			for _, i := range []int{0, 2} {
				require.Equal(t, hongbao.OutcomeAlreadyGranted, answers[i].Outcome, id)
				require.Equal(t, []any{won[0].Packet, won[0].Seq}, []any{answers[i].Receipts[0].Packet, answers[i].Receipts[0].Seq},
					id)
			}
		}
	}
}

// Counters of limits by day and by hour expire. Counters for the whole campaign do not.
func TestCountersOfAPeriodLeave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 10)
	for _, per := range []hongbao.Period{hongbao.PerCampaign, hongbao.PerDay, hongbao.PerHour} {
		c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: per, Max: 2})
	}
	b.load(t, c)
	g := call("rain", "u1", "u2", "u3")
	g.FactNames = "device"
	for i := range g.Grabs {
		g.Grabs[i].Facts = map[string]string{"device": "d"}
	}
	answers, err := b.k.Place("rain").Grab(t.Context(), g, nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeLimitReached, answers[2].Outcome)

	keys, err := b.rdb.Keys(t.Context(), b.k.Keys.Campaign("rain")+":counters*").Result()
	require.NoError(t, err)
	var leave, stay int
	for _, key := range keys {
		fields, err := b.rdb.HGetAll(t.Context(), key).Result()
		require.NoError(t, err)
		ttl, err := b.rdb.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		if ttl < 0 {
			stay += len(fields)
			continue
		}
		leave += len(fields)
		require.Less(t, ttl, 48*time.Hour)
		require.Greater(t, ttl, time.Hour, "a counter expires one period after the end of its own")
	}
	require.Equal(t, []int{2, 1}, []int{leave, stay}, "%v", keys)
}

// A call has limits by day and hour, and 128 users with a hundred receipts each. It takes less than 10 ms of Redis's
// processor time.
func TestGrabOfManyReceiptsIsShort(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	c := spec("rain", 1000)
	c.Limits = []hongbao.Limit{
		{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 100},
		{By: hongbao.ByUser, Per: hongbao.PerDay, Max: 100}, {By: hongbao.ByUser, Per: hongbao.PerHour, Max: 100},
	}
	b.load(t, c)
	users := make([]string, store.MaxGrabs)
	for i := range users {
		text := ""
		for k := range 99 {
			text += fmt.Sprintf("%d 1234 %d 3500%03d request-%04d\n", 1e6+k, 1e6+k, k, k)
		}
		user := fmt.Sprintf("u%d", i)
		require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Receipts("rain"), user, text+"1 1 1 3600000 x").Err())
		users[i] = user + "/new-request"
	}
	const calls = 20
	before := processorTime(t, b.rdb)
	for range calls {
		answers, err := b.k.Place("rain").Grab(t.Context(), call("rain", users...), nil)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeLimitReached, answers[0].Outcome)
	}
	each := (processorTime(t, b.rdb) - before) / calls
	t.Logf("a call of %d grabs took Redis %s", store.MaxGrabs, each)
	require.Less(t, each, 10*time.Millisecond)
}

// processorTime returns the processor time that Redis has used. Unlike elapsed time, it does not depend on the load
// of the machine.
func processorTime(t *testing.T, rdb *redis.Client) time.Duration {
	t.Helper()
	info, err := rdb.InfoMap(t.Context(), "cpu").Result()
	require.NoError(t, err)
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		require.NoError(t, err)
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second))
}
