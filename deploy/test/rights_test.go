package test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// users returns the rules of each user in deploy/rights/redis.acl.
func users(t *testing.T) map[string][]string {
	t.Helper()
	file, err := os.Open("../rights/redis.acl")
	require.NoError(t, err)
	defer file.Close()
	out := map[string][]string{}
	for s := bufio.NewScanner(file); s.Scan(); {
		words := strings.Fields(s.Text())
		require.Equal(t, "user", words[0], "Redis allows no comments in an ACL file")
		out[words[1]] = words[2:]
	}
	require.Len(t, out, 4)
	return out
}

// guarded has a Redis, a PostgreSQL and a Kafka in which each role has exactly the rights of deploy/rights.
type guarded struct {
	t     *testing.T
	redis *testkit.RedisServer
	admin *redis.Client
	pg    *testkit.PostgresServer
	db    string
	kafka *testkit.KafkaBroker
}

const topicName = "hongbao.grants"

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	acl, err := filepath.Abs("../rights/redis.acl")
	require.NoError(t, err)
	options := testkit.RedisOptions{Args: map[string]string{"aclfile": strconv.Quote(acl)}}
	g := &guarded{t: t, redis: testkit.NewRedis(t, options), pg: testkit.NewPostgres(t, testkit.PostgresOptions{
		Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})}
	g.admin = g.redis.Client(t)
	for name := range users(t) { // as docs/operations.md describes
		require.NoError(t, g.admin.Do(t.Context(), "ACL", "SETUSER", name, "on", ">"+name).Err(), name)
	}
	g.db, err = g.pg.CreateDatabase(t.Context())
	require.NoError(t, err)
	roles, err := os.ReadFile("../rights/postgres.sql")
	require.NoError(t, err)
	conn := g.connect("postgres")
	_, err = conn.Exec(t.Context(), string(roles))
	require.NoError(t, err)
	g.startKafka()
	return g
}

// startKafka starts a broker that denies everything without an ACL. Callers log in at its second listener; the first
// listener is for the administrator.
func (g *guarded) startKafka() {
	jaas := `org.apache.kafka.common.security.plain.PlainLoginModule required user_hongbao-worker="x" ` +
		`user_hongbao-operator="x" user_hongbao-serve="x";`
	g.kafka = testkit.NewKafka(g.t, testkit.KafkaOptions{Proxied: true, Properties: map[string]string{
		"authorizer.class.name":                                          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                                    "User:ANONYMOUS",
		"listener.security.protocol.map":                                 "PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                                        "PLAIN",
		"listener.name.proxied.plain.sasl.jaas.config":                   jaas,
		"listener.name.proxied.sasl.enabled.mechanisms":                  "PLAIN",
		"listener.name.proxied.plain.sasl.server.callback.handler.class": "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
	}})
	require.NoError(g.t, g.kafka.CreateTopic(g.t.Context(), topicName, 1, nil))
	cmd := exec.CommandContext(g.t.Context(), "../rights/kafka-acls.sh")
	cmd.Env = append(os.Environ(), "BOOTSTRAP="+g.kafka.Addr, "TOPIC="+topicName, "KAFKA_ACLS=echo")
	out, err := cmd.CombinedOutput()
	require.NoError(g.t, err, "%s", out)
	g.allow(strings.Split(strings.TrimSpace(string(out)), "\n"))
}

// allow creates the ACLs that kafka-acls.sh would create with these arguments. Running the script would start a JVM for
// each line, which takes seconds.
func (g *guarded) allow(lines []string) {
	operations := map[string]kmsg.ACLOperation{"Read": kmsg.ACLOperationRead, "Write": kmsg.ACLOperationWrite,
		"Describe": kmsg.ACLOperationDescribe, "DescribeConfigs": kmsg.ACLOperationDescribeConfigs}
	req := kmsg.NewPtrCreateACLsRequest()
	for _, line := range lines {
		acl := kmsg.NewCreateACLsRequestCreation()
		acl.Host, acl.PermissionType, acl.ResourcePatternType = "*", kmsg.ACLPermissionTypeAllow, kmsg.ACLResourcePatternTypeLiteral
		for words := strings.Fields(line); len(words) > 0; {
			flag, value := words[0], ""
			if words = words[1:]; len(words) > 0 && !strings.HasPrefix(words[0], "--") {
				value, words = words[0], words[1:]
			}
			switch flag {
			case "--bootstrap-server", "--add":
			case "--allow-principal":
				acl.Principal = value
			case "--topic":
				acl.ResourceType, acl.ResourceName = kmsg.ACLResourceTypeTopic, value
			case "--cluster":
				acl.ResourceType, acl.ResourceName = kmsg.ACLResourceTypeCluster, "kafka-cluster"
			case "--operation":
				require.Contains(g.t, operations, value)
				acl.Operation = operations[value]
				req.Creations = append(req.Creations, acl)
			default:
				require.Fail(g.t, flag)
			}
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(g.kafka.Addr))
	require.NoError(g.t, err)
	defer client.Close()
	res, err := req.RequestWith(g.t.Context(), client)
	require.NoError(g.t, err)
	require.Len(g.t, res.Results, len(req.Creations))
	for _, r := range res.Results {
		require.Zero(g.t, r.ErrorCode, "%v", r.ErrorMessage)
	}
}

func (g *guarded) connect(role string) *pgx.Conn {
	g.t.Helper()
	conn, err := pgx.Connect(g.t.Context(), g.dsn(role))
	require.NoError(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close(g.t.Context()) })
	return conn
}

func (g *guarded) dsn(role string) string {
	return strings.Replace(g.pg.DSN(g.db), "//postgres@", "//"+role+"@", 1)
}

// env returns the environment of a process that is user hongbao-<role> in Redis and Kafka, and user <database> in the
// database.
func (g *guarded) env(role, database string) []string {
	return []string{
		"HONGBAO_REDIS_ADDRS=" + g.redis.Addr, "HONGBAO_REDIS_USERNAME=hongbao-" + role, "HONGBAO_REDIS_PASSWORD=hongbao-" + role,
		"HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=" + g.dsn(database),
		"HONGBAO_KAFKA_BROKERS=" + g.kafka.Proxy.Addr, "HONGBAO_KAFKA_TOPIC=" + topicName,
		"HONGBAO_KAFKA_SASL_MECHANISM=plain", "HONGBAO_KAFKA_SASL_USERNAME=hongbao-" + role, "HONGBAO_KAFKA_SASL_PASSWORD=x",
		"HONGBAO_UNSAFE_ALLOW=sasl_plain_without_tls", "HONGBAO_TRIMMER_RETENTION=0s", "HONGBAO_CAMPAIGN_GRACE=0s",
	}
}

// All steps of a campaign's life work with the rights of deploy/rights, and no role uses a command that it has no right
// to. Commands that a role does not need are denied.
func TestRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	owner, operator := g.env("operator", "hongbao_owner"), g.env("operator", "hongbao_app")
	worker, web := g.env("worker", "hongbao_app"), g.env("serve", "hongbao_app")
	run(t, owner, "init")
	run(t, operator, "config", "check", "--connect")
	spec := campaignFile(t, 100)
	run(t, operator, "campaign", "create", spec)
	run(t, operator, "campaign", "load", "rain")
	balance := start(t, program(t), worker, "work", "--sink=balance")
	kafka := start(t, program(t), worker, "work", "--sink=kafka")
	balance.says(`"working"`)
	kafka.says(`"working"`)
	for _, user := range []string{"u1", "u2", "u3"} {
		require.Contains(t, run(t, web, "grab", "rain", user), "granted")
	}
	require.Contains(t, run(t, web, "grab", "rain", "u1"), "already_granted")
	front := serve(t, program(t), web, "--serve.drain_delay=0s")
	require.EqualValues(t, 100, front.mine("u1").Receipts[0].Amount)
	require.Contains(t, run(t, operator, "audit", "--wait", "30s"), "agrees")
	run(t, operator, "campaign", "close", "rain", "--early")
	run(t, operator, "campaign", "refund", "rain", "--amount", "9700", "--wait", "30s")
	run(t, operator, "campaign", "reveal", "rain")
	require.EqualValues(t, 1, g.admin.Exists(t.Context(), firstShard(t, g.admin).Campaign("rain")).Val())
	balance.stop(40 * time.Second)
	balance = start(t, program(t), worker, "work", "--sink=balance") // a worker looks for refunded campaigns at its start
	testkit.Eventually(t, 30*time.Second, func() bool { return g.admin.Exists(t.Context(), firstShard(t, g.admin).Campaign("rain")).Val() == 0 },
		"the worker removes the campaign from Redis")
	require.EqualValues(t, 100, front.mine("u1").Receipts[0].Amount, "from the ledger")
	front.stop(40 * time.Second)
	balance.stop(40 * time.Second)
	kafka.stop(40 * time.Second)
	log, err := g.admin.Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	require.Empty(t, log, "a role used a command that it has no right to")
	g.refused()
}

// refused requires that each role is denied some commands that it does not need.
func (g *guarded) refused() {
	t := g.t
	for role, commands := range map[string][]string{
		"hongbao-serve": {"XACK hb:{0}:events balance 1-1", "XDEL hb:{0}:events 1-1", "DEL hb:{0}:meta", "SCAN 0",
			"XGROUP DESTROY hb:{0}:events balance", "FLUSHALL", "CONFIG SET appendonly no", "SCRIPT FLUSH", "KEYS *", "GET other"},
		"hongbao-worker":   {"FLUSHALL", "CONFIG SET appendonly no", "SADD hb:x 1", "RENAME hb:x hb:y", "ACL LIST", "SET other 1"},
		"hongbao-operator": {"FLUSHALL", "CONFIG SET appendonly no", "ACL LIST", "CLIENT KILL TYPE normal", "GET other"},
		"hongbao-reader":   {"HSET hb:x a 1", "EVAL return 0", "GET other"},
	} {
		options := g.redis.Options()
		options.Username, options.Password = role, role
		client := redis.NewClient(options)
		for _, command := range commands {
			var args []any
			for _, word := range strings.Fields(command) {
				args = append(args, word)
			}
			require.ErrorContains(t, client.Do(t.Context(), args...).Err(), "NOPERM", "%s %s", role, command)
		}
		require.NoError(t, client.Close())
	}
	app := g.connect("hongbao_app")
	for _, statement := range []string{"CREATE TABLE x (n integer)", "DROP TABLE grants", "ALTER TABLE grants ADD x integer",
		"TRUNCATE grants", "CREATE ROLE x"} {
		_, err := app.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "42501", statement)
	}
	_, err := try(t, g.env("serve", "hongbao_app"), "tail")
	require.ErrorContains(t, err, "Topic Authorization Failed", "serve may not read the topic")
}

// A role may run each Redis command of the Lua scripts that it uses. Workers use all scripts; servers use those that
// decide grabs and those of a witness.
func TestRolesMayRunTheirScripts(t *testing.T) {
	t.Parallel()
	admin := testkit.Redis(t).Client(t)
	reads, err := admin.Do(t.Context(), "ACL", "CAT", "read").StringSlice()
	require.NoError(t, err)
	all, err := filepath.Glob("../../lua/*.lua")
	require.NoError(t, err)
	require.Greater(t, len(all), 20)
	var serves []string
	for _, name := range []string{"grab", "receipts", "freeze", "witness", "testify", "leave", "grant_withheld", "fields", "withheld",
		"guard"} {
		serves = append(serves, "../../lua/"+name+".lua")
	}
	for role, paths := range map[string][]string{"worker": all, "serve": serves} {
		rules := strings.Join(users(t)["hongbao-"+role], " ")
		checked := 0
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`call\('([A-Za-z]+)'`).FindAllStringSubmatch(string(text), -1) {
				command := strings.ToLower(m[1])
				allowed := strings.Contains(rules+" ", "+"+command+" ")
				for _, read := range reads {
					allowed = allowed || read == command || strings.HasPrefix(read, command+"|")
				}
				require.True(t, allowed, "%s, which %s runs, calls %s", path, role, command)
				checked++
			}
		}
		require.Greater(t, checked, 30, role)
	}
}
