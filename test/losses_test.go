package test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// everyLoss runs all rows of TestLosses; make losses sets it.
var everyLoss = flag.Bool("losses", false, "run each row of TestLosses, and not only the quick one")

// lossServer is the server of TestLosses and TestOpenings.
var lossServer = flag.String("server", "", `a server that scripts/setup.sh servers has fetched, "redis-8" or "valkey-9"; `+
	"empty for the redis-server in PATH")

// lossProgram returns the path of lossServer.
func lossProgram(t *testing.T) string {
	t.Helper()
	if *lossServer == "" {
		return ""
	}
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	for _, p := range programs {
		if strings.Contains(p.Path, "/"+*lossServer+"/") {
			return p.Path
		}
	}
	t.Fatalf("no server %q: run scripts/setup.sh servers", *lossServer)
	return ""
}

// loss is a row in the table of docs/reliability.md: a way in which Redis loses writes.
type loss struct {
	name    string
	classes []hongbao.Durability // nil means fast
	redis   func(t *testing.T, class hongbao.Durability) *redisAt
	shards  int      // shards of the deployment; 0 means 1
	wide    bool     // the campaign is spread over all shards
	env     []string // more settings
	stops   bool     // the row stops the ledger, Kafka or both
	// fault makes Redis lose writes. It returns when a server that lacks them answers.
	fault  func(l *losing)
	early  func(l *losing) // runs before the rain; may be nil
	before func(l *losing) // runs before fault; may be nil
	// after runs when the shards are open again. If it is nil, users just continue to grab.
	after    func(l *losing)
	patience time.Duration // how long a person waits before they act; 0 for 25 s

	empties bool // no copy of the lost data exists
	killed  bool // a process that answered users ends
	two     bool // two servers answer at once
	aside   bool // the first busy process reaches Redis through l.side
	quick   bool // part of make test
}

var (
	fast, replica, fsync = hongbao.DurabilityFast, hongbao.DurabilityReplica, hongbao.DurabilityFsync
	fastAndReplica       = []hongbao.Durability{fast, replica}
)

// losses returns all rows of the table.
func lossRows() []loss {
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
		{name: "two failovers within 5 s", redis: withReplicas(2), fault: twoLosses(later)},
		{name: "a second loss while a worker restores the first", redis: withReplicas(2), fault: twoLosses((*losing).restores)},
		{name: "the ledger is down until 8 s after it", redis: withReplicas(1), stops: true, fault: down(true, false)},
		{name: "Kafka is down until 8 s after it", redis: withReplicas(1), stops: true, fault: down(false, true)},
		{name: "the ledger and Kafka are down until 8 s after it", redis: withReplicas(1), stops: true,
			fault: down(true, true)},
		{name: "a top-up is lost", redis: withReplicas(1), fault: byHandWhile(topUp), after: dealtAgain},
		{name: "an early close is lost", redis: withReplicas(1), fault: byHandWhile(closeEarly), after: closeAgain},
		{name: "a refund is lost", redis: withReplicas(1), before: closeOther, fault: byHandWhile(refundOther)},
		{name: "a pause is lost", redis: withReplicas(1), fault: byHandWhile(pause), after: resume},
		{name: "the new primary is full until 8 s after it", redis: withReplicas(1), fault: full},
		{name: "the worker that restores is killed", redis: withReplicas(1), fault: killRecoverer, patience: 80 * time.Second},
	}
}

// Redis loses writes in many ways while users grab. Users keep what they were told, and each packet is paid and
// published once. If something is lost nevertheless, a report names it. `make losses` runs all rows and writes the
// table of docs/reliability.md.
func TestLosses(t *testing.T) {
	if !*everyLoss {
		t.Parallel()
	}
	for i, row := range lossRows() {
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
	l := row.happens(t, class)
	t.Logf("%s", l.line())
	if *update && *everyLoss {
		writeLoss(t, l)
	}
	l.require()
}

// happens lets Redis lose writes under a rain, and compares what users were told with all stores.
func (row *loss) happens(t *testing.T, class hongbao.Durability) *losing {
	t.Helper()
	l := newLosing(t, row, class)
	if row.before != nil {
		row.before(l)
	}
	row.fault(l)
	l.opens()
	l.busyBefore = l.busyAnswers()
	switch {
	case row.after != nil:
		row.after(l)
	case !l.person:
		l.pours("the rain continues")
	}
	l.judge()
	return l
}

// require demands what the page promises.
func (l *losing) require() {
	t, row := l.t, l.loss
	t.Helper()
	require.Zero(t, l.paidTwice, "paid twice")
	require.Zero(t, l.copies, "copies in the topic")
	if !row.two {
		require.Zero(t, l.seqsTwice, "seqs with two grants")
	}
	if !row.two && !row.killed {
		require.Zero(t, l.unreported, "lost without a report: %.500s", fmt.Sprint(l.lostOf))
	}
	if row.empties {
		require.LessOrEqual(t, int64(l.lost), l.holes, "a report names each loss")
	}
	switch {
	case l.class == replica:
		require.Zero(t, l.lost+l.twice, "a replica has every packet that an answer reported")
	case !row.two && !row.killed && !row.empties:
		require.Zero(t, l.lost, "lost, though the processes that answered are running: %.500s", fmt.Sprint(l.lostOf))
	}
}

// line returns the row of the table in Markdown.
func (l *losing) line() string {
	end := "opened by itself"
	if l.person {
		end = "a person decided"
	}
	if l.withheld > 0 {
		end += fmt.Sprintf(", %d packets withheld", l.withheld)
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %.1f | %s |", l.loss.name, l.class, l.missing, l.answered,
		l.lost, l.twice, l.paidTwice, l.copies, l.seqsTwice, l.holes, l.frozen.Seconds(), end)
}

const reliabilityPage = "../docs/reliability.md"

// lossLines returns the page, its table, and the lines of the table: a head, and one line for each row and class.
func lossLines(t *testing.T) (page, table string, lines []string) {
	t.Helper()
	text, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	table = regexp.MustCompile(`(?m)^\| row .*\n(\|.*\n)+`).FindString(string(text))
	require.NotEmpty(t, table)
	return string(text), table, strings.Split(strings.TrimSuffix(table, "\n"), "\n")
}

// keyOf returns the row and the class that a line of the table is about.
func keyOf(line string) string {
	cells := strings.SplitN(line, "|", 4)
	return cells[1] + cells[2]
}

// writeLoss writes a line into the table of the page.
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
	for _, row := range lossRows() {
		for _, class := range []hongbao.Durability{fast, replica, fsync} {
			if line := is[fmt.Sprintf(" %s  %s ", row.name, class)]; line != "" {
				fresh = append(fresh, line)
			}
		}
	}
	require.NoError(t, os.WriteFile(reliabilityPage,
		[]byte(strings.Replace(page, table, strings.Join(fresh, "\n")+"\n", 1)), 0o644))
}

// docs/reliability.md has a line for each row and class.
func TestLossesAreDocumented(t *testing.T) {
	t.Parallel()
	_, _, lines := lossLines(t)
	var has, want []string
	for _, line := range lines[2:] {
		has = append(has, keyOf(line))
	}
	for _, row := range lossRows() {
		if row.classes == nil {
			row.classes = []hongbao.Durability{fast}
		}
		for _, class := range row.classes {
			want = append(want, fmt.Sprintf(" %s  %s ", row.name, class))
		}
	}
	require.Equal(t, want, has)
}
