package test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// oneCopy is a deployment with one shard and a topic of two partitions. It connects to the broker through a proxy that
// injects faults.
type oneCopy struct {
	*cli
	broker *testkit.KafkaBroker
	rdb    *redis.Client
	store  *store.Store
	keys   *store.Shard
	topic  string
	age    time.Duration
	seq    int64
}

func newOneCopy(t *testing.T, broker *testkit.KafkaBroker, age time.Duration) *oneCopy {
	t.Helper()
	c := &oneCopy{broker: broker, rdb: testkit.Redis(t).Client(t), topic: broker.Topic(t, 2, nil), age: age}
	c.cli = newCLI(t, map[string]string{
		"DEPLOYMENT_SINKS": "kafka", "REDIS_ADDRS": testkit.Redis(t).Addr, "KAFKA_BROKERS": broker.Proxy.Addr,
		"KAFKA_TOPIC": c.topic, "KAFKA_PARTITIONS": "2", "PUBLISHER_REQUEST_TIMEOUT": "1500ms",
		"PUBLISHER_ATTEMPT_TIME": "2500ms", "PUBLISHER_MAX_CLAIM_AGE": "2500ms",
	})
	var err error
	c.store, err = store.New(store.Config{Redis: c.rdb, Space: hongbao.Space{Prefix: c.prefix, Shards: 1}})
	require.NoError(t, err)
	c.keys = c.store.Shard(0)
	c.ok("init")
	_, err = c.keys.Group("kafka").Create(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.rdb.HSet(t.Context(), c.keys.Keys.Campaign("rain"), "state", "open", "currency", "CNY").Err())
	return c
}

// grants writes n grants of age c.age to the stream in one transaction, ten per entry.
func (c *oneCopy) grants(n int) {
	c.t.Helper()
	at := time.Now().Add(-c.age).UnixMilli()
	_, err := c.rdb.TxPipelined(c.t.Context(), func(p redis.Pipeliner) error {
		for ; n > 0; n -= 10 {
			var lines []string
			for i := range int64(10) {
				lines = append(lines, fmt.Sprintf("%d 100 %s r%d -", c.seq+i+1, user(int(c.seq+i)), c.seq+i))
			}
			p.XAdd(c.t.Context(), &redis.XAddArgs{Stream: c.keys.Keys.Events(),
				Values: testkit.Entry("grant", "rain", c.seq+1, 1, at, strings.Join(lines, "\n"))})
			c.seq += 10
		}
		p.HSet(c.t.Context(), c.keys.Keys.Meta(), "seq", c.seq)
		return nil
	})
	require.NoError(c.t, err)
}

// worker starts `hongbao work` as its own process.
func (c *oneCopy) worker() *exec.Cmd {
	c.t.Helper()
	cmd := c.command("work")
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // the worker may have ended
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("worker %d:\n%s", cmd.Process.Pid, cmd.Stderr)
		}
	})
	return cmd
}

// finished waits until the group has finished all events.
func (c *oneCopy) finished() { c.finishedBut(0) }

// finishedBut waits until the group has finished all events except n. The entries of these n were deleted before the
// group read them.
func (c *oneCopy) finishedBut(n int64) {
	c.t.Helper()
	testkit.EventuallyOK(c.t, 60*time.Second, func() error {
		t, err := c.keys.TrimEvents(c.t.Context(),
			store.Trim{Retention: time.Hour, MaxEvents: 1e9, Limit: 1, Groups: []string{"kafka"}})
		if err == nil && t.Finished < c.seq-n {
			err = fmt.Errorf("%d of %d finished", t.Finished, c.seq)
		}
		return err
	}, "everything published")
}

// records returns the number of records in the first partition of the topic, or -1 if the broker does not answer. It
// bypasses the proxy.
func (c *oneCopy) records() int64 { return records(c.t.Context(), c.broker, c.topic, 0) }

func records(ctx context.Context, broker *testkit.KafkaBroker, topic string, partition int) int64 {
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr), Timeout: 5 * time.Second}
	res, err := client.ListOffsets(ctx,
		&kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(partition)}}})
	if err != nil || len(res.Topics[topic]) != 1 {
		return -1
	}
	return res.Topics[topic][0].LastOffset
}

// inFlight starts a worker that sends grants. It returns when the broker has the records and the worker still waits for
// the answer.
func (c *oneCopy) inFlight() *exec.Cmd {
	c.t.Helper()
	w := c.worker()
	c.grants(10)
	c.finished() // so the worker has a producer id
	had := c.records()
	c.broker.Proxy.Delay(time.Minute)
	c.t.Cleanup(func() { c.broker.Proxy.Delay(0) })
	c.grants(200)
	before := c.broker.Proxy.Fired().Delayed
	testkit.Eventually(c.t, 20*time.Second, func() bool { return c.records() > had }, "the batch is in the log")
	testkit.Eventually(c.t, 20*time.Second, func() bool { return c.broker.Proxy.Fired().Delayed > before },
		"the proxy holds the answer back")
	return w
}

// once checks that the topic has each event exactly once, according to `hongbao tail`.
func (c *oneCopy) once() {
	c.t.Helper()
	copies := c.copies(c.topic)
	require.Len(c.t, copies, int(c.seq))
	for event, n := range copies {
		require.Equal(c.t, 1, n, event)
	}
}

func (c *oneCopy) drain(workers ...*exec.Cmd) {
	c.t.Helper()
	for _, w := range workers {
		require.NoError(c.t, w.Process.Signal(syscall.SIGTERM))
		require.NoError(c.t, w.Wait(), "a worker that must stop exits with 0")
	}
}

func kill(t *testing.T, w *exec.Cmd) {
	t.Helper()
	require.NoError(t, w.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(t, w.Wait(), &exit)
}

// oneCopyFaults cause a fault while grants are in flight, and return when all grants are published.
var oneCopyFaults = map[string]func(c *oneCopy){
	"answer swallowed": func(c *oneCopy) {
		w := c.worker()
		c.grants(10)
		c.finished() // so the worker has sent a batch in its session
		before := c.broker.Proxy.Fired().Swallowed
		c.broker.Proxy.SwallowAnswers(3, proxy.KafkaRequest(proxy.KafkaProduce))
		c.grants(200)
		c.finished()
		require.Equal(c.t, before+3, c.broker.Proxy.Fired().Swallowed, "the fault fired")
		c.drain(w)
	},
	"worker killed between send and ack": func(c *oneCopy) {
		kill(c.t, c.inFlight())
		c.broker.Proxy.Delay(0)
		w := c.worker()
		c.finished()
		c.drain(w)
	},
	"worker stopped past its lease and woken": func(c *oneCopy) {
		asleep := c.inFlight()
		require.NoError(c.t, asleep.Process.Signal(syscall.SIGSTOP))
		c.broker.Proxy.Delay(0)
		w := c.worker()
		c.finished() // so another worker has taken the entries over
		require.NoError(c.t, asleep.Process.Signal(syscall.SIGCONT))
		for range 5 { // both continue
			c.grants(50)
			c.finished()
		}
		c.drain(asleep, w)
	},
	"claims deleted between send and answer": func(c *oneCopy) { // F31
		c.env = append(c.env, "HONGBAO_CONSUMER_LEASE=30s", "HONGBAO_PUBLISHER_ATTEMPT_TIME=20s",
			"HONGBAO_PUBLISHER_MAX_CLAIM_AGE=20s")
		w := c.inFlight()
		held, err := c.rdb.HLen(c.t.Context(), c.keys.Keys.Claims("kafka")).Result()
		require.NoError(c.t, err)
		require.EqualValues(c.t, 2, held, "the claim, and the last fence")
		require.NoError(c.t, c.rdb.Del(c.t.Context(), c.keys.Keys.Claims("kafka")).Err())
		c.broker.Proxy.Delay(0)
		c.finished()
		c.grants(50)
		c.finished()
		c.drain(w)
	},
	"broker killed and restarted": func(c *oneCopy) {
		w := c.inFlight()
		require.NoError(c.t, c.broker.Kill())
		c.broker.Proxy.Delay(0)
		require.NoError(c.t, c.broker.Restart())
		c.finished()
		c.drain(w)
	},
	"broker and worker killed": func(c *oneCopy) {
		w := c.inFlight()
		require.NoError(c.t, c.broker.Kill())
		kill(c.t, w)
		c.broker.Proxy.Delay(0)
		require.NoError(c.t, c.broker.Restart())
		w = c.worker()
		c.finished()
		c.drain(w)
	},
}

// Faults happen between the send of a batch and its answer. The topic still has one copy of each grant. The grants are
// new or 49 hours old, because a broker that restarts forgets producers whose last records are old.
func TestOneCopyInKafka(t *testing.T) {
	t.Parallel()
	for _, age := range []time.Duration{0, 49 * time.Hour} {
		t.Run(fmt.Sprintf("grants %s old", age), func(t *testing.T) {
			t.Parallel()
			broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true})
			for name, fault := range oneCopyFaults {
				t.Run(name, func(t *testing.T) {
					c := newOneCopy(t, broker, age)
					fault(c)
					c.once()
				})
			}
		})
	}
}
