package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// openers are commands that open an existing deployment. Each is refused if there is none.
func openers(d *deployment) [][]string {
	return [][]string{
		{"audit"}, {"campaign", "load", "rain"}, {"campaign", "pause", "rain", "--by", "ann", "--why", "test"},
		{"campaign", "close", "rain", "--early"},
		{"work"}, {"grab", "rain", "u"},
		{"campaign", "create", spec(d.t, "hail", 5, 50)}, {"campaign", "list"}, {"campaign", "show", "rain"},
		{"dead", "list"}, {"quarantine", "list"},
		{"config", "check", "--connect"},
	}
}

func TestInitFoundsOnce(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 3, kafka: true, uninitialized: true})
	d.set("KAFKA_TOPIC", d.topic+"-made", "KAFKA_CREATE_TOPIC", "true", "KAFKA_REPLICATION_FACTOR", "1")
	for _, command := range openers(d) {
		r := d.refused(1, command, "`hongbao init`")
		require.NotContains(t, r.err, "hongbao.db")
		require.Empty(t, d.content(), "%v wrote to Redis", command)
		require.NoFileExists(t, d.dsn, "%v made a ledger", command)
	}

	made := d.ok("init")
	require.Contains(t, made, "tables made: 0012_ledger.sql, 0013_owed.sql, 0014_job.sql, 0015_link.sql; deployment "+d.prefix+" is founded\n")
	require.Contains(t, made, "3 founded, 0 founded before\n")
	require.Contains(t, made, d.topic+"-made: as it must be\n")
	before := d.content()
	again := d.ok("init")
	require.Contains(t, again, "tables as they were; deployment "+d.prefix+" was founded before\n")
	require.Contains(t, again, "0 founded, 3 founded before\n")
	require.Equal(t, before, d.content())
	require.Contains(t, d.ok("config", "check", "--connect"), "redis, ledger and topic: as they must be\n")

	d.campaign("rain", 5, 50)
	d.ok("grab", "rain", "u1")
	d.ok("init")
	require.Contains(t, d.ok("grab", "rain", "u2"), "granted\n", "init changes nothing in an open campaign")
}

// While Kafka does not answer, `hongbao init` updates the ledger and Redis, so that an upgrade is possible. It fails only
// if it may have to create the topic.
func TestInitWithoutKafka(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, uninitialized: true})
	topic := d.topic + "-missing"
	d.set("KAFKA_TOPIC", topic)
	d.refused(1, []string{"init"}, "topic "+topic+" does not exist")
	d.set("KAFKA_BROKERS", testkit.FreeAddr(t), "PUBLISHER_ATTEMPT_TIME", "1s", "PUBLISHER_REQUEST_TIMEOUT", "1s")
	r := d.run("init")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "0 founded, 1 founded before\n")
	require.NotContains(t, r.out, "topic")
	require.Contains(t, r.err, "the topic was not checked")
	d.set("KAFKA_CREATE_TOPIC", "true")
	d.refused(5, []string{"init"}, "kafka.brokers")
}

// Many `hongbao init` processes initialize a deployment at once and are killed. The next process completes it.
func TestInitTogetherAndKilled(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 16, postgres: true, uninitialized: true})
	for i := range 8 {
		p := d.start("init")
		testkit.Eventually(t, time.Minute, func() bool { // this shard or a later one is done
			n, err := d.rdb.Exists(t.Context(), d.store.Shard(2*i).Keys.Meta()).Result()
			require.NoError(t, err)
			return n == 1
		}, "shard %d is founded", 2*i)
		p.Kill()
	}
	all := make([]*program, 4)
	for i := range all {
		all[i] = d.start("init")
	}
	for _, p := range all {
		r := p.wait(time.Minute)
		require.Zero(t, r.code, r.err)
	}
	d.campaign("rain", 5, 50)
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
}

// Redis has lost everything. No process initializes it again (issue 8, point 1): new grants would get seqs that
// subscribers have seen, and packets would be granted twice.
func TestLostRedisIsNotFoundedAnew(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for _, paid := range []bool{true, false} {
		t.Run(fmt.Sprintf("paid %v", paid), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
			knows := "campaign rain, which is funded,"
			d.campaign("rain", 5, 50)
			if paid {
				knows = "event 0-2"
				d.ok("grab", "rain", "u1")
				d.ok("grab", "rain", "u2")
				w := d.start("work")
				testkit.Eventually(t, 30*time.Second, func() bool { return d.show("rain").Ledger.Granted > 0 }, "it pays")
				d.ok("audit", "--wait", "30s")
				w.Signal(syscall.SIGTERM)
				require.Zero(t, w.wait(time.Minute).code)
			}
			require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
			for _, command := range openers(d) {
				if command[0] == "campaign" && slices.Contains([]string{"create", "list"}, command[1]) ||
					command[0] == "quarantine" {
					continue // these commands use only the ledger
				}
				d.refused(1, command, "`hongbao recover`")
				require.Empty(t, d.content(), "%v wrote to Redis", command)
			}
			d.refused(1, []string{"init"}, "Redis has lost shard 0", "the ledger has "+knows, "`hongbao recover`")
			require.Empty(t, d.content())
		})
	}
}

// Redis has lost a shard that had no events. `hongbao init` initializes it again, in a later epoch.
func TestLostRedisWithoutMoneyIsFoundedAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	require.Contains(t, d.ok("init"), "1 founded, 0 founded before")
	d.campaign("rain", 5, 50)
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
	epoch, err := d.rdb.HGet(t.Context(), d.store.Shard(0).Keys.Meta(), "epoch").Result()
	require.NoError(t, err)
	require.Equal(t, "2", epoch)
}

// with returns a copy of the deployment with other knobs.
func (d *deployment) with(pairs ...string) *deployment {
	e := *d
	e.env = slices.Clone(d.env)
	e.set(pairs...)
	return &e
}

// A ledger belongs to one deployment. A second deployment, another key prefix and another number of shards are refused
// (issue 8, point 1).
func TestOneLedgerHasOneDeployment(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.campaign("rain", 5, 50)
	for _, other := range [][]string{
		{"DEPLOYMENT_ID", d.prefix + "-2"}, {"DEPLOYMENT_KEY_PREFIX", d.prefix + "-2"}, {"DEPLOYMENT_SHARDS", "2"},
		{"DEPLOYMENT_ID", d.prefix + "-2", "DEPLOYMENT_KEY_PREFIX", d.prefix + "-2"},
	} {
		e := d.with(other...)
		before := d.content()
		for _, command := range [][]string{{"init"}, {"campaign", "load", "rain"}, {"work"}, {"audit"},
			{"config", "check", "--connect"}} {
			e.refused(1, command)
			require.Equal(t, before, d.content(), "%v", command)
		}
		e.refused(1, []string{"campaign", "create", spec(t, "hail", 5, 50)}, "the ledger belongs to deployment")
		n, err := d.rdb.Exists(t.Context(), d.prefix+"-2:{deployment}").Result()
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

// The DSN names a wrong ledger, which has no record of this Redis. Each command refuses it, even if the ledger has a
// deployment of the same id. Nothing is written to Redis.
func TestRedisOfAnotherLedgerIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 5, 50)
	before := d.content()
	empty := filepath.Join(t.TempDir(), "empty.db")
	e := d.with("LEDGER_DSN", empty)
	e.refused(1, []string{"init"}, "was founded before", "the ledger has no record of it", "nothing was founded")
	require.NoFileExists(t, empty)

	// The ledger belongs to a deployment of the same id, with another Redis.
	other := d.with("LEDGER_DSN", empty, "REDIS_ADDRS", testkit.NewRedis(t, testkit.RedisOptions{}).Addr)
	other.ok("init")
	for _, command := range [][]string{{"init"}, {"work"}, {"audit"}, {"campaign", "load", "rain"},
		{"config", "check", "--connect"}} {
		e.refused(1, command, "were not founded together")
	}
	require.Equal(t, before, d.content())
}

// Without ledger.dsn a command fails, and the error names the knob. A default file in the working directory would be a
// different file in each directory.
func TestLedgerHasNoDefault(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d = d.with("LEDGER_DSN", "")
	for _, command := range [][]string{{"init"}, {"campaign", "list"}, {"config", "check", "--connect"}, {"audit"},
		{"balance"}, {"balance", "migrate"}, {"key", "list"}} {
		r := d.run(command...)
		require.NotZero(t, r.code, "%v", command)
		require.Contains(t, r.err, "ledger.dsn is empty")
	}
}

// A command that only reads does not create a missing database.
func TestReadersMakeNoDatabase(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	path := filepath.Join(t.TempDir(), "none.db")
	d = d.with("LEDGER_DSN", path)
	for _, command := range [][]string{{"campaign", "list"}, {"campaign", "reveal", "rain"}, {"quarantine", "list"},
		{"audit"}, {"config", "check", "--connect"}} {
		d.refused(1, command, "there is no file "+path, "`hongbao init`")
		require.NoFileExists(t, path, "%v", command)
	}
}
