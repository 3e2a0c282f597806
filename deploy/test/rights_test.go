package test

import (
	"bufio"
	"net/http"
	"net/http/cookiejar"
	"net/url"
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
	require.Len(t, out, 5)
	return out
}

// guarded has a Redis, a database and a Kafka in which each role has exactly the rights of deploy/rights.
type guarded struct {
	t     *testing.T
	redis *testkit.RedisServer
	admin *redis.Client
	kafka *testkit.KafkaBroker
	// driver and dsn are the ledger's driver, and the address of its database for a role.
	driver string
	dsn    func(role string) string
	// sessions returns how many connections to the database a role has.
	sessions func(role string) int
}

const topicName = "hongbao.grants"

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	acl, err := filepath.Abs("../rights/redis.acl")
	require.NoError(t, err)
	options := testkit.RedisOptions{Args: map[string]string{"aclfile": strconv.Quote(acl)}}
	g := &guarded{t: t, redis: testkit.NewRedis(t, options)}
	g.admin = g.redis.Client(t)
	for name := range users(t) { // as docs/operations.md describes
		require.NoError(t, g.admin.Do(t.Context(), "ACL", "SETUSER", name, "on", ">"+name).Err(), name)
	}
	g.startKafka()
	return g
}

// startPostgres starts a PostgreSQL with the roles of deploy/rights/postgres.sql.
func (g *guarded) startPostgres() *testkit.PostgresServer {
	g.t.Helper()
	pg := testkit.NewPostgres(g.t, testkit.PostgresOptions{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	db, err := pg.CreateDatabase(g.t.Context())
	require.NoError(g.t, err)
	g.driver, g.dsn = "postgres", func(role string) string {
		return strings.Replace(pg.DSN(db), "//postgres@", "//"+role+"@", 1)
	}
	admin := g.connect("postgres")
	g.sessions = func(role string) (n int) {
		require.NoError(g.t, admin.QueryRow(g.t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE usename = $1`, role).Scan(&n))
		return n
	}
	text, err := os.ReadFile("../rights/postgres.sql")
	require.NoError(g.t, err)
	_, err = admin.Exec(g.t.Context(), string(text))
	require.NoError(g.t, err)
	return pg
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

// env returns the environment of a process that is user hongbao-<role> in Redis and Kafka, and user <database> in the
// database. Kafka has no user hongbao-init.
func (g *guarded) env(role, database string) []string {
	inKafka := role
	if role == "init" {
		inKafka = "operator"
	}
	return []string{
		"HONGBAO_REDIS_ADDRS=" + g.redis.Addr, "HONGBAO_REDIS_USERNAME=hongbao-" + role, "HONGBAO_REDIS_PASSWORD=hongbao-" + role,
		"HONGBAO_LEDGER_DRIVER=" + g.driver, "HONGBAO_LEDGER_DSN=" + g.dsn(database),
		"HONGBAO_KAFKA_BROKERS=" + g.kafka.Proxy.Addr, "HONGBAO_KAFKA_TOPIC=" + topicName,
		"HONGBAO_KAFKA_SASL_MECHANISM=plain", "HONGBAO_KAFKA_SASL_USERNAME=hongbao-" + inKafka, "HONGBAO_KAFKA_SASL_PASSWORD=x",
		"HONGBAO_UNSAFE_ALLOW=sasl_plain_without_tls", "HONGBAO_TRIMMER_RETENTION=0s", "HONGBAO_CAMPAIGN_GRACE=0s",
	}
}

// All steps of a campaign's life work with the rights of deploy/rights, and no role uses a command that it has no right
// to. Commands that a role does not need are denied.
func TestRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	pg := g.startPostgres()
	owner := g.env("init", "hongbao_owner")
	run(t, owner, "init")
	db := g.connect("hongbao_owner")
	change := func(sql string) {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	change(`REVOKE ALL ON account FROM hongbao_work`) // as a new table
	run(t, owner, "init")
	// A newer build has changed the schema. The older build's init does not take away the rights that it granted.
	change(`INSERT INTO hongbao_schema SELECT 1000, 'newer', 'sum', 1, 1`)
	change(`GRANT SELECT ON api_key TO hongbao_work`)
	run(t, owner, "init")
	var kept bool
	require.NoError(t, db.QueryRow(t.Context(), `SELECT has_table_privilege('hongbao_work', 'api_key', 'SELECT')`).Scan(&kept))
	require.True(t, kept)
	change(`DELETE FROM hongbao_schema WHERE version = 1000`)
	run(t, owner, "init")
	g.live()
	text, err := os.ReadFile(filepath.Join(pg.Dir(), "server.log"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "permission denied", "a role used a table that it has no right to")
	g.refused()
	for i, role := range roles {
		conn := g.connect(role)
		g.denied(i, "42501", func(statement string) error {
			_, err := conn.Exec(t.Context(), statement)
			return err
		})
	}
	text, err = os.ReadFile(filepath.Join(pg.Dir(), "server.log"))
	require.NoError(t, err)
	require.Contains(t, string(text), "permission denied", "the log has refusals")
}

// live takes a campaign through all steps of its life.
func (g *guarded) live() {
	t := g.t
	operator := g.env("operator", "hongbao_control")
	worker, web := g.env("worker", "hongbao_work"), g.env("serve", "hongbao_serve")
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
	g.administer(operator)
	front := serve(t, program(t), web, "--serve.drain_delay=0s")
	require.EqualValues(t, 100, front.mine("u1").Receipts[0].Amount)
	_, scraped, err := call(t.Context(), http.DefaultClient, request{method: "GET", url: "http://" + front.ops + "/metrics"})
	require.NoError(t, err)
	require.NotContains(t, string(scraped), "hongbao_ledger_unfinished", "only workers and control count the unfinished work")
	testkit.Eventually(t, 20*time.Second, func() bool { return g.sessions("hongbao_control") == 0 },
		"serve and the workers open no connection of the control role")
	require.Positive(t, g.sessions("hongbao_serve"))
	require.Contains(t, run(t, operator, "audit", "--wait", "30s"), "agrees")
	run(t, operator, "campaign", "close", "rain", "--early")
	run(t, operator, "campaign", "refund", "rain", "--amount", "10200", "--wait", "30s")
	run(t, operator, "campaign", "reveal", "rain")
	require.EqualValues(t, 1, g.admin.Exists(t.Context(), firstShard(t, g.admin).Campaign("rain")).Val())
	balance.stop(40 * time.Second)
	balance = start(t, program(t), worker, "work", "--sink=balance") // a worker looks for refunded campaigns at its start
	testkit.Eventually(t, 30*time.Second, func() bool { return g.admin.Exists(t.Context(), firstShard(t, g.admin).Campaign("rain")).Val() == 0 },
		"the worker removes the campaign from Redis")
	require.EqualValues(t, 100, front.mine("u1").Receipts[0].Amount, "from the ledger")
	front.stop(40 * time.Second)
	require.Contains(t, run(t, operator, "audit", "--seal"), "rain (sealed)")
	balance.stop(40 * time.Second)
	kafka.stop(40 * time.Second)
	log, err := g.admin.Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	require.Empty(t, log, "a role used a command that it has no right to")
}

// administer manages keys, tops up the campaign, and reads and changes over the administration API.
func (g *guarded) administer(operator []string) {
	t := g.t
	key := strings.TrimSpace(run(t, operator, "key", "create", "--role", "treasurer"))
	gone := strings.Split(run(t, operator, "key", "create", "--role", "viewer"), "_")[1]
	run(t, operator, "key", "rotate", gone)
	run(t, operator, "key", "revoke", gone)
	run(t, operator, "campaign", "top-up", "rain", "--id", "more", "--packets", "5", "--total", "500", "--expect", "10000",
		"--by", "ann", "--why", "test")
	at := testkit.FreeAddr(t)
	control := start(t, program(t), operator, "control", "--control.listen="+at, "--control.ops_listen=127.0.0.1:0")
	control.says("serving the administration")
	file := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(file, []byte(key), 0o600))
	over := []string{"--server", "http://" + at, "--key-file", file}
	for _, command := range []string{"campaign list", "campaign show rain", "campaign pause rain --by a --why test",
		"campaign resume rain --by a --why test", "sink list", "journal", "audit --seal --wait 30s"} {
		run(t, operator, append(strings.Fields(command), over...)...)
	}
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	res, err := browser.PostForm("http://"+at+"/login", url.Values{"key": {key}})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "/", res.Request.URL.Path, "the console is open")
	control.stop(40 * time.Second)
}

// refused requires that each role is denied some commands that it does not need.
func (g *guarded) refused() {
	t := g.t
	for role, commands := range map[string][]string{
		"hongbao-serve": {"XACK hb:{0}:events balance 1-1", "XDEL hb:{0}:events 1-1", "DEL hb:{0}:meta", "SCAN 0",
			"XGROUP DESTROY hb:{0}:events balance", "FLUSHALL", "CONFIG SET appendonly no", "SCRIPT FLUSH", "KEYS *", "GET other",
			"CONFIG GET masterauth"},
		"hongbao-worker": {"FLUSHALL", "CONFIG SET appendonly no", "SADD hb:x 1", "RENAME hb:x hb:y", "ACL LIST", "SET other 1",
			"CONFIG GET masterauth"},
		"hongbao-operator": {"FLUSHALL", "CONFIG SET appendonly no", "ACL LIST", "CLIENT KILL TYPE normal", "GET other",
			"CONFIG GET masterauth"},
		"hongbao-init":   {"FLUSHALL", "CONFIG SET appendonly no", "ACL LIST", "GET other"},
		"hongbao-reader": {"HSET hb:x a 1", "EVAL return 0", "GET other"},
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
	_, err := try(t, g.env("serve", "hongbao_serve"), "tail")
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
