package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// cluster runs the pods of a rendered chart as processes.
type cluster struct {
	*rendered
	env   []string
	front *balancer
	rdb   *redis.Client
}

// deployment is a Deployment of the chart, as the tests run it.
type deployment struct {
	*appsv1.Deployment
	args  []string // the container's arguments, without those that name addresses and files
	grace time.Duration
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	pg := testkit.NewPostgres(t, testkit.PostgresOptions{Settings: map[string]string{"fsync": "on", "full_page_writes": "on"}})
	db, err := pg.CreateDatabase(t.Context())
	require.NoError(t, err)
	broker, server := testkit.Kafka(t), testkit.NewRedis(t, testkit.RedisOptions{})
	values := readValues(t, "../chart/ci/small-values.yaml")
	c := &cluster{rendered: newRendered(t, values), rdb: server.Client(t), env: []string{
		"HONGBAO_REDIS_ADDRS=" + server.Addr, "HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=" + pg.DSN(db),
		"HONGBAO_KAFKA_BROKERS=" + broker.Addr, "HONGBAO_KAFKA_TOPIC=" + broker.Topic(t, 1, nil),
	}}
	run(t, c.env, "init")
	return c
}

// deployment returns the chart's Deployment with this name.
func (c *cluster) deployment(name string) deployment {
	c.t.Helper()
	d := named[*appsv1.Deployment](c.rendered, name)
	surge, lost := d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue(), d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()
	require.Equal(c.t, []int{1, 0}, []int{surge, lost}, "a new pod starts before an old one stops, as in this test")
	pod := d.Spec.Template.Spec
	out := deployment{Deployment: d, grace: time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second}
	require.Nil(c.t, pod.Containers[0].Lifecycle)
	for _, arg := range pod.Containers[0].Args {
		if flag, _, _ := strings.Cut(arg, "="); !strings.HasSuffix(flag, "_listen") &&
			!slices.Contains([]string{"--serve.listen", "--serve.keys", "--serve.tls_cert", "--serve.tls_key"}, flag) {
			out.args = append(out.args, arg)
		}
	}
	return out
}

// newServer starts a pod of serve, waits until it is ready, and adds it to the balancer.
func (c *cluster) newServer(d deployment, path string) *server {
	c.t.Helper()
	s := serve(c.t, path, c.env, append(d.args[1:], "--serve.rate=1000000", "--serve.burst=1000000")...)
	c.front.add(s)
	return s
}

// newWorker starts a pod of a worker, and waits until it is working.
func (c *cluster) newWorker(d deployment, path string) *process {
	c.t.Helper()
	p := start(c.t, path, c.env, d.args...)
	p.says(`"working"`)
	return p
}

// older builds a second executable from the same source, with other build flags.
func older(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "older")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./cmd/hongbao")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// crowd makes one grab for each of many users, until its context ends.
type crowd struct {
	url     string
	mu      sync.Mutex
	granted map[string]receipt
	took    []time.Duration
	again   map[string]int // number of repeated requests, by their reason
	failed  []error
}

func (c *crowd) run(ctx context.Context, callers int) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Second}}
			defer client.CloseIdleConnections()
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				c.grab(client, fmt.Sprintf("u%d-%d", i, n))
				<-pace.C
			}
		})
	}
	all.Wait()
}

// grab repeats one grab until it is answered, as docs/http.md describes for callers.
func (c *crowd) grab(client *http.Client, user string) {
	ctx, cancel := context.WithTimeout(context.Background(), timeToStart)
	defer cancel()
	begun := time.Now()
	for {
		status, text, err := call(ctx, client, request{"POST", c.url, user, `{"request_id": "r1"}`})
		var a answer
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal(text, &a)
		}
		c.mu.Lock()
		switch {
		case err == nil && a.Outcome == "granted":
			c.granted[user] = a.Receipts[0]
			c.took = append(c.took, time.Since(begun))
		case err != nil && ctx.Err() == nil:
			c.again["broken connection"]++
		case err == nil && status == http.StatusServiceUnavailable:
			c.again["503"]++
		default:
			c.failed = append(c.failed, fmt.Errorf("%s: status %d, outcome %q: %w", user, status, a.Outcome, err))
		}
		done := err == nil && status != http.StatusServiceUnavailable || ctx.Err() != nil
		c.mu.Unlock()
		if done {
			return
		}
	}
}

// All pods are replaced under load, with the chart's own arguments, probe and grace period. Each user gets exactly one
// packet, no grant is lost, and no delivery counts as a failed attempt.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	older, newer := older(t), program(t)
	c := newCluster(t)
	front := c.deployment("hongbao-serve")
	c.front = newBalancer(t, front.Spec.Template.Spec.Containers[0].ReadinessProbe)
	run(t, c.env, "campaign", "create", campaignFile(t, 200_000))
	run(t, c.env, "campaign", "load", "rain")
	var servers []*server
	for range *front.Spec.Replicas {
		servers = append(servers, c.newServer(front, older))
	}
	sinks := []deployment{c.deployment("hongbao-work-balance"), c.deployment("hongbao-work-kafka")}
	workers := map[string][]*process{}
	for _, d := range sinks {
		for range *d.Spec.Replicas {
			workers[d.Name] = append(workers[d.Name], c.newWorker(d, older))
		}
	}
	users := &crowd{url: "http://" + c.front.listener.Addr().String() + "/v1/campaigns/rain/grabs",
		granted: map[string]receipt{}, again: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { users.run(ctx, 8) })

	testkit.Eventually(t, timeToStart, func() bool { users.mu.Lock(); defer users.mu.Unlock(); return len(users.granted) > 100 }, "load")
	for _, s := range servers {
		c.newServer(front, newer)
		s.stop(front.grace)
		c.front.remove(s)
	}
	for _, d := range sinks {
		for _, w := range workers[d.Name] {
			c.newWorker(d, newer)
			w.stop(d.grace)
			c.noAttemptTaken()
		}
	}
	cancel()
	load.Wait()
	c.check(users)
}

// noAttemptTaken requires that each pending entry has been delivered only once.
func (c *cluster) noAttemptTaken() {
	c.t.Helper()
	for _, sink := range []string{"balance", "kafka"} {
		held, err := c.rdb.XPendingExt(c.t.Context(), &redis.XPendingExtArgs{Stream: firstShard(c.t, c.rdb).Events(), Group: sink,
			Start: "-", End: "+", Count: 10_000}).Result()
		require.NoError(c.t, err)
		for _, entry := range held {
			require.LessOrEqual(c.t, entry.RetryCount, int64(1), "%s: %+v", sink, entry)
		}
	}
}

// check requires that Redis, ledger and topic have each user's packet exactly once.
func (c *cluster) check(users *crowd) {
	t := c.t
	require.Empty(t, users.failed)
	slices.Sort(users.took)
	n := len(users.took)
	fmt.Printf("rolling update: %d grabs, p50 %v, p99 %v, slowest %v; sent again: %v\n", n, users.took[n/2],
		users.took[n*99/100], users.took[n-1], users.again)
	packets := map[int64]bool{}
	for _, r := range users.granted {
		packets[r.Packet] = true
	}
	require.Len(t, packets, len(users.granted), "two users got the same packet")
	var report struct {
		Verdict string
		Total   struct {
			Granted, Settled, Published, Lost int64
			Doubles                           int64 `json:"double_credits"`
		}
	}
	out := run(t, c.env, "audit", "--wait=60s", "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &report), out)
	require.Equal(t, "agrees", report.Verdict)
	granted := int64(len(users.granted))
	require.Equal(t, []int64{granted, granted, granted, 0, 0}, []int64{report.Total.Granted, report.Total.Settled,
		report.Total.Published, report.Total.Lost, report.Total.Doubles})
	var status struct {
		Sinks []struct {
			Sink    string
			Waiting int64
			Parked  int64 `json:"parked_entries"`
			Dead    int64 `json:"dead_letters"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(run(t, c.env, "status", "--json")), &status))
	require.Len(t, status.Sinks, 2)
	for _, s := range status.Sinks {
		require.Zero(t, s.Waiting+s.Parked+s.Dead, "%+v", s)
	}
}
