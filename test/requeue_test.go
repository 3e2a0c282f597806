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
	letters := c.deadLetterAll("kafka", 1e9)

	args := []string{"dead", "requeue", "--sink", "kafka", "--by", "ann", "--why", "fixed", "--rate", "150",
		"--publisher.batch_grants", "20", "--expect", strconv.FormatInt(letters, 10)}
	kills := c.killed(5, 400*time.Millisecond, func(int) {
		args[len(args)-1] = strconv.FormatInt(c.rdb.XLen(t.Context(), c.keys.Keys.Dead("kafka")).Val(), 10)
	}, args...)
	c.exactly(c.topic)
	require.Empty(t, openClaims(c, "kafka"))
	require.Zero(t, c.rdb.XLen(t.Context(), c.keys.Keys.Dead("kafka")).Val())
	require.Equal(t, letters, c.rdb.XLen(t.Context(), c.keys.Keys.ResolvedLetters("kafka")).Val(), "each dead letter was ended once")
	t.Logf("killed %d times; %d of %d were in the topic before", kills, inTopic, c.seq)
}

// A worker dies during a push. One grant of its batch becomes a dead letter, as after too many attempts, and the next
// worker finishes the batch, which is in the topic. Until then no one can drop the dead letter. A requeue of it
// publishes no second copy.
func TestRequeueAfterAWorkerFinishedTheClaim(t *testing.T) {
	t.Parallel()
	c := newOneCopy(t, testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true}), 0)
	kill(t, c.inFlight())
	c.broker.Proxy.Delay(0)
	require.NotEmpty(t, openClaims(c, "kafka"))
	require.EqualValues(t, 1, c.deadLetterAll("kafka", 1))
	drop := []string{"dead", "drop", "--sink", "kafka", "--by", "ann", "--why", "a test", "--expect", "1"}
	out, err := c.hongbao(drop...)
	require.Error(t, err)
	require.Contains(t, out, "wait until a worker has finished the claim")
	w := c.worker()
	c.finished()
	require.Empty(t, openClaims(c, "kafka"))
	c.drain(w)
	c.exactly(c.topic)

	c.ok("dead", "requeue", "--sink", "kafka", "--by", "ann", "--why", "fixed", "--expect", "1")
	c.exactly(c.topic)
	require.Zero(t, c.rdb.XLen(t.Context(), c.keys.Keys.Dead("kafka")).Val())
}

// deadLetterAll turns the unfinished events into dead letters, at most that many, and returns their number.
func (c *oneCopy) deadLetterAll(group string, most int64) (letters int64) {
	c.t.Helper()
	entries, err := c.keys.Entries(c.t.Context(), "-", "+")
	require.NoError(c.t, err)
	_, err = c.keys.Group(group).ReadNew(c.t.Context(), "digger", 100_000, 0)
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
			if owner[e.ID] == "" || letters == most {
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
