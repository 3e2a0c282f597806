package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// content returns all keys of the deployment in Redis, with their dumped values. A test compares two of them to see
// whether anything changed.
func (d *deployment) content() map[string]string {
	d.t.Helper()
	all := map[string]string{}
	for i := range d.store.Len() {
		prefix, _, _ := strings.Cut(d.store.Shard(i).Keys.Meta(), ":")
		keys, err := d.rdb.Keys(d.t.Context(), prefix+":*").Result()
		require.NoError(d.t, err)
		for _, k := range keys {
			v, err := d.rdb.Dump(d.t.Context(), k).Result()
			require.NoError(d.t, err)
			all[k] = v
		}
	}
	return all
}

// badSpecs are specifications with several mistakes, and the codes that must all be reported (B5 to B16).
var badSpecs = []struct {
	name    string
	changes []string
	codes   []string
}{
	{"amounts", []string{"total: 1000", "total: 1.5", "packets: 10", `packets: "10"`}, []string{"amount_not_integer_minor_units", "not_integer"}},
	{"exponent", []string{"total: 1000", "total: 1e3", "sponsor: acme", "sponsor: acme corp"},
		[]string{"amount_not_integer_minor_units", "sponsor_invalid"}},
	{"too large", []string{"total: 1000", "total: 9007199254740993", "packets: 10", "packets: 10000001"},
		[]string{"amount_out_of_range", "packets_out_of_range"}},
	{"10^30", []string{"total: 1000", "total: 1000000000000000000000000000000"}, []string{"amount_out_of_range"}},
	{"nothing", []string{"total: 1000", "total: 0", "packets: 10", "packets: 0"},
		[]string{"amount_not_positive", "packets_out_of_range"}},
	{"negative", []string{"total: 1000", "total: -1", "CNY", "cny"}, []string{"amount_not_positive", "currency_unknown"}},
	{"budget too small", []string{"min: 1", "min: 101"}, []string{"budget_too_small"}},
	{"budget too large", []string{"max: 1000", "max: 99"}, []string{"budget_too_large"}},
	{"min above max", []string{"min: 1,", "min: 1001,", "fast", "forever"},
		[]string{"min_above_max", "durability_unknown"}},
	{"ids", []string{"id: rain", `id: "1 or 1=1"`, "CNY", "CNY USD", "red_packet", "lottery"}, []string{"id_invalid", "currency_unknown", "kind_unknown"}},
	{"path", []string{"id: rain", "id: ../x", "name: Spring rain", `name: "a\n{\"level\":\"error\"}"`}, []string{"id_invalid", "name_invalid"}},
	{"hash tag", []string{"id: rain", `id: "{1}"`, "Asia/Shanghai", "../../etc/passwd"}, []string{"id_invalid", "time_zone_unknown"}},
	{"unknown fields", []string{"sponsor:", "Sponsor:", "kind:", "Kind:"}, []string{"unknown_field", "required"}},
	{"two documents", []string{"durability: fast", "durability: fast\n---\nid: b"}, []string{"more_than_one_document"}},
	{"nested", []string{"id: rain", "id: [[[[[[[[[a]]]]]]]]]"}, []string{"too_deep"}},
	{"syntax", []string{"id: rain", "id: ["}, []string{"syntax"}},
	{"no zone", []string{"Z, to:", ", to:"}, []string{"time_malformed"}},
	{"year 9999", []string{"to: 20", "to: 9999-01-01T00:00:00Z} #"}, []string{"time_out_of_range"}},
	{"leap second", []string{"to: 20", "to: 2027-06-30T23:59:60Z} #"}, []string{"time_leap_second"}},
	{"shards", []string{"sponsor:", "shards: 65\nsponsor:"}, []string{"shards_out_of_range"}},
	{"a fact on two shards", []string{"sponsor:", "limits: [{by: device, per: day, max: 1}]\nshards: 2\nsponsor:"},
		[]string{"limit_needs_one_shard"}},
	{"reversed", []string{"window: {from", "window: {to", ", to: 20", ", from: 20"}, []string{"window_reversed"}},
}

func TestBadSpecificationNamesEverything(t *testing.T) {
	t.Parallel()
	for _, c := range badSpecs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := spec(t, "rain", 10, 1000, c.changes...)
			ledger := filepath.Join(t.TempDir(), "ledger.db")
			for _, command := range []string{"plan", "create"} {
				r := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + ledger}, "campaign", command, path)
				require.Equal(t, 2, r.code, r.err)
				for _, code := range c.codes {
					require.Contains(t, r.err, code)
				}
				require.Contains(t, r.err, path)
				require.Empty(t, r.out)
				require.NotContains(t, r.err, "\n{\"level\"")
			}
			_, err := os.Stat(ledger)
			require.ErrorIs(t, err, os.ErrNotExist, "no ledger is created")
		})
	}
}

// A campaign whose window is over can't be created. If it was created earlier, the same command changes nothing and
// succeeds.
func TestCampaignThatIsOverIsNotCreated(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	path := spec(t, "rain", 10, 1000, "from: 20", "from: 2019-01-01T00:00:00Z, to: 2019-01-02T00:00:00Z} #")
	for _, command := range []string{"plan", "create"} {
		d.refused(2, []string{"campaign", command, path}, "window_past", path)
	}
	require.NotContains(t, d.ok("campaign", "list"), "rain")
}

// A specification has more shards than the deployment. `hongbao campaign plan` does not know the deployment and accepts
// the specification. `hongbao campaign create` refuses it.
func TestMoreShardsThanTheDeployment(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	path := spec(t, "rain", 10, 1000, "sponsor:", fmt.Sprintf("shards: %d\nsponsor:", d.store.Len()+1))
	d.ok("campaign", "plan", path)
	d.refused(2, []string{"campaign", "create", path}, "shards: shards_above_deployment", "deployment.shards", path)
	require.NotContains(t, d.ok("campaign", "list"), "rain")
	d.ok("campaign", "create", spec(t, "rain", 10, 1000, "sponsor:", fmt.Sprintf("shards: %d\nsponsor:", d.store.Len())))
}

func TestPlanShowsTheSpreadAndStoresNothing(t *testing.T) {
	t.Parallel()
	ledger := filepath.Join(t.TempDir(), "ledger.db")
	r := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + ledger}, "campaign", "plan", spec(t, "rain", 10, 1000))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "campaign rain (Spring rain), red_packet: 10 packets, 10.00 CNY\n")
	require.Contains(t, r.out, "#")
	_, err := os.Stat(ledger)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A Redis whose settings could lose receipts is refused, and nothing is written to it (B48).
func TestUnfitRedisIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	evicting := testkit.NewRedis(t,
		testkit.RedisOptions{Args: map[string]string{"maxmemory-policy": "allkeys-lru", "maxmemory": "100mb"}})
	d := setup(t, options{redis: evicting, uninitialized: true})
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: testkit.Redis(t)})
	e := setup(t, options{redis: replica, uninitialized: true})
	for _, command := range [][]string{
		{"init"}, {"config", "check", "--connect"}, {"campaign", "load", "rain"},
		{"campaign", "pause", "rain", "--by", "ann", "--why", "test"},
		{"grab", "rain", "u"}, {"work"}, {"audit"},
	} {
		d.refused(1, command, "maxmemory-policy", "allkeys-lru", "set it to noeviction", evicting.Addr)
		e.refused(1, command, "role", "slave", "point the configuration to the primary", replica.Addr)
	}
	require.Empty(t, d.content())
	require.Empty(t, e.content())

	d.set("UNSAFE_ALLOW", "redis_settings")
	d.ok("init")
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	r := d.run("campaign", "load", "rain")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "unsafe.allow")
	require.Contains(t, r.err, "noeviction")
}

// If Redis can't provide a campaign's durability class, the load is refused and nothing is loaded (B48).
func TestDurabilityClassIsRefusedByRedisWithoutIt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	for class, says := range map[string]string{"fsync": "set appendfsync always", "replica": "no replica is connected"} {
		d.ok("campaign", "create", spec(t, class, 10, 1000, "durability: fast", "durability: "+class))
		d.refused(1, []string{"campaign", "load", class}, says, class)
		require.Nil(t, d.show(class).Redis, "nothing was loaded")
	}
	require.NoError(t, d.rdb.ConfigSet(t.Context(), "appendfsync", "always").Err()) // Redis below 7.2 has no WAITAOF
	d.ok("campaign", "load", "fsync")
	require.Contains(t, d.ok("grab", "fsync", "u"), "granted\n")
}

// A Redis without an append-only file is refused for every durability class (B48).
func TestRedisWithoutAppendOnlyFileIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendonly": "no"}}),
		uninitialized: true})
	for _, command := range [][]string{{"init"}, {"config", "check", "--connect"}, {"campaign", "load", "rain"},
		{"grab", "rain", "u"}, {"work"}} {
		d.refused(1, command, "appendonly is no", "write appendonly yes into redis.conf")
	}
	require.Empty(t, d.content())
	d.set("UNSAFE_ALLOW", "redis_appendonly")
	d.ok("init")
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	require.NoError(t, d.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	d.refused(1, []string{"campaign", "load", "rain"}, "maxmemory-policy") // other checks still run
	require.NoError(t, d.rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	r := d.run("campaign", "load", "rain")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "unsafe.allow: this Redis has no append-only file")
	d.ok("campaign", "create", spec(t, "synced", 10, 1000, "durability: fast", "durability: fsync"))
	// Class fsync needs the append-only file, whatever unsafe.allow says.
	d.refused(1, []string{"campaign", "load", "synced"}, "appendonly is no")
}

// A Redis that hides its run_id is refused, because nobody would notice its restart.
func TestRedisWithoutRunIDIsRefused(t *testing.T) {
	t.Parallel()
	hidden := miniredis.RunT(t)
	d := setup(t, options{uninitialized: true})
	d.set("REDIS_ADDRS", hidden.Addr(), "UNSAFE_ALLOW", "redis_settings")
	for _, command := range [][]string{{"init"}, {"config", "check", "--connect"}, {"campaign", "load", "rain"},
		{"grab", "rain", "u"}, {"work"}, {"recover"}} {
		d.refused(1, command, "does not report its run_id", "add redis_run_id to unsafe.allow", hidden.Addr())
	}
	require.Empty(t, hidden.Keys())
	d.set("UNSAFE_ALLOW", "redis_settings,redis_run_id")
	r := d.run("init")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "unsafe.allow: this Redis hides its run_id")
	d.campaign("rain", 10, 1000)
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
}

// A Redis of another deployment is refused and not changed (B50).
func TestOtherDeploymentsRedisIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	before := d.content()
	for _, c := range []struct{ name, value, says string }{
		{"DEPLOYMENT_ID", "another", `deployment is`}, {"DEPLOYMENT_SHARDS", "2", "shards"},
	} {
		e := *d
		e.env = append([]string(nil), d.env...)
		e.set(c.name, c.value)
		for _, command := range [][]string{{"config", "check", "--connect"}, {"campaign", "load", "rain"},
			{"grab", "rain", "u"}, {"work"}, {"audit"}} {
			e.refused(1, command, c.says, "belongs to something else", "another deployment.key_prefix")
		}
	}
	require.Equal(t, before, d.content())
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Deployment(), "schema", "999", "lowest", "999").Err())
	d.refused(1, []string{"grab", "rain", "u"}, "schema", "999", "upgrade this program")
}

// A PostgreSQL that could lose committed transactions is refused, and no table is created in it (B48).
func TestUnfitPostgresIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewPostgres(t, testkit.PostgresOptions{Settings: map[string]string{"synchronous_commit": "off"}})
	d := setup(t, options{server: server, uninitialized: true})
	for _, command := range [][]string{
		{"init"}, {"config", "check", "--connect"}, {"campaign", "create", spec(t, "rain", 10, 1000)}, {"campaign", "list"},
	} {
		r := d.refused(1, command, "synchronous_commit is off", "ALTER SYSTEM SET synchronous_commit = on", "fsync is off")
		require.Contains(t, r.err, "full_page_writes", "every reason at once")
	}
	c, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	var tables int
	require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables))
	require.Zero(t, tables)
	require.NoError(t, c.Close(t.Context()))

	d.set("UNSAFE_ALLOW", "synchronous_commit,fsync,full_page_writes")
	d.ok("init")
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
}

// A ledger with the schema of a newer or another build is refused and not changed. The error for an unreachable ledger
// has its address.
func TestLedgersOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	c, err := pgx.Connect(t.Context(), d.dsn)
	require.NoError(t, err)
	_, err = c.Exec(t.Context(), "INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES (999, "+
		"'0999_x.sql', 'x', 999, 1)")
	require.NoError(t, err)
	d.refused(1, []string{"campaign", "list"}, "999", "upgrade")
	_, err = c.Exec(t.Context(), "DELETE FROM hongbao_schema WHERE version = 999; UPDATE hongbao_schema SET sum = 'x'")
	require.NoError(t, err)
	d.refused(1, []string{"campaign", "list"}, "another build")
	require.NoError(t, c.Close(t.Context()))

	d.set("LEDGER_DSN", "postgres://u:"+password+"@127.0.0.1:1/d")
	for _, command := range [][]string{{"campaign", "list"}, {"config", "check", "--connect"}} {
		d.refused(5, command, "127.0.0.1:1")
	}
}

// A topic that could lose or reorder events is refused, and the error names every reason. A missing topic is created
// only if kafka.create_topic is set.
func TestUnfitTopicIsRefused(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	bad := testkit.Kafka(t).Topic(t, 1, map[string]string{
		"unclean.leader.election.enable": "true", "cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime",
		"max.message.bytes": "1000",
	})
	with := func(pairs ...string) *deployment {
		e := *d
		e.env = append([]string(nil), d.env...)
		e.set(pairs...)
		return &e
	}
	// The worker has only sink kafka here: with another reachable sink it would start.
	for _, command := range [][]string{{"config", "check", "--connect"}, {"work", "--sink", "kafka"}, {"audit"},
		{"tail"}} {
		reasons := []string{"1 partitions, configured are 2", "compact", bad}
		if command[0] == "config" || command[0] == "work" { // readers need less than publishers
			reasons = append(reasons, "unclean", "CreateTime", "max.message.bytes")
		}
		with("KAFKA_TOPIC", bad).refused(1, command, reasons...)
		with("KAFKA_TOPIC", d.topic+"-none").refused(1, command, "does not exist", "create it with 2 partitions")
		if command[0] == "work" { // a worker waits for an unreachable broker
			continue
		}
		with("KAFKA_BROKERS", "127.0.0.1:1", "PUBLISHER_ATTEMPT_TIME", "1s", "PUBLISHER_REQUEST_TIMEOUT", "500ms").refused(5,
			command, "127.0.0.1:1")
	}
	made := with("KAFKA_TOPIC", d.topic+"-made", "KAFKA_CREATE_TOPIC", "true", "KAFKA_REPLICATION_FACTOR", "1")
	made.refused(1, []string{"config", "check", "--connect"}, "does not exist", "run `hongbao init`")
	require.Contains(t, made.ok("init"), "topic   "+d.topic+"-made: as it must be\n")
	require.Contains(t, made.ok("config", "check", "--connect"), "redis, ledger and topic: as they must be\n")
	require.Contains(t, d.ok("config", "check", "--connect"), "redis, ledger and topic: as they must be\n")
	d.set("DEPLOYMENT_SINKS", "balance")
	require.Contains(t, d.ok("config", "check", "--connect"), "\nredis and ledger: as they must be\n",
		"no topic is looked at")
}

// A command that can't reach Redis exits with code 5. TestProcessesWaitForRedis shows that workers and servers wait.
func TestUnreachableRedisIsAnError(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.set("REDIS_ADDRS", "127.0.0.1:1")
	for _, command := range [][]string{{"audit"}, {"grab", "rain", "u"}, {"config", "check", "--connect"}} {
		d.refused(5, command, "redis at 127.0.0.1:1", "can't be reached")
	}
}

// With redis.mode standalone, a cluster node or a Sentinel accepts the connection and refuses each call. The error says
// what the server is and which knob to set.
func TestRedisOfAnotherModeIsRefused(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{})
	node := testkit.NewRedis(t, testkit.RedisOptions{Cluster: true})
	sentinel := testkit.NewRedis(t, testkit.RedisOptions{Watches: node})
	for addr, says := range map[string]string{
		node.Addr:     "is a node of a Redis Cluster: set redis.mode to cluster",
		sentinel.Addr: "is a Sentinel: set redis.mode to sentinel",
	} {
		d.set("REDIS_ADDRS", addr)
		d.refused(1, []string{"work"}, addr, says)
		d.refused(1, []string{"config", "check", "--connect"}, addr, says)
	}
}
