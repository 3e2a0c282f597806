package testkit

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

func needsServer(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
}

func TestSharedRedisIsOneAndSetUpAsHongbaoDemands(t *testing.T) {
	needsServer(t)
	r := Redis(t)
	require.Same(t, r, Redis(t))
	c := r.Client(t)
	for name, want := range redisDefaults() {
		if want == `""` {
			want = ""
		}
		if name == "daemonize" {
			continue // not readable
		}
		got, err := c.ConfigGet(t.Context(), name).Result()
		require.NoError(t, err)
		require.Equal(t, map[string]string{name: want}, got)
	}
}

func TestPrefixIsUniqueAndFitForASpace(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		p := Prefix(t)
		require.False(t, seen[p], p)
		seen[p] = true
		require.NoError(t, store.CheckSpace(hongbao.Space{Prefix: p, Shards: 4}))
	}
}

func TestRedisKeepsItsDataOverAKill(t *testing.T) {
	needsServer(t)
	r := NewRedis(t, RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	c := r.Client(t)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	pid, addr := r.Pid(), r.Addr
	require.NoError(t, r.Kill())
	require.False(t, alive(pid))
	require.Error(t, c.Ping(t.Context()).Err())
	require.NoError(t, r.Kill(), "a second kill does nothing")
	require.NoError(t, r.Restart())
	require.Equal(t, addr, r.Addr)
	require.NotEqual(t, pid, r.Pid())
	require.Equal(t, "v", r.Client(t).Get(t.Context(), "k").Val())
}

func TestStoppedRedisAnswersOnlyAfterCont(t *testing.T) {
	needsServer(t)
	r := NewRedis(t, RedisOptions{})
	c := r.Client(t)
	require.NoError(t, c.Ping(t.Context()).Err())
	require.NoError(t, r.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.Error(t, c.Ping(ctx).Err())
	require.NoError(t, r.Cont())
	require.NoError(t, c.Ping(t.Context()).Err())
}

func TestRedisReplicaFollowsAndFolderStays(t *testing.T) {
	needsServer(t)
	dir := t.TempDir()
	first, err := StartRedis(t.Context(), RedisOptions{Dir: dir})
	require.NoError(t, err)
	require.NoError(t, first.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.NoError(t, first.Close())
	master := NewRedis(t, RedisOptions{Dir: dir})
	replica := NewRedis(t, RedisOptions{ReplicaOf: master})
	c := replica.Client(t)
	Eventually(t, 20*time.Second, func() bool { return c.Get(t.Context(), "k").Val() == "v" }, "the replica has the key")
}

func TestRedisClusterIsWholeAndFailsOver(t *testing.T) {
	needsServer(t)
	c := NewRedisCluster(t, RedisOptions{})
	client := c.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Second })
	for i := range 100 {
		require.NoError(t, client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	for i := range c.Masters {
		require.Contains(t, c.Masters[i].Order(t, "INFO replication"), "connected_slaves:1")
	}
	require.NoError(t, c.Masters[1].Kill())
	c.AwaitPromotion(t, 1)
	require.Same(t, c.Replicas[1], c.Node(t, c.Replicas[1].Addr))
	EventuallyOK(t, 30*time.Second, func() error {
		for i := range 100 {
			if err := client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err(); err != nil {
				return err
			}
		}
		return nil
	}, "all slots are served")
}

func TestRedisSentinelsFailOver(t *testing.T) {
	needsServer(t)
	s := NewRedisSentinels(t, RedisOptions{})
	client := s.Client(t, nil)
	require.NoError(t, client.Set(t.Context(), "key", 1, 0).Err())
	require.NoError(t, client.Wait(t.Context(), sentinelReplicas, time.Second).Err())
	require.NoError(t, s.Primary.Kill())
	promoted := s.AwaitPromotion(t)
	require.NotSame(t, s.Primary, promoted)
	EventuallyOK(t, 30*time.Second, func() error { return client.Set(t.Context(), "key", 2, 0).Err() }, "it is written")
	require.Equal(t, "2", promoted.Order(t, "GET key"))
}

func TestPostgresGivesEachTestAnEmptyDatabase(t *testing.T) {
	needsServer(t)
	for range 2 {
		t.Run("same table", func(t *testing.T) {
			c := connect(t, Postgres(t))
			_, err := c.Exec(t.Context(), "CREATE TABLE x (n int)")
			require.NoError(t, err)
			var commit string
			require.NoError(t, c.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&commit))
			require.Equal(t, "on", commit)
		})
	}
}

func TestPostgresKeepsItsDataOverAKill(t *testing.T) {
	needsServer(t)
	p := NewPostgres(t, PostgresOptions{Settings: map[string]string{"max_connections": "33"}})
	name, err := p.CreateDatabase(t.Context())
	require.NoError(t, err)
	c := connect(t, p.DSN(name))
	_, err = c.Exec(t.Context(), "CREATE TABLE x AS SELECT 7 AS n")
	require.NoError(t, err)
	kids := children(p.Pid())
	require.NotEmpty(t, kids)
	require.NoError(t, p.Kill())
	for _, kid := range kids {
		require.False(t, alive(kid), "child %d", kid)
	}
	require.NoError(t, p.Restart())
	var n, most int
	c = connect(t, p.DSN(name))
	require.NoError(t, c.QueryRow(t.Context(), "SELECT n, current_setting('max_connections')::int FROM x").Scan(&n, &most))
	require.Equal(t, 7, n)
	require.Equal(t, 33, most)
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // the test may have killed the server
	return c
}

func TestMariaDBGivesEachTestAnEmptyDatabase(t *testing.T) {
	needsServer(t)
	for range 2 {
		t.Run("same table", func(t *testing.T) {
			db := openMariaDB(t, MariaDB(t))
			_, err := db.ExecContext(t.Context(), "CREATE TABLE x (n int)")
			require.NoError(t, err)
			var flush, binlog int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog").
				Scan(&flush, &binlog))
			require.Equal(t, 1, flush)
			require.Equal(t, 1, binlog)
			_, err = db.ExecContext(t.Context(), "SET GLOBAL read_only = on")
			require.Error(t, err, "the user has no rights on the server")
		})
	}
}

func TestMariaDBKeepsItsDataOverAKill(t *testing.T) {
	needsServer(t)
	m := NewMariaDB(t, MariaDBOptions{Settings: map[string]string{"max_connections": "33"}})
	dsn := m.DSN(m.Database(t))
	_, err := openMariaDB(t, dsn).ExecContext(t.Context(), "CREATE TABLE x AS SELECT 7 AS n")
	require.NoError(t, err)
	pid, addr := m.Pid(), m.Addr
	require.NoError(t, m.Kill())
	require.False(t, alive(pid))
	require.NoError(t, m.Restart())
	require.Equal(t, addr, m.Addr)
	var n, most int
	require.NoError(t, openMariaDB(t, dsn).QueryRowContext(t.Context(), "SELECT n, @@max_connections FROM x").Scan(&n,
		&most))
	require.Equal(t, 7, n)
	require.Equal(t, 33, most)
}

func openMariaDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestKafkaKeepsItsDataOverAKill(t *testing.T) {
	needsServer(t)
	b := NewKafka(t, KafkaOptions{})
	topic := b.Topic(t, 3, map[string]string{"retention.ms": "-1"})
	require.NoError(t, produce(t.Context(), transport(t, nil), b.Addr, topic))
	require.NoError(t, b.Kill())
	require.Error(t, produce(t.Context(), transport(t, nil), b.Addr, topic))
	require.NoError(t, b.Restart())
	require.EqualValues(t, 1, lastOffset(t, b, topic))
}

func TestSharedKafkaMakesTopicsAsTold(t *testing.T) {
	needsServer(t)
	b := Kafka(t)
	require.Same(t, b, Kafka(t))
	topic := b.Topic(t, 2, map[string]string{"max.message.bytes": "12345"})
	c := &kafka.Client{Addr: kafka.TCP(b.Addr), Transport: transport(t, nil)}
	res, err := c.DescribeConfigs(t.Context(),
		&kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"max.message.bytes"},
		}}})
	require.NoError(t, err)
	require.Equal(t, "12345", res.Resources[0].ConfigEntries[0].ConfigValue)
	err = produce(t.Context(), transport(t, nil), b.Addr, "nobody-made-this")
	require.ErrorIs(t, err, protocol.ErrNoTopic)
}

func TestStoppedKafkaAnswersAfterCont(t *testing.T) {
	needsServer(t)
	b := NewKafka(t, KafkaOptions{Properties: map[string]string{"message.max.bytes": "54321"}})
	topic := b.Topic(t, 1, nil)
	require.NoError(t, b.Stop())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, produce(ctx, transport(t, nil), b.Addr, topic))
	require.NoError(t, b.Cont())
	require.NoError(t, produce(t.Context(), transport(t, nil), b.Addr, topic))
}

func TestMissingProgramsSayWhatToDo(t *testing.T) {
	_, err := program("hongbao-no-such-program", "/nowhere/*/bin")
	require.ErrorContains(t, err, "run scripts/setup.sh")
	_, err = StartRedis(t.Context(), RedisOptions{Binary: "hongbao-no-such-program"})
	require.ErrorContains(t, err, "run scripts/setup.sh")
	_, err = StartKafka(t.Context(), KafkaOptions{Version: "0.0.1"})
	require.ErrorContains(t, err, "run scripts/setup.sh kafka 0.0.1")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	needsServer(t)
	_, err := StartRedis(t.Context(), RedisOptions{Args: map[string]string{"appendfsync": "perhaps"}})
	require.ErrorContains(t, err, "FATAL CONFIG FILE ERROR")
	_, err = StartPostgres(t.Context(), PostgresOptions{Settings: map[string]string{"fsync": "perhaps"}})
	require.ErrorContains(t, err, `parameter "fsync" requires a Boolean value`)
	_, err = StartMariaDB(t.Context(), MariaDBOptions{Settings: map[string]string{"innodb_flush_method": "perhaps"}})
	require.ErrorContains(t, err, "Error while setting value 'perhaps' to 'innodb-flush-method'")
	_, err = StartKafka(t.Context(), KafkaOptions{Properties: map[string]string{"num.io.threads": "perhaps"}})
	require.ErrorContains(t, err, "num.io.threads")
	k, err := openKit()
	require.NoError(t, err)
	require.Empty(t, foldersWith(t, k.dir, "perhaps"))
}

// foldersWith lists the configuration files under dir that contain a word. Other tests create and remove folders in
// the meantime.
func foldersWith(t *testing.T, dir, word string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"redis-*/redis.conf", "postgres-*/data/postgresql.auto.conf", "mariadb-*/my.cnf",
		"kafka-*/server.properties"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, name := range names {
			if content, err := os.ReadFile(name); err == nil && strings.Contains(string(content), word) {
				found = append(found, name)
			}
		}
	}
	return found
}

func TestSetupAndTestkitMeanTheSameKafka(t *testing.T) {
	root, err := repoRoot()
	require.NoError(t, err)
	script, err := os.ReadFile(root + "/scripts/setup.sh")
	require.NoError(t, err)
	require.Contains(t, string(script), "${KAFKA_VERSION:-"+KafkaVersion+"}")
}

func TestLogTailIsTheEnd(t *testing.T) {
	dir := t.TempDir()
	long := make([]byte, 10<<10)
	copy(long[len(long)-3:], "end")
	require.NoError(t, os.WriteFile(dir+"/"+logName, long, 0o600))
	tail := logTail(dir)
	require.Len(t, tail, 4<<10)
	require.Equal(t, "end", tail[len(tail)-3:])
}

func TestSignalOfADeadServerFails(t *testing.T) {
	needsServer(t)
	r := NewRedis(t, RedisOptions{})
	require.NoError(t, r.Kill())
	require.ErrorContains(t, r.Stop(), fmt.Sprintf("signal %v", syscall.SIGSTOP))
}
