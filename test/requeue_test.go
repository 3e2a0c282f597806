package test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A requeue of dead letters is killed at random times. It publishes each of them once, and removes each letter once.
// Some dead letters have an open claim from an earlier push, which may have reached the topic.
func TestRequeueToKafkaKilledAnywhere(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
	c := newOneCopy(t, broker, 0)
	arrived := c.inFlight() // the topic has the batch; the worker has no answer
	kill(t, arrived)
	c.broker.Proxy.Delay(0)
	inTopic := len(c.copies(c.topic))
	require.NotEmpty(t, openClaims(c, "kafka"))
	c.grants(300)
	letters := c.deadLetterAll("kafka")

	args := []string{"dead", "requeue", "--sink", "kafka", "--by", "ann", "--why", "fixed", "--rate", "150",
		"--publisher.batch_grants", "20", "--expect", strconv.FormatInt(letters, 10)}
	kills := c.killed(5, 400*time.Millisecond, func(int) {
		args[len(args)-1] = strconv.FormatInt(c.rdb.XLen(t.Context(), c.keys.Keys.Dead("kafka")).Val(), 10)
	}, args...)
	c.exactly(c.topic)
	require.Empty(t, openClaims(c, "kafka"))
	require.Zero(t, c.rdb.XLen(t.Context(), c.keys.Keys.Dead("kafka")).Val())
	require.Equal(t, letters, c.rdb.XLen(t.Context(), c.keys.Keys.Resolved("kafka")).Val(), "each dead letter was ended once")
	t.Logf("killed %d times; %d of %d were in the topic before", kills, inTopic, c.seq)
}

// deadLetterAll turns all unfinished events into dead letters, and returns their number.
func (c *oneCopy) deadLetterAll(group string) (letters int64) {
	c.t.Helper()
	entries, err := c.keys.Entries(c.t.Context(), "-", "+")
	require.NoError(c.t, err)
	_, err = c.keys.ReadNew(c.t.Context(), group, "digger", 100_000, 0)
	require.NoError(c.t, err)
	pending, err := c.rdb.XPendingExt(c.t.Context(), &redis.XPendingExtArgs{
		Stream: c.keys.Keys.Events(), Group: group, Start: "-", End: "+", Count: 100_000,
	}).Result()
	require.NoError(c.t, err)
	owner := map[string]string{}
	for _, p := range pending {
		owner[p.ID] = p.Consumer
	}
	for _, e := range entries {
		for i := range e.Grants {
			if owner[e.ID] == "" {
				break
			}
			written, err := c.keys.DeadLetter(c.t.Context(), store.Letter{
				Group: group, Consumer: owner[e.ID], EntryID: e.ID, Grant: &e.Grants[i], Last: i == len(e.Grants)-1,
				Class: hongbao.ClassPermanent, Reason: "a test", Attempts: 1,
			})
			require.NoError(c.t, err)
			require.True(c.t, written)
			letters++
		}
	}
	return letters
}
