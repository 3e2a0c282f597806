package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// asProgram is an environment variable that makes the test binary run main. Tests start such processes to kill them.
const asProgram = "HBTEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(nil))
	}
	testkit.Main(m)
}

// password is in every DSN of PostgreSQL and must never be printed.
const password = "s3cret-pa55"

// result has the exit code and the output of a program.
type result struct {
	code     int
	out, err string
}

// program is a running program.
type program struct {
	t *testing.T
	*testkit.Program
}

// start starts the program. When the test ends, it is killed if it still runs.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return launch(t, t.TempDir(), env, exec.Command(self, args...))
}

// launch starts a command in a folder. The command may be a shell that runs the program.
func launch(t *testing.T, dir string, env []string, cmd *exec.Cmd) *program {
	t.Helper()
	cmd.Dir, cmd.Env = dir, testkit.Environ(append([]string{asProgram + "=1"}, env...)...)
	return &program{t, testkit.StartProgram(t, cmd)}
}

// wait waits until the program ends, and fails if it printed the password.
func (p *program) wait(most time.Duration) result {
	p.t.Helper()
	code := p.Wait(most)
	r := result{code, p.Out.String(), p.Err.String()}
	require.NotContains(p.t, r.out+r.err, password, "the password was printed")
	return r
}

// says waits until the log has the text.
func (p *program) says(text string) {
	p.t.Helper()
	p.Says(30*time.Second, text)
}

// runProgram runs the program to its end.
func runProgram(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return start(t, env, args...).wait(time.Minute)
}

// deployment is a deployment that belongs to one test.
type deployment struct {
	t      *testing.T
	env    []string
	prefix string
	times  int // env[:times] was set by setup; later values come from the test
	rdb    *redis.Client
	store  *store.Store
	dsn    string
	topic  string
	addr   string // of Kafka
}

// options change the default: one shard, an SQLite ledger and shared servers.
type options struct {
	shards   int
	postgres bool
	kafka    bool
	redis    *testkit.RedisServer    // nil: the shared server
	server   *testkit.PostgresServer // nil: the shared server
	broker   *testkit.KafkaBroker    // nil: the shared broker
	lease    time.Duration           // 0: 3 s
	// uninitialized skips `hongbao init`.
	uninitialized bool
}

// setup creates a deployment on real servers. Its leases and timeouts are short, so that the entries of a killed worker
// are soon taken over.
func setup(t *testing.T, o options) *deployment {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	if o.redis == nil {
		o.redis = testkit.Redis(t)
	}
	o.shards = max(o.shards, 1)
	prefix := testkit.Prefix(t)
	d := &deployment{t: t, prefix: prefix, rdb: o.redis.Client(t)}
	var err error
	d.store, err = store.New(store.Config{Redis: d.rdb, Space: hongbao.Space{Prefix: prefix, Shards: o.shards}, Deployment: prefix})
	require.NoError(t, err)
	lease := o.lease
	if lease == 0 {
		lease = 3 * time.Second
	}
	part := func(x int) string { return (lease * time.Duration(x) / 100).String() }
	d.set(
		"REDIS_ADDRS", o.redis.Addr, "REDIS_READ_TIMEOUT", part(30), "REDIS_POOL_TIMEOUT", part(30),
		"DEPLOYMENT_ID", prefix, "DEPLOYMENT_KEY_PREFIX", prefix, "DEPLOYMENT_SHARDS", fmt.Sprint(o.shards),
		"DEPLOYMENT_SINKS", "balance",
		"CONSUMER_LEASE", lease.String(), "CONSUMER_POLL", "100ms", "CONSUMER_BLOCK", "100ms", "CONSUMER_MAX_ATTEMPTS", "3",
		"CONSUMER_BACKOFF", "100ms", "CONSUMER_MAX_BACKOFF", "400ms", "TRIMMER_EVERY", "100ms", "LOG_FORMAT", "json",
		"PUBLISHER_METADATA_TTL", "200ms", "PUBLISHER_REQUEST_TIMEOUT", part(40), "PUBLISHER_ATTEMPT_TIME", part(60),
		"PUBLISHER_MAX_CLAIM_AGE", part(80),
	)
	d.ledger(o)
	if o.kafka {
		if o.broker == nil {
			o.broker = testkit.Kafka(t)
		}
		d.topic, d.addr = o.broker.Topic(t, 2,
			map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"}), o.broker.Addr
		d.set("DEPLOYMENT_SINKS", "balance,kafka", "KAFKA_BROKERS", d.addr, "KAFKA_TOPIC", d.topic, "KAFKA_PARTITIONS", "2")
	}
	d.times = len(d.env)
	if !o.uninitialized {
		d.ok("init")
	}
	return d
}

func (d *deployment) ledger(o options) {
	switch {
	case o.server != nil:
		name, err := o.server.CreateDatabase(d.t.Context())
		require.NoError(d.t, err)
		d.dsn = o.server.DSN(name)
	case o.postgres:
		d.dsn = testkit.Postgres(d.t)
		d.set("UNSAFE_ALLOW", "fsync,full_page_writes") // testkit's is quick
	default:
		d.dsn = filepath.Join(d.t.TempDir(), "ledger.db")
		d.set("LEDGER_DRIVER", "sqlite", "LEDGER_DSN", d.dsn)
		return
	}
	d.dsn = strings.Replace(d.dsn, "postgres@", "postgres:"+password+"@", 1)
	d.set("LEDGER_DRIVER", "postgres", "LEDGER_DSN", d.dsn)
}

// set sets knobs. A name is that of the environment variable without HONGBAO_.
func (d *deployment) set(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		d.env = append(d.env, "HONGBAO_"+pairs[i]+"="+pairs[i+1])
	}
}

func (d *deployment) start(args ...string) *program {
	d.t.Helper()
	return start(d.t, d.env, args...)
}

// unhurried has production values of leases and timeouts. Workers use short values instead, to take entries over
// quickly. Other commands use unhurried, unless the test sets something else.
var unhurried = []string{
	"HONGBAO_CONSUMER_LEASE=30s", "HONGBAO_REDIS_READ_TIMEOUT=3s", "HONGBAO_REDIS_POOL_TIMEOUT=3s",
	"HONGBAO_PUBLISHER_REQUEST_TIMEOUT=5s",
	"HONGBAO_PUBLISHER_ATTEMPT_TIME=15s", "HONGBAO_PUBLISHER_MAX_CLAIM_AGE=20s",
}

// run runs a command with production timeouts, and returns its result.
func (d *deployment) run(args ...string) result {
	d.t.Helper()
	return runProgram(d.t, slices.Concat(d.env[:d.times], unhurried, d.env[d.times:]), args...)
}

// ok runs a command that must end with exit code 0, and returns its output.
func (d *deployment) ok(args ...string) string {
	d.t.Helper()
	r := d.run(args...)
	require.Zero(d.t, r.code, "%v: %s%s", args, r.out, r.err)
	return r.out
}

// refused runs a command, and requires its exit code and that standard error contains each of parts.
func (d *deployment) refused(code int, args []string, parts ...string) result {
	d.t.Helper()
	r := d.run(args...)
	require.Equal(d.t, code, r.code, "%v: %s%s", args, r.out, r.err)
	for _, part := range parts {
		require.Contains(d.t, r.err, part)
	}
	return r
}

// spec writes the specification of a campaign that is open now. changes are pairs of an old and a new text.
func spec(t *testing.T, id string, packets, total int64, changes ...string) string {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	text := fmt.Sprintf(`id: %s
name: Spring rain
kind: red_packet
currency: CNY
total: %d
packets: %d
split: {mode: random, min: 1, max: %d}
window: {from: %s, to: %s}
time_zone: Asia/Shanghai
sponsor: acme
durability: fast
`, id, total, packets, total, now.Add(-time.Minute).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339))
	for i := 0; i < len(changes); i += 2 {
		require.Contains(t, text, changes[i])
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	path := filepath.Join(t.TempDir(), "campaign.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// ledgerFile returns the SQLite ledger for sql.Open. Its connections wait while a worker writes.
func (d *deployment) ledgerFile() string { return "file:" + d.dsn + "?_pragma=busy_timeout(10000)" }

// campaign creates and loads a campaign that is open now.
func (d *deployment) campaign(id string, packets, total int64, changes ...string) {
	d.t.Helper()
	d.ok("campaign", "create", spec(d.t, id, packets, total, changes...))
	d.ok("campaign", "load", id)
}

// show returns the output of `hongbao campaign show`.
func (d *deployment) show(id string) campaigns.Shown {
	d.t.Helper()
	var s campaigns.Shown
	require.NoError(d.t, json.Unmarshal([]byte(d.ok("campaign", "show", id, "--json")), &s))
	return s
}
