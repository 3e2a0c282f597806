package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// lossTime is a row in the second table of docs/reliability.md, which shows how soon shards open after a promotion.
type lossTime struct {
	name   string
	mode   string // value of redis.mode
	shards int
	limit  time.Duration // 0: no promise
	lag    time.Duration // of the replicas
	quick  bool          // part of make test
}

func lossTimes() []lossTime {
	return []lossTime{
		{name: "nothing is lost: a replica takes over in good order, by Redis Cluster", mode: configs.Cluster, shards: 1,
			limit: 2 * time.Second, quick: true},
		{name: "nothing is lost: the primary dies, Sentinel notices after 3 s", mode: configs.Sentinel, shards: 1},
		{name: "grants are restored: the primary dies, Sentinel promotes a replica that lags by 0.3 s", mode: configs.Sentinel,
			shards: 1, limit: 10 * time.Second, lag: 300 * time.Millisecond},
		{name: "the same with sixteen shards", mode: configs.Sentinel, shards: 16, limit: 15 * time.Second,
			lag: 300 * time.Millisecond},
	}
}

const (
	timedRuns      = 20
	timedRate      = 2000 // grabs a second, on all shards
	timedPackets   = 900_000
	timedProcesses = 4
)

// Users grab 2,000 times per second, and a replica is promoted. The shards open soon. With -losses each row has 20
// failovers and a time limit. -update writes the table.
func TestLossTimes(t *testing.T) {
	if !*everyLoss {
		t.Parallel()
	}
	for i, row := range lossTimes() {
		if *everyLoss || row.quick {
			t.Run(fmt.Sprintf("%d %s", i+1, row.name), row.run)
		}
	}
}

// timing is a deployment whose primary is replaced many times.
type timing struct {
	*losing

	row     *lossTime
	servers []*testkit.RedisServer // servers[0] is the current primary
	crowds  []*callers
}

func (row *lossTime) run(t *testing.T) {
	w := row.start(t)
	runs := 2
	if *everyLoss {
		runs = timedRuns
	}
	var took []time.Duration
	for range runs {
		w.pourTimed("the rain")
		took = append(took, w.promote())
	}
	w.halt()
	for _, c := range w.crowds {
		c.right(t)
	}
	w.allAgree()
	steps, restored := w.steps()
	require.GreaterOrEqual(t, len(steps), runs*row.shards, "the log has each opening")
	if row.lag > 0 {
		require.GreaterOrEqual(t, restored, runs, "each failover lost grants")
	} else {
		require.Zero(t, restored)
	}
	line := row.line(took, steps)
	t.Log(line)
	if *update {
		row.write(t, line)
	}
	if *everyLoss && row.limit > 0 {
		require.LessOrEqual(t, slices.Max(took), row.limit)
	}
}

func (row *lossTime) start(t *testing.T) *timing {
	t.Helper()
	at := atRedis(t, row.mode, "")
	pg := newLedgerServer(t)
	name, err := pg.CreateDatabase(t.Context())
	require.NoError(t, err)
	topic := testkit.Kafka(t).Topic(t, row.shards, map[string]string{"retention.ms": "-1",
		"unclean.leader.election.enable": "false"})
	w := &timing{row: row, losing: &losing{site: newSite(t, at, "HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN="+pg.DSN(name),
		fmt.Sprintf("HONGBAO_DEPLOYMENT_SHARDS=%d", row.shards), "HONGBAO_KAFKA_TOPIC="+topic,
		fmt.Sprintf("HONGBAO_KAFKA_PARTITIONS=%d", row.shards))}}
	w.ok("init")
	if at.cluster != nil {
		i := slices.Index(at.cluster.Masters[:], w.primaryOf(0))
		w.servers = []*testkit.RedisServer{at.cluster.Masters[i], at.cluster.Replicas[i]}
	} else {
		w.servers = append([]*testkit.RedisServer{at.sentinels.Primary}, at.sentinels.Replicas[:]...)
		for _, s := range at.sentinels.Sentinels { // Sentinel starts the next failover only after twice this time
			s.Order(t, "SENTINEL SET "+testkit.SentinelName+" failover-timeout 3000")
		}
	}
	for range 2 {
		w.hire()
	}
	w.rain()
	return w
}

// rain starts four processes. Their users grab on every shard.
func (w *timing) rain() {
	raining, halt := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	w.halt = func() {
		halt()
		wg.Wait()
	}
	w.t.Cleanup(w.halt)
	var processes []killed
	for range timedProcesses {
		processes = append(processes, w.goneProducer())
	}
	n := max(w.row.shards, timedProcesses)
	for i := range n {
		shard := i % w.row.shards
		id := w.on(shard, "rain")
		if i < w.row.shards {
			w.create(id, timedPackets/w.row.shards, fast, oneEach)
		}
		c := &callers{people: w.people(processes[i%timedProcesses], id), first: (i + 1) * 10_000_000}
		w.crowds = append(w.crowds, c)
		wg.Go(func() { c.pour(raining, timedRate/n) })
	}
}

// pourTimed waits until all users together got more packets.
func (w *timing) pourTimed(what string) {
	w.t.Helper()
	all := func() (sum int) {
		for _, c := range w.crowds {
			n, _ := c.count()
			sum += n
		}
		return sum
	}
	began := all()
	testkit.Eventually(w.t, startTime, func() bool { return all() > began+2*timedRate }, "%s", what)
}

// promote promotes another server, and returns the time from then until all shards are open.
func (w *timing) promote() time.Duration {
	w.t.Helper()
	t := w.t
	primary := w.servers[0]
	was := w.epochsOn(primary)
	if w.at.cluster != nil {
		w.at.cluster.HandOver(t, w.servers[1])
		w.since = time.Now()
		slices.Reverse(w.servers)
		return w.opened(was)
	}
	if w.row.lag > 0 {
		for _, s := range w.servers[1:] {
			s.Order(t, "REPLICAOF 127.0.0.1 1") // no server listens there
		}
		select {
		case <-time.After(w.row.lag):
		case <-t.Context().Done():
		}
		require.NoError(t, primary.Kill())
	} else {
		killReplicated(t, primary, w.servers[1:]...)
	}
	promoted := w.awaitMaster(w.servers[1:]...)
	i := slices.Index(w.servers, promoted)
	w.servers[0], w.servers[i] = w.servers[i], w.servers[0]
	took := w.opened(was)
	require.NoError(t, primary.Restart())
	follow(t, primary, promoted)
	_, port, _ := strings.Cut(promoted.Addr, ":")
	for _, s := range w.servers[1:] {
		s.Says(t, "INFO replication", "master_port:"+port+"\r", "master_link_status:up")
	}
	for _, s := range w.at.sentinels.Sentinels {
		s.Says(t, "INFO sentinel", "status=ok,address="+promoted.Addr)
	}
	return took
}

// epochsOn returns the epoch of each shard on a server.
func (w *timing) epochsOn(server *testkit.RedisServer) (epochs []int64) {
	for i := range w.row.shards {
		epochs = append(epochs, w.metaOn(server, i, "epoch"))
	}
	return epochs
}

// opened waits until all shards are open in an epoch later than in was, and returns the time since the promotion.
func (w *timing) opened(was []int64) time.Duration {
	w.t.Helper()
	client := w.servers[0].Client(w.t)
	defer client.Close()
	testkit.EventuallyOK(w.t, startTime, func() error {
		for i, epoch := range was {
			v, err := client.HMGet(w.t.Context(), w.store.Shard(i).Keys.Meta(), "frozen", "epoch").Result()
			if err != nil {
				return err
			}
			if v[0] != nil || v[1] == nil || v[1] == fmt.Sprint(epoch) {
				return fmt.Errorf("shard %d: %v", i, v)
			}
		}
		return nil
	}, "the shards open automatically")
	return time.Since(w.since)
}

// steps reads the durations of the steps of each opening from the workers' logs. It also returns how many openings
// restored grants.
func (w *timing) steps() (steps []model.OpeningSteps, restored int) {
	w.t.Helper()
	for _, p := range w.workers {
		for text := range strings.Lines(p.Err.String()) {
			var line struct {
				Message string             `json:"message"`
				Code    string             `json:"code"`
				All     bool               `json:"every process has reported"`
				Steps   model.OpeningSteps `json:"steps"`
			}
			if json.Unmarshal([]byte(text), &line) != nil || !strings.HasPrefix(line.Message, "a frozen shard is open again") {
				continue
			}
			require.True(w.t, line.All, text)
			steps = append(steps, line.Steps)
			if line.Code == "redis_restored" {
				restored++
			}
		}
	}
	return steps, restored
}

// line returns the row in Markdown: the times until the shards are open, and the median and maximum of each step.
func (row *lossTime) line(took []time.Duration, steps []model.OpeningSteps) string {
	slices.Sort(took)
	median := func(ms func(*model.OpeningSteps) int64) string {
		var all []int64
		for i := range steps {
			all = append(all, ms(&steps[i]))
		}
		slices.Sort(all)
		return fmt.Sprintf("%d to %d", all[len(all)/2], all[len(all)-1])
	}
	limit := "none"
	if row.limit > 0 {
		limit = fmt.Sprintf("%.0f", row.limit.Seconds())
	}
	return fmt.Sprintf("| %s | %d | %s | %.2f | %.2f | %s | %s | %s | %s | %s | %s | %s |", row.name, len(took), limit,
		took[len(took)/2].Seconds(), took[len(took)-1].Seconds(),
		median(func(s *model.OpeningSteps) int64 { return s.Ledger }),
		median(func(s *model.OpeningSteps) int64 { return s.Witnesses }),
		median(func(s *model.OpeningSteps) int64 { return s.Topic }),
		median(func(s *model.OpeningSteps) int64 { return s.Judge }),
		median(func(s *model.OpeningSteps) int64 { return s.PutBack }),
		median(func(s *model.OpeningSteps) int64 { return s.Marks }),
		median(func(s *model.OpeningSteps) int64 { return s.Open }))
}

// timesTable matches the second table of docs/reliability.md.
var timesTable = regexp.MustCompile(`(?m)^\| promotion .*\n(\|.*\n)+`)

// write replaces the row in the table of the page.
func (row *lossTime) write(t *testing.T, line string) {
	t.Helper()
	var keys []string
	for _, other := range lossTimes() {
		keys = append(keys, "| "+other.name+" |")
	}
	writeLine(t, timesTable, keys, "| "+row.name+" |", line)
}

// writeLine replaces the line of a table of the page that begins with key. keys are the beginnings of all lines, in their
// order.
func writeLine(t *testing.T, table *regexp.Regexp, keys []string, key, line string) {
	t.Helper()
	page, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	old := table.FindString(string(page))
	require.NotEmpty(t, old)
	lines := strings.Split(strings.TrimSuffix(old, "\n"), "\n")
	fresh := lines[:2:2]
	for _, other := range keys {
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, other) })
		switch {
		case other == key:
			fresh = append(fresh, line)
		case i >= 0:
			fresh = append(fresh, lines[i])
		}
	}
	require.NoError(t, os.WriteFile(reliabilityPage,
		[]byte(strings.Replace(string(page), old, strings.Join(fresh, "\n")+"\n", 1)), 0o644))
}

// docs/reliability.md has a line for each row.
func TestLossTimesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	lines := strings.Split(timesTable.FindString(string(page)), "\n")
	require.Len(t, lines, 3+len(lossTimes()))
	for i, row := range lossTimes() {
		require.True(t, strings.HasPrefix(lines[2+i], "| "+row.name+" |"), lines[2+i])
	}
}
