package test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// opening is a row in the third table of docs/reliability.md, which shows what it costs to open a shard again.
type opening struct {
	loss

	nothing bool // no process can be silent, so nothing is withheld
	reports bool // every process reports; only the age of the file leaves a doubt, so exactly the margin is withheld
}

// openingMargin is work.restore_margin of the rows.
const openingMargin = 2 * time.Second

// openings returns all rows of the table.
func openings() []opening {
	file := withReplicas(0)
	rows := []opening{
		{loss: loss{name: "Redis' last write was 1 s ago", fault: downFor(time.Second), quick: true}, nothing: true},
		{loss: loss{name: "60 s ago", fault: downFor(time.Minute)}, reports: true},
		{loss: loss{name: "10 min ago", fault: aged(10 * time.Minute)}, reports: true},
		{loss: loss{name: "4 h ago", fault: aged(4 * time.Hour)}, reports: true},
		{loss: loss{name: "never: the file is older than the first event", early: keepsFile, fault: startsFromFile}, reports: true},
		{loss: loss{name: "two quiet restarts from one file, and then a loss", early: quietRestarts, fault: downFor(time.Second)},
			nothing: true},
		{loss: loss{name: "Redis' clock was ahead by 1 min; a process that came after the correction is dead",
			fault: clockWasAhead(time.Minute), after: resumes}},
		{loss: loss{name: "the same by 8 h", fault: clockWasAhead(8 * time.Hour), after: resumes}},
		{loss: loss{name: "the same by 1 min, and the file is 60 s old and lacks the process's registration",
			fault: oldFileAfterTheClock, after: resumes}},
		{loss: loss{name: "the same, and the file is from before the correction, so it seems new", fault: fileOfTheFuture,
			after: resumes}},
		{loss: loss{name: "the sink kafka is paused, and the file is 12 s old", before: pauses("kafka"),
			fault: olderAppendOnlyFile, after: resumes}, reports: true},
		{loss: loss{name: "both sinks are paused, all processes that answered users are killed",
			before: pauses("balance", "kafka"), fault: killedWithFile, after: resumesWithNewCallers, killed: true}},
		{loss: loss{name: "a person accepts the loss while a process is cut off, and it comes back", aside: true,
			env: []string{"HONGBAO_WORK_RESTORE_MARGIN=0s"}, fault: cutOffProcess, after: comesBack}},
	}
	for i := range rows {
		if rows[i].empties = true; rows[i].redis == nil {
			rows[i].redis = file
		}
		rows[i].env = append([]string{"HONGBAO_PRODUCER_MAX_BACKLOG=100000",
			"HONGBAO_WORK_RESTORE_MARGIN=" + openingMargin.String()}, rows[i].env...)
	}
	return rows
}

// Redis comes back without its last writes, in many states. The opening costs little: no long script, no memory, no
// answer `busy`, and no more packets withheld than necessary. No two users see one packet. `make losses` runs all rows
// and writes the table.
func TestOpenings(t *testing.T) {
	if !*everyLoss {
		t.Parallel()
	}
	for i, row := range openings() {
		if *everyLoss || row.quick {
			t.Run(fmt.Sprintf("%02d %s", i+1, row.name), row.run)
		}
	}
}

// longestScript is the limit for a script after an opening. All clients of Redis wait meanwhile.
const longestScript = 20 * time.Millisecond

func (row *opening) run(t *testing.T) {
	l := row.happens(t, fast)
	c := l.costs()
	line := c.line(l)
	t.Log(line)
	if *update && *everyLoss {
		var keys []string
		for _, other := range openings() {
			keys = append(keys, "| "+other.name+" |")
		}
		writeLine(t, openingsTable, keys, "| "+row.name+" |", line)
	}
	require.Zero(t, l.paidTwice+l.copies+l.seqsTwice, "%s", line)
	if !row.killed {
		require.Zero(t, l.unreported, "lost without a report: %.500s", fmt.Sprint(l.lostOf))
	}
	require.Zero(t, c.shared, "packets that two users saw")
	require.Zero(t, c.busy, "answers busy after the freeze")
	if *everyLoss { // alone on its machine
		require.Less(t, c.script, longestScript)
	}
	switch {
	case row.nothing:
		require.Zero(t, l.withheld, "packets withheld")
	case row.reports:
		require.Equal(t, c.margin, l.withheld, "the margin is withheld")
	case !row.killed && !l.person:
		require.Equal(t, c.margin+l.holes, l.withheld, "the margin and a packet for each unknown event are withheld")
	case !l.person:
		require.LessOrEqual(t, int64(l.lost), l.withheld, "a packet is withheld for each one that was told and lost")
	}
}

// costs has what an opening costs.
type costs struct {
	shared int   // packets that two users saw
	busy   int   // answers busy after the freeze
	margin int64 // grants in the last openingMargin before the loss
	worker int64 // the most memory of a worker, MiB
	grown  int64 // bytes of Redis' memory for the shard's meta, lists of unknown seqs and done bits
	script time.Duration
}

func (l *losing) costs() (c costs) {
	l.t.Helper()
	owners := map[int64]string{}
	for _, crowd := range l.crowds() {
		for user, packets := range crowd.granted {
			for packet := range packets {
				if owner, has := owners[packet]; has && owner != user {
					c.shared++
				}
				owners[packet] = user
			}
		}
	}
	c.busy = l.busyAnswers() - l.busyBefore
	c.margin = l.grantedAtTheEnd()
	for _, w := range l.workers {
		c.worker = max(c.worker, l.memoryOf[w])
	}
	client := l.at.hand.servers[0].Client(l.t)
	slow, err := client.SlowLogGet(l.t.Context(), 1024).Result()
	require.NoError(l.t, err)
	for _, s := range slow {
		if strings.HasPrefix(strings.ToLower(s.Args[0]), "eval") {
			c.script = max(c.script, s.Duration)
		}
	}
	keys := l.store.Shard(0).Keys
	bits, err := client.Keys(l.t.Context(), strings.TrimSuffix(keys.Meta(), "meta")+"done:*").Result()
	require.NoError(l.t, err)
	for _, key := range append(bits, keys.Meta()) {
		c.grown += client.MemoryUsage(l.t.Context(), key).Val() // 0 for a missing key
	}
	return c
}

// busyAnswers counts the answers busy so far.
func (l *losing) busyAnswers() (n int) {
	for _, c := range l.crowds() {
		c.mu.Lock()
		n += c.busy
		c.mu.Unlock()
	}
	return n
}

// remembersMemory records how much memory each worker has had. It must run before the workers end.
func (l *losing) remembersMemory() {
	l.memoryOf = map[*testkit.Program]int64{}
	for _, w := range l.workers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Cmd.Process.Pid))
		if m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text); err == nil && m != nil {
			var kB int64
			_, _ = fmt.Sscan(string(m[1]), &kB)
			l.memoryOf[w] = kB / 1024
		}
	}
}

// grantedAtTheEnd counts the known grants in the last openingMargin before the loss, by the ledger, which has all of them
// in the end.
func (l *losing) grantedAtTheEnd() int64 {
	l.t.Helper()
	return l.ask(fmt.Sprintf(`WITH known AS (SELECT granted_at FROM grants WHERE seq <= %d)
		SELECT count(*) FROM known WHERE granted_at > (SELECT max(granted_at) FROM known) - %d`, l.lastLost,
		openingMargin.Milliseconds()))
}

// line returns the row in Markdown.
func (c *costs) line(l *losing) string {
	end := "opened by itself"
	if l.person {
		end = "a person decided"
	}
	return fmt.Sprintf("| %s | %d | %d | %.1f | %d | %d | %d | %d | %d | %d | %.1f | %s |", l.loss.name, l.missing, l.answered,
		l.frozen.Seconds(), c.busy, l.withheld, c.shared, l.lost, c.worker, c.grown/1024, c.script.Seconds()*1000, end)
}

// openingsTable matches the third table of docs/reliability.md.
var openingsTable = regexp.MustCompile(`(?m)^\| opening .*\n(\|.*\n)+`)

// docs/reliability.md has a line for each row.
func TestOpeningsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(reliabilityPage)
	require.NoError(t, err)
	lines := strings.Split(openingsTable.FindString(string(page)), "\n")
	require.Len(t, lines, 3+len(openings()))
	for i, row := range openings() {
		require.True(t, strings.HasPrefix(lines[2+i], "| "+row.name+" |"), lines[2+i])
	}
}
