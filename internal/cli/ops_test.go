package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// ops returns the address of a program's ops listener, from the field of a log line.
func (p *program) ops(line, field string) string {
	p.t.Helper()
	p.says(line)
	for text := range strings.SplitSeq(p.Err.String(), "\n") {
		var fields map[string]any
		if strings.Contains(text, line) && json.Unmarshal([]byte(text), &fields) == nil {
			address, _ := fields[field].(string)
			return "http://" + address
		}
	}
	p.t.Fatalf("no log line %q", line)
	return ""
}

// ask sends a request to an ops listener.
func ask(t *testing.T, url string) (status int, text string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	res, err := client.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

var ownDeployment = regexp.MustCompile(`\{deployment="[^"]*"\}|,deployment="[^"]*"|deployment="[^"]*",`)

// scrape returns the metrics of an ops listener, without the label that names the deployment. It requires this label.
func scrape(t *testing.T, address, deployment string) string {
	t.Helper()
	_, text := ask(t, address+"/metrics")
	require.Contains(t, text, `deployment="`+deployment+`"`)
	return ownDeployment.ReplaceAllString(text, "")
}

var keyEnds = regexp.MustCompile(`hongbao_key_expiry_timestamp_seconds\{role="gateway"\} 1\.[0-9]+e\+09`)

const opsLine = "serving metrics and health"

// `hongbao serve --control` and `hongbao work` export the same metrics about the deployment. Each also exports metrics of its own
// work, and the verdict of the last audit.
func TestMetricsOfServeAndWork(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, shards: 2, lease: 15 * time.Second})
	d.set("OPS_POLL", "100ms", "OPS_PPROF", "true")
	d.campaign("rain", 20, 2000)
	g := d.serve()
	for _, user := range []string{"u1", "u2", "u3", "u1"} {
		status, text := g.call("POST", "/v1/campaigns/rain/grabs", "k1", user, "{}")
		require.Equal(t, http.StatusOK, status, "%s", text)
	}
	server := g.ops("serving grabs", "ops")
	d.ok("key", "create", "--role", "gateway", "--expires", "720h")
	for path, want := range map[string]int{"/v1/campaigns/rain": http.StatusUnauthorized, "/login": http.StatusOK} {
		status, text := ask(t, g.ops("serving the administration", "address")+path)
		require.Equal(t, want, status, text)
	}
	var text string
	testkit.Eventually(t, 30*time.Second, func() bool {
		text = scrape(t, server, d.id())
		return keyEnds.MatchString(text)
	}, "the server has read the new key")
	for _, line := range []string{
		`hongbao_grabs_total{outcome="granted"} 3`, `hongbao_grabs_total{outcome="already_granted"} 1`,
		`hongbao_grab_seconds_count 4`, `hongbao_grab_calls_total{result="ok"} 4`,
		`hongbao_campaign_left_packets{campaign="rain"} 17`,
		`hongbao_http_requests_total{listener="listen",route="/v1/campaigns/{id}/grabs",status="200"} 4`,
		`hongbao_http_requests_total{listener="control",route="/v1/campaigns/{id}",status="401"} 1`,
		`hongbao_http_requests_total{listener="control",route="/login",status="200"} 1`,
		`hongbao_http_request_seconds_count{listener="control",route="/login"} 1`,
		`hongbao_sink_workers{sink="kafka"} 0`, `hongbao_state_up 1`, `hongbao_redis_append_only{server="` +
			d.rdb.Options().Addr + `"} 1`, `hongbao_shard_open{shard="1"} 1`,
	} {
		require.Contains(t, text, line+"\n")
	}
	lag := func(text string) (n int) {
		for _, shard := range []string{"0", "1"} {
			n += strings.Count(text, `hongbao_sink_lag_grants{shard="`+shard+`",sink="balance"} 3`)
		}
		return n
	}
	require.Equal(t, 1, lag(text), "serve reports the lag when no worker lives: %s", text)
	require.NotContains(t, text, "hongbao_audit_agrees ")

	w := d.start("work", "--work.ops_listen=127.0.0.1:0")
	worker := w.ops(opsLine, "address")
	testkit.Eventually(t, 30*time.Second, func() bool {
		status, _ := ask(t, worker+"/readyz")
		return status == http.StatusOK
	}, "the worker is ready")
	d.quiet()
	d.ok("audit", "--wait", "10s")
	testkit.EventuallyOK(t, 30*time.Second, func() error {
		text = scrape(t, worker, d.id())
		for _, line := range []string{
			`hongbao_worker_done_grants_total{sink="kafka"} 3`, fmt.Sprintf(
				`hongbao_worker_attempts_total{result="done",shard="%d",sink="balance"} 3`, d.store.Home("rain").Index()),
			`hongbao_worker_shards{code="working",sink="kafka"} 2`, `hongbao_sink_workers{sink="kafka"} 1`,
			`hongbao_sink_lag_grants{shard="0",sink="kafka"} 0`, `hongbao_audit_agrees 1`, `hongbao_audit_differences 0`,
			`hongbao_kafka_errors_total{request="Produce"} 0`,
			`hongbao_sink_parked_entries{level="0",shard="1",sink="kafka"} 0`,
		} {
			if !strings.Contains(text, line+"\n") {
				return fmt.Errorf("no line %s in\n%s", line, text)
			}
		}
		return nil
	}, "the worker reports it")
	require.Regexp(t, `hongbao_ledger_transaction_seconds_count\{kind="write"\} [1-9]`, text)
	status, _ := ask(t, worker+"/debug/pprof/goroutine?debug=1")
	require.Equal(t, http.StatusOK, status)
	w.stop(syscall.SIGTERM)
}

// A worker that can't open a sink is alive but not ready, and /readyz says why. Profiles are served only if ops.pprof
// is set. A program whose ops address is in use does not start.
func TestReadinessOfAWorker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := setup(t, options{kafka: true, broker: broker})
	require.NoError(t, broker.Kill())
	w := d.start("work", "--work.ops_listen=127.0.0.1:0")
	ops := w.ops(opsLine, "address")
	status, _ := ask(t, ops+"/livez")
	require.Equal(t, http.StatusOK, status)
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, text := ask(t, ops+"/readyz")
		return strings.Contains(text, `"opening sink kafka"`)
	}, "sink kafka is missing")
	status, _ = ask(t, ops+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = ask(t, ops+"/debug/pprof/")
	require.Equal(t, http.StatusNotFound, status)
	taken := d.run("work", "--work.ops_listen="+strings.TrimPrefix(ops, "http://"))
	require.NotZero(t, taken.code)
	require.Contains(t, taken.err, "check that no other process uses it, or change work.ops_listen")
	require.NoError(t, broker.Restart())
	testkit.Eventually(t, 60*time.Second, func() bool {
		status, _ := ask(t, ops+"/readyz")
		return status == http.StatusOK
	}, "the sink is back")
}

func TestMetricsOfBalance(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	dsn := filepath.Join(t.TempDir(), "balance.db")
	b := startBalance(t, "127.0.0.1:0", dsn, "HONGBAO_BALANCE_OPS_LISTEN=127.0.0.1:0")
	key := runProgram(t, []string{"HONGBAO_LEDGER_DSN=" + dsn}, "key", "create", "--role=client", "--client=worker")
	require.Zero(t, key.code, key.err)
	ops, api := b.ops(opsLine, "address"), b.ops("serving balances", "address")
	status, _ := ask(t, api+"/v1/credits")
	require.Equal(t, http.StatusUnauthorized, status)
	text := scrape(t, ops, "hongbao")
	require.Contains(t, text, `hongbao_http_requests_total{listener="listen",route="/v1/credits",status="401"} 1`)
	require.Regexp(t, `hongbao_key_expiry_timestamp_seconds\{role="client"\} 1\.[0-9]+e\+09`, text)
	require.Regexp(t, `hongbao_build_info\{command="balance",version="[^"]+"\} 1`, text)
	status, _ = ask(t, ops+"/readyz")
	require.Equal(t, http.StatusOK, status)
	b.Signal(syscall.SIGTERM)
	r := b.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
}

// `hongbao work` and `hongbao serve` start before Redis and the other servers. They wait, /readyz says so, and they
// become ready without a restart. SIGTERM ends them while they wait.
func TestProcessesWaitForRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for _, command := range []string{"work", "serve"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := testkit.NewRedis(t, testkit.RedisOptions{Dir: t.TempDir(), Args: map[string]string{"appendfsync": "always"}})
			d := setup(t, options{redis: server})
			ops, keys := testkit.FreeAddr(t), filepath.Join(t.TempDir(), "keys.json")
			require.NoError(t, os.WriteFile(keys, []byte(keySet("k1")), 0o600))
			d.set("WORK_OPS_LISTEN", ops, "SERVE_OPS_LISTEN", ops, "SERVE_LISTEN", testkit.FreeAddr(t),
				"SERVE_DRAIN_DELAY", "0s", "SERVE_KEYS", keys, "SERVE_ISSUER", "https://id.example.com",
				"SERVE_AUDIENCE", "hongbao", "SERVE_FACTS", "device=claim:device_id")
			require.NoError(t, server.Kill())
			stopped := d.start(command)
			stopped.says("redis can't be reached")
			stopped.Signal(syscall.SIGTERM)
			require.Zero(t, stopped.wait(30*time.Second).code, stopped.Err.String())

			p := d.start(command)
			p.says("redis can't be reached")
			status, text := ask(t, "http://"+ops+"/readyz")
			require.Equal(t, http.StatusServiceUnavailable, status)
			require.Contains(t, text, "opening redis")
			status, _ = ask(t, "http://"+ops+"/livez")
			require.Equal(t, http.StatusOK, status)
			require.NoError(t, server.Restart())
			testkit.Eventually(t, 60*time.Second, func() bool {
				res, err := http.Get("http://" + ops + "/readyz")
				if err != nil {
					return false // the process may be between two listeners
				}
				defer res.Body.Close()
				return res.StatusCode == http.StatusOK
			}, "it begins by itself")
			p.Signal(syscall.SIGTERM)
			require.Zero(t, p.wait(30*time.Second).code, p.Err.String())
		})
	}
}
