package cli

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis moves to another server during a rain, by the procedure of docs/disaster.md. No win is lost, and none is paid or
// published twice.
func TestRedisMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	from := testkit.NewRedis(t, testkit.RedisOptions{})
	d := setup(t, options{kafka: true, redis: from, shards: 2})
	d.campaign("rain", 100, 10_000)
	w := d.start("work")
	require.Equal(t, 30, d.crowdOf("rain", 0, 30))
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Equal(t, 30, d.crowdOf("rain", 30, 30), "these wins wait in the streams")

	to := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: from})
	to.Says(t, "INFO replication", "master_link_status:up")
	old := d.rdb
	d.rdb = to.Client(t)
	testkit.Eventually(t, 10*time.Second, func() bool { return replicated(t, old) == replicated(t, d.rdb) },
		"both are equal")
	require.NoError(t, from.Close())
	require.NoError(t, d.rdb.ReplicaOf(t.Context(), "no", "one").Err())
	d.set("REDIS_ADDRS", to.Addr)
	var err error
	d.store, err = store.New(store.Config{Redis: d.rdb, Space: hongbao.Space{Prefix: d.prefix, Shards: 2}, Deployment: d.id()})
	require.NoError(t, err)

	w = d.start("work")
	require.Equal(t, 20, d.crowdOf("rain", 60, 20))
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(80)
}

// replicated returns the offset of a server's replication.
func replicated(t *testing.T, c *redis.Client) string {
	t.Helper()
	info, err := c.Info(t.Context(), "replication").Result()
	require.NoError(t, err)
	_, rest, found := strings.Cut(info, "master_repl_offset:")
	require.True(t, found)
	offset, _, _ := strings.Cut(rest, "\r")
	return offset
}

// The deployment moves to another Kafka and a topic with another name, by the procedure of docs/disaster.md. The new
// topic has each win once, also those from before the move.
func TestMoveToAnotherTopic(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 100, 10_000)
	w := d.start("work")
	require.Equal(t, 30, d.crowdOf("rain", 0, 30))
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Equal(t, 30, d.crowdOf("rain", 30, 30), "these wins wait in the stream")

	other := testkit.NewKafka(t, testkit.KafkaOptions{})
	d.topic, d.addr = other.Topic(t, 2,
		map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"}), other.Addr
	d.set("KAFKA_BROKERS", d.addr, "KAFKA_TOPIC", d.topic)
	report := decided[model.ReplayReport](t, d.ok("replay", "new-topic", "--to", "kafka", "--missing", "--json"))
	require.EqualValues(t, 30, report.Delivered)
	w = d.start("work")
	require.Equal(t, 20, d.crowdOf("rain", 60, 20))
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(80)
}
