package cli

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	public "github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/metrics/mixin"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// impatient has short times and small numbers for the alert rules, so that a test does not wait for minutes.
var impatient = mixin.Limits{Soon: time.Second, Window: time.Minute, Old: 3 * time.Second,
	Hang: 4 * time.Second, Start: 2 * time.Second, Gone: time.Hour, Refund: 3 * time.Second, Errors: 1, Letters: 1, Grabs: 1}

// prometheus is a running Prometheus server with the project's alert rules.
type prometheus struct {
	t   *testing.T
	url string
}

// watch starts a Prometheus and waits until it has scraped every target. A target is the address of an ops listener.
func watch(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	require.NoError(t, err, "scripts/setup.sh installs Prometheus")
	dir, at := t.TempDir(), testkit.FreeAddr(t)
	list := make([]string, len(targets))
	for i, target := range targets {
		list[i] = fmt.Sprintf("%q", strings.TrimPrefix(target, "http://"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(mixin.Rules(impatient)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), fmt.Appendf(nil, `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}
rule_files: [rules.yaml]
scrape_configs: [{job_name: hongbao, static_configs: [{targets: [%s]}]}]
`, strings.Join(list, ", ")), 0o600))
	launch(t, dir, nil, exec.Command(path, "--config.file=prometheus.yaml", "--storage.tsdb.path=data",
		"--web.listen-address="+at))
	p := &prometheus{t, "http://" + at}
	testkit.EventuallyOK(t, time.Minute, func() error {
		var answer struct {
			Data struct{ Result []struct{ Value []any } }
		}
		if err := p.get("/api/v1/query?query=up==1", &answer); err != nil {
			return err
		}
		if n := len(answer.Data.Result); n != len(targets) {
			return fmt.Errorf("%d of %d targets are scraped", n, len(targets))
		}
		return nil
	}, "Prometheus scrapes")
	return p
}

func (p *prometheus) get(path string, into any) error {
	res, err := (&http.Client{Timeout: 5 * time.Second}).Get(p.url + path)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.NewDecoder(res.Body).Decode(into)
}

// firing returns the codes of the alerts that fire.
func (p *prometheus) firing() (codes []string, err error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State       string
				Annotations map[string]string
			}
		}
	}
	err = p.get("/api/v1/alerts", &answer)
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			codes = append(codes, strings.TrimPrefix(a.Annotations["runbook_url"], mixin.Runbooks))
		}
	}
	return codes, err
}

// fires waits until the alerts with these codes fire.
func (p *prometheus) fires(codes ...string) {
	p.t.Helper()
	testkit.EventuallyOK(p.t, 45*time.Second, func() error {
		firing, err := p.firing()
		for _, code := range codes {
			if err == nil && !slices.Contains(firing, code) {
				err = fmt.Errorf("%s does not fire; these do: %v", code, firing)
			}
		}
		fired.Lock()
		defer fired.Unlock()
		for _, code := range firing {
			fired.codes[code] = true
		}
		return err
	}, "alerts fire")
}

// fired has the codes of every alert that fired in any test.
var fired = struct {
	sync.Mutex
	codes map[string]bool
}{codes: map[string]bool{}}

// scraped sets up a deployment whose programs poll its state every 200 ms.
func scraped(t *testing.T, o options) *deployment {
	d := setup(t, o)
	d.set("OPS_POLL", "200ms", "OPS_POLL_TIMEOUT", "700ms")
	return d
}

// watchedWorker starts a worker and returns its ops listener.
func (d *deployment) watchedWorker(args ...string) (*program, string) {
	d.t.Helper()
	w := d.start(append([]string{"work", "--work.ops_listen=127.0.0.1:0"}, args...)...)
	return w, w.ops(opsLine, "address")
}

// Each alert fires when the test causes its fault in real processes and servers, and does not fire before.
func TestEveryAlertFires(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	// Parallel subtests would begin only after all other tests of the package. These three subtests mostly wait, so
	// they run at the same time.
	var faults sync.WaitGroup
	faults.Go(func() { t.Run("wrong hands in Redis", wrongHands) })
	faults.Go(func() { t.Run("sinks", sinksAway) })
	faults.Go(func() { t.Run("Redis down and back", redisAway) })
	faults.Wait()
	elsewhere := map[string]string{
		"fsync_slow":          "TestFsyncSlowFires",
		"incomplete_plan":     "only programs with package settlement have a plan of their own; the ledger's tests cause the alarm",
		"ledger_asynchronous": "it needs a server with a replica: TestSemiSyncFallsBack causes the alarm",
	}
	for _, a := range mixin.Alerts(impatient) {
		require.True(t, fired.codes[a.Code] || elsewhere[a.Code] != "", "no fault makes %s fire", a.Code)
	}
}

// newServers enables TestFsyncSlowFires; make test-servers sets it.
var newServers = flag.Bool("servers", false, "run TestFsyncSlowFires with the servers that scripts/setup.sh servers fetches")

// Redis 7.2 or newer makes each grab of class fsync wait for a sync, which happens once a second. An older Redis, as on
// Debian 12, can't serve this class.
func TestFsyncSlowFires(t *testing.T) {
	t.Parallel()
	if testing.Short() || !*newServers {
		t.Skip("needs a server")
	}
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	for _, p := range programs[1:] { // programs[0] is Debian's Redis
		t.Run(p.Name+" "+p.Version, func(t *testing.T) {
			require.NotEmpty(t, p.Path, "scripts/setup.sh servers did not install it")
			server := testkit.NewRedis(t, testkit.RedisOptions{Binary: p.Path, Args: map[string]string{"appendfsync": "always"}})
			d := scraped(t, options{redis: server})
			g := d.serve()
			grab := func(id string) {
				d.campaign(id, 10, 1000, "durability: fast", "durability: fsync")
				status, text := g.call("POST", "/v1/campaigns/"+id+"/grabs", "k1", "u1", "{}")
				require.Equal(t, http.StatusOK, status, text)
			}
			grab("quick")
			require.NotContains(t, g.Err.String(), "fsync_slow")
			prom := watch(t, g.ops("serving grabs", "ops"))
			require.NoError(t, d.rdb.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
			grab("slow")
			prom.fires("fsync_slow")
		})
	}
}

func wrongHands(t *testing.T) {
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	d := scraped(t, options{redis: server})
	d.campaign("rain", 100, 1000)
	cert, key := newAuthority(t).issue() // for an hour
	g := d.serve("--control.tls_cert="+cert, "--control.tls_key="+key)
	w, worker := d.watchedWorker()
	w.says(`"working"`)
	p := watch(t, g.ops("serving grabs", "ops"), worker, ownWorker(t, d, "panics", panics{}))
	d.ok("grab", "rain", "u1")
	d.ok("audit", "--wait", "10s")
	p.fires("handler_panicked", "sink_campaign_paused")     // only the panicking handler causes these two
	testkit.EventuallyOK(t, 100*time.Second, func() error { // on a busy machine another one may have fired for a minute
		firing, err := p.firing()
		for _, code := range firing {
			if !slices.Contains([]string{"handler_panicked", "dead_letter", "sink_campaign_paused", "certificate_ends"}, code) {
				return fmt.Errorf("%s fires before its fault", code)
			}
		}
		return err
	}, "nothing else fires")
	p.fires("certificate_ends")
	require.NoError(t, os.WriteFile(cert, []byte("junk"), 0o600))
	p.fires("certificate_unread")

	set := func(name, value string) { require.NoError(t, d.rdb.ConfigSet(t.Context(), name, value).Err()) }
	set("maxmemory-policy", "allkeys-lru")
	p.fires("redis_evicts")
	set("maxmemory-policy", "noeviction")
	testkit.Eventually(t, 30*time.Second, func() bool {
		firing, err := p.firing()
		return err == nil && !slices.Contains(firing, "redis_evicts")
	}, "the alert redis_evicts stops")
	require.NoError(t, os.WriteFile(g.keys, []byte("no keys"), 0o600))
	testkit.Eventually(t, 20*time.Second, func() bool {
		g.call("GET", "/v1/campaigns/rain/grabs/me", "k1", "u1", "")
		return strings.Contains(g.Err.String(), "keys_unread")
	}, "the keys are read again")
	d.plant("rain", grantEntry("rain", 2, "999999", "thief")...)
	d.plant("rain", grantEntry("nowhere", 1, "1", "u")...)
	d.plant("rain", "no number", "x")
	events := d.store.Home("rain").Keys.Events()
	forged := grantEntry("rain", 3, "1", "thief")
	forged[1] = strings.Replace(forged[1], "SEQ", "123456", 1)
	require.NoError(t, d.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: events, Values: forged}).Err())
	p.fires("keys_unread", "campaign_paused", "unknown_campaign", "unreadable_entry", "forged_entry",
		"dead_letter", "dead_letter_rate")
	d.audit(3)
	p.fires("audit_differs")
	counted := func(code string) {
		testkit.Eventually(t, 30*time.Second, func() bool {
			text := scrape(t, worker, d.id())
			_, n, _ := strings.Cut(text, `hongbao_worker_incidents_total{code="`+code+`",sink="balance"} `)
			return n != "" && n[0] != '0'
		}, "the worker counts %s", code)
	}
	require.NoError(t, d.rdb.XTrimMaxLen(t.Context(), events, 0).Err()) // deletes the parked entries, too
	p.fires("events_lost")
	counted("forged_entry")
	counted("events_lost")
	require.NoError(t, d.rdb.XGroupDestroy(t.Context(), events, "balance").Err())
	p.fires("group_vanished")
	counted("group_vanished")
	newer := grantEntry("rain", 4, "1", "u")
	newer[0] = "4"
	d.plant("rain", newer...)
	p.fires("shard_broken")

	require.NoError(t, os.MkdirAll(filepath.Join(server.Dir(), "dump.rdb", "in the way"), 0o755))
	require.NoError(t, d.rdb.BgSave(t.Context()).Err())
	set("maxmemory", fmt.Sprint(d.usedMemory()*110/100))
	p.fires("redis_writes_fail", "redis_memory")
	set("appendonly", "no")
	p.fires("redis_lost_append_only")
}

// usedMemory returns how many bytes Redis uses.
func (d *deployment) usedMemory() (bytes int64) {
	used, err := d.rdb.Info(d.t.Context(), "memory").Result()
	require.NoError(d.t, err)
	_, after, _ := strings.Cut(used, "used_memory:")
	_, err = fmt.Sscan(after, &bytes)
	require.NoError(d.t, err)
	return bytes
}

// ownWorker runs a worker of the given consumer group in this process, with a handler that has a bug. It returns the
// URL of the worker's metrics.
func ownWorker(t *testing.T, d *deployment, group string, h hongbao.Handler) string {
	t.Helper()
	core, _ := observer.New(zap.WarnLevel)
	s := metrics.New("work", "test", d.id())
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	cfg := consumer.DefaultConfig()
	cfg.Deployment = public.Of(d.store, s.CountAlarms(zap.New(core)))
	cfg.Group, cfg.Consumer, cfg.Handler = group, "w1", h
	cfg.Poll, cfg.Block, cfg.DrainTimeout = 100*time.Millisecond, 100*time.Millisecond, 0
	cfg.MaxAttempts, cfg.PauseLetters = 2, 1
	c, err := consumer.New(cfg)
	require.NoError(t, err)
	s.Sinks().Tally(group, func() (tally metrics.Tally) {
		for _, h := range c.Health() {
			tally.LastSteps = append(tally.LastSteps, h.LastStep)
		}
		return tally
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(ctx) }) // Run may fail because of a broken shard
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return server.URL
}

// hanging starts a worker whose handler ignores its context until the test ends. It returns the URL of the worker's
// metrics.
func hanging(t *testing.T, d *deployment) string {
	t.Helper()
	end := make(chan struct{})
	address := ownWorker(t, d, "hangs", hongbao.HandlerFunc(func(context.Context, hongbao.Batch) []error {
		<-end
		return nil
	}))
	t.Cleanup(func() { close(end) })
	return address
}

type panics struct{}

// Handle implements hongbao.Handler.
func (panics) Handle(context.Context, hongbao.Batch) []error { panic("a bug") }

// ends returns a file with the specification of a campaign whose window ends at a time.
func ends(t *testing.T, id string, at time.Time) string {
	t.Helper()
	path := spec(t, id, 10, 1000)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), ", to: ")
	require.True(t, ok)
	_, rest, _ = strings.Cut(rest, "}")
	require.NoError(t, os.WriteFile(path, []byte(head+", to: "+at.UTC().Format(time.RFC3339)+"}"+rest), 0o600))
	return path
}

func sinksAway(t *testing.T) {
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := scraped(t, options{kafka: true, broker: broker})
	d.campaign("rain", 100, 1000)
	d.ok("campaign", "create", ends(t, "short", time.Now().Add(10*time.Second)))
	mute, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts, but never answers
	require.NoError(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	g := d.serve("--producer.replicas=1") // Redis has none
	w, worker := d.watchedWorker()
	w.says(`"working","sink":"kafka"`)
	p := watch(t, g.ops("serving grabs", "ops"), worker, d.badWorker("KAFKA_PARTITIONS", "3"),
		d.badWorker("KAFKA_BROKERS", mute.Addr().String(), "PUBLISHER_ATTEMPT_TIME", "1m",
			"PUBLISHER_MAX_CLAIM_AGE", "1m", "CONSUMER_LEASE", "1h"), hanging(t, d))
	p.fires("sink_broken", "sink_opening", "redis_replica_lost")
	require.NoError(t, broker.Kill())
	require.Equal(t, 5, d.crowdOf("rain", 0, 5))
	p.fires("sink_down", "grants_wait", "handler_hangs")
	d.ok("sink", "pause", "kafka", "--by", "ann", "--why", "the broker is gone")
	p.fires("sink_paused")
	p.fires("campaign_unrefunded")
	d.ok("campaign", "top-up", "rain", "--packets", "5", "--total", "500", "--expect", "1000", "--id", "more", "--by", "ann",
		"--why", "it rains")
	db, err := sql.Open("sqlite", d.ledgerFile())
	require.NoError(t, err)
	// No process may record that the packets of the top-up are in Redis, or the result of the credit of a dead worker.
	_, err = db.ExecContext(t.Context(), `BEGIN;
		INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES (999, '0999_future.sql', 'x', 999, 1);
		UPDATE generation SET state = 'announced', dealt_at = 0;
		INSERT INTO pending (campaign, packet, user_id, amount, shard, seq, epoch, request_id, granted_at, owner, batch,
			since, asked_at) VALUES ('rain', 99, 'u', 1, 0, 99, 1, 'r', 1, 'a dead worker', 1, 1, 1);
		COMMIT`)
	require.NoError(t, errors.Join(err, db.Close()))
	require.Equal(t, 1, d.crowdOf("rain", 5, 1))
	require.NoError(t, d.rdb.LPush(t.Context(), d.store.Journal(), "{}").Err()) // such a ledger takes no entry
	p.fires("newer_schema", "credit_in_doubt", "top_up_waits", "journal_waits")
	w.Kill()
	p.fires("process_down")
}

// badWorker starts a worker with wrong knobs for sink kafka, and returns the address of its ops listener.
func (d *deployment) badWorker(pairs ...string) string {
	d.t.Helper()
	_, at := d.with(pairs...).watchedWorker()
	return at
}

func redisAway(t *testing.T) {
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	d := scraped(t, options{redis: server})
	d.campaign("rain", 100, 1000)
	g := d.serve("--redis.read_timeout=1s", "--producer.call_timeout=2s")
	w, worker := d.watchedWorker()
	w.says(`"working"`)
	grab := func(user string) int {
		status, _ := g.call("POST", "/v1/campaigns/rain/grabs", "k1", user, "{}")
		return status
	}
	require.Equal(t, http.StatusOK, grab("u1"))
	p := watch(t, g.ops("serving grabs", "ops"), worker)
	d.key("viewer")
	db, err := sql.Open("sqlite", d.ledgerFile())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE api_key SET created_at = 1, expires_at = $1`,
		time.Now().Add(24*time.Hour).UnixMilli()) // a key made long ago
	require.NoError(t, errors.Join(err, db.Close()))
	p.fires("audit_old", "key_ends") // no audit has run yet
	require.NoError(t, server.Kill())
	for i := range 3 {
		require.Equal(t, http.StatusServiceUnavailable, grab(fmt.Sprint("v", i)))
	}
	p.fires("redis_down", "grab_errors", "grab_slow")
	w.Signal(syscall.SIGSTOP) // a running worker would open the shard at once
	require.NoError(t, server.Restart())
	p.fires("shard_frozen")
	w.Signal(syscall.SIGCONT)
	testkit.Eventually(t, time.Minute, func() bool { return grab("u2") == http.StatusOK }, "the shard is open again")
	d.quiet()
	w.Kill()
	testkit.Eventually(t, time.Minute, func() bool { return grab("u3") == http.StatusOK }, "grabs are decided")
	p.fires("no_worker")
	unscraped := d.start("work")
	unscraped.says(`"working"`)
	p.fires("worker_unscraped")
	unscraped.stop(syscall.SIGTERM)
	w = d.start("work", "--work.ops_listen="+strings.TrimPrefix(worker, "http://"))
	w.says(`"working"`)
	d.quiet()
	testkit.Eventually(t, 20*time.Second, func() bool {
		firing, err := p.firing()
		return err == nil && !slices.Contains(firing, "process_down")
	}, "the worker is scraped again")
	files, old := filepath.Join(server.Dir(), "appendonlydir"), t.TempDir()
	require.NoError(t, os.CopyFS(old, os.DirFS(files)))
	testkit.Eventually(t, time.Minute, func() bool { return grab("u4") == http.StatusOK }, "grabs are decided")
	d.quiet()
	require.NoError(t, server.Kill())
	require.NoError(t, os.RemoveAll(files))
	require.NoError(t, os.CopyFS(files, os.DirFS(old)))
	require.NoError(t, server.Restart())
	p.fires("redis_restored")
	testkit.Eventually(t, time.Minute, func() bool { return grab("u5") == http.StatusOK }, "the shard is open again")
	require.Contains(t, d.ok("receipts", "rain", "u4"), "1 receipt", "the grant is back")
	d.quiet()
	d.withholds("rain", 2)
	p.fires("packets_withheld")
	d.ok("hole", "release", "rain", "--by", "ann", "--why", "no process died")
	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	p.fires("redis_lost_data", "redis_went_back")
	g.Kill()
	p.fires("server_gone")
	w.Kill()
	p.fires("deployment_gone")
}
