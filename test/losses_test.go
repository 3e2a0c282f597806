package test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// everyLoss makes TestLosses run each row: make losses.
var everyLoss = flag.Bool("losses", false, "run each row of TestLosses, and not only the quick one")

// loss is a row of docs/reliability.md: how Redis loses writes.
type loss struct {
	name    string
	classes []hongbao.Durability // none: fast
	redis   func(t *testing.T, class hongbao.Durability) *redisAt
	shards  int  // of the deployment; 0 for one
	wide    bool // the campaign is on all of them
	stops   bool // the row stops the ledger, Kafka or both
	// fault has Redis lose writes. It returns when a server without them answers.
	fault  func(l *losing)
	before func(l *losing)
	// after is what goes on once the shards are open. nil: the rain.
	after    func(l *losing)
	patience time.Duration // until a person comes; 0 for 25 s

	empties bool // no copy has what was lost
	killed  bool // a process that answered users ends
	two     bool // two servers answer at once
	quick   bool // part of make test
}

var (
	fast, replica, fsync = hongbao.DurabilityFast, hongbao.DurabilityReplica, hongbao.DurabilityFsync
	fastAndReplica       = []hongbao.Durability{fast, replica}
)

// losses are the rows.
func losses() []loss {
	return []loss{
		{name: "a replica that lags is promoted by Sentinel", classes: fastAndReplica, redis: bySentinel,
			fault: promotedBySentinel},
		{name: "a replica that lags is promoted by Redis Cluster", classes: fastAndReplica, redis: byCluster, shards: 3,
			fault: promotedByCluster},
		{name: "a replica that lags is promoted by hand", classes: fastAndReplica, redis: withReplicas(1),
			fault: promotedByHand, quick: true},
		{name: "the append-only file ends at its last fsync", classes: []hongbao.Durability{fast, fsync}, redis: withEverySec,
			fault: cutToTheLastFsync},
		{name: "Redis starts from an older append-only file", redis: withReplicas(0), fault: olderAppendOnlyFile,
			empties: true},
		{name: "Redis starts from an older RDB file", redis: withReplicas(0), fault: olderRDB, empties: true},
		{name: "FLUSHALL", redis: withReplicas(0), fault: flushed, empties: true},
		{name: "a primary that is cut off answers some clients for 4 s, while another one is promoted",
			redis: withReplicas(1), fault: twoPrimaries, two: true},
		{name: "the same, until the other one is open and 3 s more", redis: withReplicas(1), fault: cutOff, after: joinsLater,
			two: true},
		{name: "a primary is demoted and promoted again", redis: withReplicas(1), fault: demotedAndPromoted},
		{name: "one shard of four loses", redis: byCluster, shards: 4, fault: promotedByCluster},
		{name: "a campaign over eight shards, some of them lose", redis: byCluster, shards: 8, wide: true,
			fault: promotedByCluster},
		{name: "all processes that answered users are killed, too", redis: withReplicas(1), killed: true,
			fault: byHandWhile(killCallers), after: newCallers},
		{name: "a worker is stopped before, and goes on once the shard is open", redis: withReplicas(1),
			fault: byHandWhile(stopWorker), after: resumeWorker},
		{name: "two failovers within 5 s", redis: withReplicas(2), fault: twice(later)},
		{name: "a second loss while a worker restores the first", redis: withReplicas(2), fault: twice((*losing).mends)},
		{name: "the ledger is down until 8 s after it", redis: withReplicas(1), stops: true, fault: down(true, false)},
		{name: "Kafka is down until 8 s after it", redis: withReplicas(1), stops: true, fault: down(false, true)},
		{name: "the ledger and Kafka are down until 8 s after it", redis: withReplicas(1), stops: true,
			fault: down(true, true)},
		{name: "a top-up is lost", redis: withReplicas(1), fault: byHandWhile(topUp)},
		{name: "an early close is lost", redis: withReplicas(1), fault: byHandWhile(closeEarly), after: closeEarly},
		{name: "a refund is lost", redis: withReplicas(1), before: closeOther, fault: byHandWhile(refundOther)},
		{name: "a pause is lost", redis: withReplicas(1), fault: byHandWhile(pause), after: resume},
		{name: "the new primary is full until 8 s after it", redis: withReplicas(1), fault: full},
		{name: "the worker that restores is killed", redis: withReplicas(1), fault: killRecoverer, patience: 80 * time.Second},
	}
}

func withReplicas(n int) func(t *testing.T, _ hongbao.Durability) *redisAt {
	return func(t *testing.T, _ hongbao.Durability) *redisAt {
		return redisByHand(t, n, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}})
	}
}

func bySentinel(t *testing.T, _ hongbao.Durability) *redisAt { return atRedis(t, configs.Sentinel, "") }

func byCluster(t *testing.T, _ hongbao.Durability) *redisAt { return atRedis(t, configs.Cluster, "") }

// withEverySec is a Redis that can say what is on the disk.
func withEverySec(t *testing.T, _ hongbao.Durability) *redisAt {
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, programs[1].Path, "run scripts/setup.sh servers")
	return redisByHand(t, 0, testkit.RedisOptions{Binary: programs[1].Path,
		Args: map[string]string{"appendfsync": "everysec", "aof-load-truncated": "yes"}})
}

// Redis loses writes in many ways, under a rain. Users keep what they were told: each packet is paid once and announced once,
// and what is lost all the same is in a report. `make losses` runs all rows and writes the table of docs/reliability.md.
func TestLosses(t *testing.T) {
	if !*everyLoss {
		t.Parallel()
	}
	for i, row := range losses() {
		if !*everyLoss && !row.quick {
			continue
		}
		classes := row.classes
		if classes == nil || !*everyLoss {
			classes = []hongbao.Durability{fast}
		}
		for _, class := range classes {
			t.Run(fmt.Sprintf("%02d %s %s", i+1, class, row.name), func(t *testing.T) { row.run(t, class) })
		}
	}
}

func (row *loss) run(t *testing.T, class hongbao.Durability) {
	l := newLosing(t, row, class)
	if row.before != nil {
		row.before(l)
	}
	row.fault(l)
	l.opens()
	switch {
	case row.after != nil:
		row.after(l)
	case !l.person:
		l.pours("the rain goes on")
	}
	l.judge()
	t.Logf("%s", l.line())
	if *update {
		writeLoss(t, l)
	}
	require.Zero(t, l.paidTwice, "paid twice")
	require.Zero(t, l.copies, "copies in the topic")
	if !row.two {
		require.Zero(t, l.seqsTwice, "seqs of two grants")
		require.Zero(t, l.unreported, "lost, and in no report: %.500s", fmt.Sprint(l.lostOf))
	}
	if row.empties {
		require.LessOrEqual(t, int64(l.lost), l.holes, "each loss is named")
	}
	switch {
	case class == replica:
		require.Zero(t, l.lost+l.twice, "a replica has what users were told")
	case !row.two && !row.killed && !row.empties:
		require.Zero(t, l.lost, "the processes that told users live: %.500s", fmt.Sprint(l.lostOf))
	}
}

// line is the line of the table.
func (l *losing) line() string {
	end := "opened by itself"
	if l.person {
		end = "a person decided"
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %.1f | %s |", l.loss.name, l.class, l.missing, l.told,
		l.lost, l.twice, l.paidTwice, l.copies, l.seqsTwice, l.holes, l.frozen.Seconds(), end)
}

const reliabilityPage = "../docs/reliability.md"

// lossLines are the lines of the page's table: its head, and one of each row and class.
func lossLines(t *testing.T) (page, table string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	table = regexp.MustCompile(`(?m)^\| row .*\n(\|.*\n)+`).FindString(string(text))
	require.NotEmpty(t, table)
	return string(text), table, strings.Split(strings.TrimSuffix(table, "\n"), "\n")
}

// keyOf is the row and the class of a line.
func keyOf(line string) string {
	cells := strings.SplitN(line, "|", 4)
	return cells[1] + cells[2]
}

// writeLoss puts a line into the page.
func writeLoss(t *testing.T, l *losing) {
	t.Helper()
	page, table, lines := lossLines(t)
	is := map[string]string{keyOf(l.line()): l.line()}
	for _, line := range lines[2:] {
		if is[keyOf(line)] == "" {
			is[keyOf(line)] = line
		}
	}
	fresh := lines[:2:2]
	for _, row := range losses() {
		for _, class := range []hongbao.Durability{fast, replica, fsync} {
			if line := is[fmt.Sprintf(" %s  %s ", row.name, class)]; line != "" {
				fresh = append(fresh, line)
			}
		}
	}
	require.NoError(t, os.WriteFile(reliabilityPage,
		[]byte(strings.Replace(page, table, strings.Join(fresh, "\n")+"\n", 1)), 0o644))
}

// The page has a line of each row and class.
func TestLossesAreDocumented(t *testing.T) {
	t.Parallel()
	_, _, lines := lossLines(t)
	var has, want []string
	for _, line := range lines[2:] {
		has = append(has, keyOf(line))
	}
	for _, row := range losses() {
		if row.classes == nil {
			row.classes = []hongbao.Durability{fast}
		}
		for _, class := range row.classes {
			want = append(want, fmt.Sprintf(" %s  %s ", row.name, class))
		}
	}
	require.Equal(t, want, has)
}

// awaitMaster waits until a server is a primary, and notes when.
func (l *losing) awaitMaster(servers ...*testkit.RedisServer) (promoted *testkit.RedisServer) {
	l.t.Helper()
	clients := map[*testkit.RedisServer]*redis.Client{}
	for _, s := range servers {
		clients[s] = s.Client(l.t)
	}
	testkit.Eventually(l.t, startTime, func() bool {
		for s, client := range clients {
			if text, err := client.Info(l.t.Context(), "replication").Result(); err == nil && strings.Contains(text, "role:master") {
				promoted = s
				return true
			}
		}
		return false
	}, "a replica is promoted")
	l.since = time.Now()
	return promoted
}

func promotedBySentinel(l *losing) {
	set := l.at.sentinels
	for _, r := range set.Replicas {
		stall(l.t, set.Primary, r)
	}
	l.ahead(set.Primary)
	last := l.dies(set.Primary)
	for _, r := range set.Replicas {
		require.NoError(l.t, r.Cont())
	}
	l.lacks(last, l.awaitMaster(set.Replicas[:]...))
	set.AwaitPromotion(l.t)
}

func promotedByCluster(l *losing) {
	primary, other := l.at.cluster.Masters[l.node], l.at.cluster.Replicas[l.node]
	stall(l.t, primary, other)
	l.ahead(primary)
	last := l.dies(primary)
	require.NoError(l.t, other.Cont())
	l.lacks(last, l.awaitMaster(other))
	l.at.cluster.AwaitPromotion(l.t, l.node)
	for _, c := range l.near {
		began, _ := c.count()
		testkit.Eventually(l.t, startTime, func() bool { n, _ := c.count(); return n > began+20 }, "other shards go on")
	}
	require.NoError(l.t, primary.Restart()) // class replica needs one
}

func promotedByHand(l *losing) { byHandWhile(func(*losing) {})(l) }

// byHandWhile promotes a replica that lags by hand. More happens just before the primary dies.
func byHandWhile(more func(l *losing)) func(l *losing) {
	return func(l *losing) {
		h := l.at.hand
		h.cut(1)
		l.ahead(h.servers[0])
		more(l)
		last := l.dies(h.servers[0])
		l.lacks(last, h.promote(l.t, 1))
		if l.class == replica { // it needs one
			require.NoError(l.t, h.servers[0].Restart())
			follow(l.t, h.servers[0], h.servers[1])
		}
	}
}

// fsyncs writes marks to the append-only file, and gives the last one that was on the disk, until the test ends.
func fsyncs(l *losing, server *testkit.RedisServer) (written, onDisk *atomic.Int64) {
	written, onDisk = &atomic.Int64{}, &atomic.Int64{}
	client := server.Client(l.t, func(o *redis.Options) { o.PoolSize, o.ReadTimeout = 500, startTime })
	ctx := l.t.Context()
	go func() {
		for turn := time.Tick(10 * time.Millisecond); ctx.Err() == nil; <-turn {
			go func(n int64) {
				pipe := client.Pipeline()
				pipe.Set(ctx, fsyncMark, n, 0)
				on := pipe.Do(ctx, "WAITAOF", 1, 0, 0)
				if _, err := pipe.Exec(ctx); err != nil {
					return // the server is gone
				}
				if got, err := on.Slice(); err == nil && len(got) == 2 && got[0] == int64(1) {
					for was := onDisk.Load(); was < n && !onDisk.CompareAndSwap(was, n); was = onDisk.Load() {
					}
				}
			}(written.Add(1))
		}
	}()
	return written, onDisk
}

const fsyncMark = "fsync-mark"

// cutToTheLastFsync is a machine that crashes: of the append-only file it keeps what was on the disk.
func cutToTheLastFsync(l *losing) {
	server := l.at.hand.servers[0]
	written, onDisk := fsyncs(l, server)
	testkit.Eventually(l.t, startTime, func() bool { return onDisk.Load() > 100 }, "marks are on the disk")
	was := onDisk.Load()
	testkit.Eventually(l.t, startTime, func() bool { return onDisk.Load() > was }, "an fsync has just ended")
	if l.class == fast {
		l.idle.some(l.t.Context(), 20)
	}
	testkit.Eventually(l.t, startTime, func() bool { return written.Load() > onDisk.Load()+40 }, "the next one is to come")
	last := l.grantedOn(server)
	require.NoError(l.t, server.Stop())
	<-time.After(200 * time.Millisecond) // answers that it has sent arrive
	require.NoError(l.t, server.Kill())
	file, _ := increments(l.t, server.Dir())
	data, err := os.ReadFile(file)
	require.NoError(l.t, err)
	next := fmt.Sprint(onDisk.Load() + 1)
	at := bytes.Index(data, fmt.Appendf(nil, "%s\r\n$%d\r\n%s\r\n", fsyncMark, len(next), next))
	require.Positive(l.t, at, "a mark that was not on the disk")
	require.NoError(l.t, os.Truncate(file, int64(bytes.LastIndex(data[:at], []byte("*3\r\n")))))
	require.NoError(l.t, server.Restart())
	l.lacks(last, server)
}

// fileAge is how old a file is that Redis starts from.
const fileAge = 12 * time.Second

// olderAppendOnlyFile puts a copy in the place of the file.
func olderAppendOnlyFile(l *losing) {
	server, old := l.at.hand.servers[0], l.t.TempDir()
	file, _ := increments(l.t, server.Dir())
	require.NoError(l.t, os.CopyFS(old, os.DirFS(filepath.Dir(file))))
	<-time.After(fileAge)
	l.ahead(server)
	last := l.dies(server)
	l.replaces(server, old)
	l.lacks(last, server)
}

// replaces starts a server from another folder of append-only files.
func (l *losing) replaces(server *testkit.RedisServer, files string) {
	l.t.Helper()
	dir := filepath.Join(server.Dir(), "appendonlydir")
	require.NoError(l.t, os.RemoveAll(dir))
	require.NoError(l.t, os.CopyFS(dir, os.DirFS(files)))
	require.NoError(l.t, server.Restart())
}

// olderRDB starts Redis from an RDB file, the base of an empty append-only file.
func olderRDB(l *losing) {
	server, old := l.at.hand.servers[0], l.t.TempDir()
	server.Order(l.t, "SAVE")
	data, err := os.ReadFile(filepath.Join(server.Dir(), "dump.rdb"))
	require.NoError(l.t, err)
	for name, text := range map[string][]byte{"appendonly.aof.1.base.rdb": data, "appendonly.aof.1.incr.aof": nil,
		"appendonly.aof.manifest": []byte("file appendonly.aof.1.base.rdb seq 1 type b\n" +
			"file appendonly.aof.1.incr.aof seq 1 type i\n")} {
		require.NoError(l.t, os.WriteFile(filepath.Join(old, name), text, 0o600))
	}
	<-time.After(fileAge)
	l.ahead(server)
	last := l.dies(server)
	l.replaces(server, old)
	l.lacks(last, server)
}

func flushed(l *losing) {
	server := l.at.hand.servers[0]
	l.ahead(server)
	l.missing, l.since = l.grantedOn(server), time.Now()
	server.Order(l.t, "FLUSHALL")
}

// twoPrimaries: one process goes on with the old primary, which the others do not reach.
func twoPrimaries(l *losing) {
	cutOff(l)
	<-time.After(4 * time.Second)
	l.joins()
}

// cutOff leaves the first server to one process, and promotes another one.
func cutOff(l *losing) {
	h := l.at.hand
	h.cut(1)
	l.ahead(h.servers[0])
	l.cutAt = l.grantedOn(h.servers[0])
	l.lacks(l.cutAt, h.promote(l.t, 1))
}

// joins ends the old primary, which has granted more. Its process goes on with the new one.
func (l *losing) joins() {
	h := l.at.hand
	last := l.dies(h.servers[0])
	require.Greater(l.t, last, l.cutAt, "the fault fired: the old primary has granted more")
	l.side.Point(h.servers[1].Addr)
}

// demotedAndPromoted: the server that is promoted again has the run_id that the shard was opened for.
func demotedAndPromoted(l *losing) {
	h := l.at.hand
	h.cut(1)
	l.ahead(h.servers[0])
	last := l.grantedOn(h.servers[0])
	h.servers[1].Order(l.t, "REPLICAOF NO ONE")
	follow(l.t, h.servers[0], h.servers[1])
	h.servers[0].Order(l.t, "REPLICAOF NO ONE")
	l.lacks(last, h.servers[0])
}

func joinsLater(l *losing) {
	<-time.After(3 * time.Second)
	l.joins()
	if !l.person {
		l.pours("the rain goes on")
	}
}

func killCallers(l *losing) {
	for _, c := range append(l.busy[:len(l.busy):len(l.busy)], l.idle) {
		c.kill()
	}
}

// newCallers are users of a new process.
func newCallers(l *losing) {
	c := &callers{people: l.people(l.producer(), l.id), first: 9_000_000}
	l.busy = append(l.busy, c)
	c.some(l.t.Context(), lossRate)
	if n, _ := c.count(); !l.person {
		require.Equal(l.t, lossRate, n)
	}
}

// stopWorker stops a worker that settles and publishes, wherever it is.
func stopWorker(l *losing) { l.workers[0].Signal(syscall.SIGSTOP) }

func resumeWorker(l *losing) {
	l.workers[0].Signal(syscall.SIGCONT)
	if !l.person {
		l.pours("the rain goes on")
	}
}

// twice loses two times: the second replica lags more than the first, which dies after a while.
func twice(while func(l *losing, first *testkit.RedisServer)) func(l *losing) {
	return func(l *losing) {
		h := l.at.hand
		h.cut(2)
		l.ahead(h.servers[0])
		h.cut(1)
		l.ahead(h.servers[0])
		last := l.dies(h.servers[0])
		first := h.promote(l.t, 1)
		l.lacks(last, first)
		while(l, first)
		last = l.dies(first)
		l.lacks(last, h.promote(l.t, 2))
	}
}

func later(*losing, *testkit.RedisServer) { <-time.After(3500 * time.Millisecond) }

// outage is how long the ledger or Kafka are down after the loss.
const outage = 8 * time.Second

func down(ledger, kafka bool) func(l *losing) {
	return func(l *losing) {
		byHandWhile(func(l *losing) {
			if ledger {
				require.NoError(l.t, l.pg.Kill())
			}
			if kafka {
				require.NoError(l.t, l.kafka.Kill())
			}
		})(l)
		<-time.After(outage)
		require.False(l.t, ledger && l.allOpen(), "no worker can restore it yet")
		if ledger {
			require.NoError(l.t, l.pg.Restart())
		}
		if kafka {
			require.NoError(l.t, l.kafka.Restart())
		}
	}
}

func topUp(l *losing) {
	l.ok("campaign", "top-up", l.id, "--packets", "600", "--total", "120000", "--expect", fmt.Sprint(200*lossPackets),
		"--id", "more", "--by", "ann", "--why", "a test")
}

func closeEarly(l *losing) {
	if !l.person {
		l.ok("campaign", "close", l.id, "--early")
	}
}

// other is another campaign of the shard.
func (l *losing) other() string { return l.on(0, "other") }

func closeOther(l *losing) {
	l.create(l.other(), 10, l.class, oneEach)
	c := &callers{people: l.people(l.producer(), l.other()), first: 8_000_000}
	l.near = append(l.near, c)
	c.some(l.t.Context(), 5)
	l.ok("campaign", "close", l.other(), "--early")
}

func refundOther(l *losing) {
	_, text := l.run("campaign", "refund", l.other())
	amount := regexp.MustCompile(`--amount (\d+)`).FindStringSubmatch(text)
	require.NotNil(l.t, amount, text)
	l.says([]string{"campaign", "refund", l.other(), "--amount", amount[1], "--wait", "30s"}, "refunded")
}

// pause is known to the ledger before it is lost: a worker brings it there once a second.
func pause(l *losing) {
	l.ok("campaign", "pause", l.id, "--why", "a test")
	testkit.Eventually(l.t, startTime, func() bool {
		return l.ask("SELECT count(*) FROM control WHERE campaign = '"+l.id+"'") > 0
	}, "the ledger knows of the pause")
}

func resume(l *losing) {
	if !l.person {
		l.says([]string{"campaign", "show", l.id}, "paused")
		l.ok("campaign", "resume", l.id, "--why", "a test")
		l.pours("the rain goes on")
	}
}

// full has the new primary refuse whatever grows memory.
func full(l *losing) {
	to := l.at.hand.servers[1]
	byHandWhile(func(l *losing) {
		to.Order(l.t, "CONFIG SET maxmemory 1")
	})(l)
	require.ErrorContains(l.t, to.Client(l.t).Set(l.t.Context(), "x", "1", 0).Err(), "OOM", "the fault fired")
	<-time.After(outage)
	to.Order(l.t, "CONFIG SET maxmemory 0")
}

// killRecoverer kills all workers while one of them restores the shard. Another one begins.
func killRecoverer(l *losing) {
	promotedByHand(l)
	l.mends(l.at.hand.servers[1])
	for _, w := range l.workers {
		w.Kill()
	}
	require.False(l.t, l.allOpen(), "the fault fired: the shard is not open")
	l.hire()
}
