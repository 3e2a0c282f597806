package cli

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // reads what the sink has

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// pointed is a deployment with a ledger and the sink points, to which only the program in path can deliver.
type pointed struct {
	*deployment
	path string
	db   *sql.DB // of the sink
}

func setupPoints(t *testing.T) *pointed {
	t.Helper()
	d := setup(t, options{uninitialized: true})
	d.set("DEPLOYMENT_SINKS", "balance,points", "OWN_POINTS_PROGRAM", "points of team CRM")
	d.ok("init")
	return newPoints(t, d)
}

// pointsProgram builds the program with the sink once, and returns its path.
var pointsProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../../.cache/test/points") // git ignores this folder
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", path, "../../examples/sink/points").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build points: %w: %s", err, out)
	}
	return path, nil
})

func newPoints(t *testing.T, d *deployment) *pointed {
	t.Helper()
	path, err := pointsProgram()
	require.NoError(t, err)
	p := &pointed{deployment: d, path: path}
	file := filepath.Join(t.TempDir(), "points.db")
	p.env = append(p.env, "POINTS_FILE="+file)
	p.db, err = sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.db.Close() })
	return p
}

// points starts the program that has the sink.
func (p *pointed) points(args ...string) *program {
	p.t.Helper()
	return launch(p.t, p.t.TempDir(), p.env, exec.CommandContext(context.WithoutCancel(p.t.Context()), p.path, args...))
}

// booked waits until the sink has booked n grants.
func (p *pointed) booked(n int) {
	p.t.Helper()
	testkit.Eventually(p.t, time.Minute, func() bool {
		var has int
		return p.db.QueryRow(`SELECT count(*) FROM booked`).Scan(&has) == nil && has == n
	}, "the sink has booked %d grants", n)
}

// conflict lets a user grab a packet that the sink has for somebody else, and waits until the grant is a dead letter.
func (p *pointed) conflict(user int) {
	p.t.Helper()
	require.Equal(p.t, 1, p.crowdOf("rain", user, 1))
	entries, err := p.store.Shard(0).Entries(p.t.Context(), "-", "+")
	require.NoError(p.t, err)
	_, err = p.db.Exec(`INSERT INTO booked VALUES ('rain', ?, 'somebody', 1)`, entries[len(entries)-1].Grants[0].Packet)
	require.NoError(p.t, err)
	own := p.points("work", "--sink=points")
	testkit.Eventually(p.t, time.Minute, func() bool { return p.status().Dead == 1 }, "the grant is a dead letter")
	own.stop(syscall.SIGTERM)
}

func (p *pointed) status() deliveries.SinkStatus {
	p.t.Helper()
	all := decided[deliveries.Status](p.t, p.run("status", "--json").out).Sinks
	i := slices.IndexFunc(all, func(s deliveries.SinkStatus) bool { return s.Sink == "points" })
	require.GreaterOrEqual(p.t, i, 0)
	return all[i]
}

// A sink of the user's own is a sink of the deployment: its own program delivers to it what the ledger has paid, and the
// program hongbao shows it, pauses it and lists its dead letters.
func TestOwnSink(t *testing.T) {
	t.Parallel()
	p := setupPoints(t)
	p.campaign("rain", 100, 10_000)
	require.Equal(t, 20, p.crowdOf("rain", 0, 20))
	require.EqualValues(t, "no worker has started yet; its program (points of team CRM) starts one", p.status().Why)
	require.Contains(t, p.run("status").err, "20 for sink points (workers: its program (points of team CRM))")
	w := p.start("work") // all sinks that it can open: balance
	w.says(`"sink":"balance"`)
	own := p.points("work", "--sink=points")
	p.booked(20)
	require.NotContains(t, w.Err.String(), `"working","sink":"points"`)
	w.says("left out: only its own program delivers to this sink")

	p.ok("sink", "pause", "points", "--by", "ann", "--why", "the points are counted")
	require.Equal(t, 10, p.crowdOf("rain", 20, 10))
	testkit.Eventually(t, time.Minute, func() bool { return p.status().State == deliveries.SinkPaused }, "the sink is paused")
	require.Regexp(t, `paid.*, not delivered to points yet: .*paused`, p.ok("why", "rain", "u000025"))
	p.ok("sink", "resume", "points", "--by", "ann", "--why", "they are counted")
	p.booked(30)
	own.stop(syscall.SIGTERM)
	require.Contains(t, p.points("config", "check", "--connect").wait(time.Minute).out, "redis, ledger and sink points: as they must be\n")
	p.env = append(p.env, "POINTS_FILE=")
	r := p.points("config", "check", "--connect").wait(time.Minute)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "open sink points: POINTS_FILE is not set")

	report := p.audit(0)
	require.Empty(t, report.Differences)
	require.Contains(t, report.LeftOut, "sink points: what its receiver has can't be read back; `hongbao status` says what waits for it")
	require.Contains(t, p.show("rain").Redis.Sinks, model.Finished{Sink: "points", Done: 30})
	w.stop(syscall.SIGTERM)
}

// Hongbao lists a dead letter of a sink of the user's own. Only the sink's program can requeue it, or replay to the sink.
func TestDeadLetterOfAnOwnSink(t *testing.T) {
	t.Parallel()
	p := setupPoints(t)
	p.campaign("rain", 10, 1_000)
	w, own := p.start("work"), p.points("work", "--sink=points")
	require.Equal(t, 1, p.crowdOf("rain", 0, 1))
	p.booked(1)
	own.stop(syscall.SIGTERM)
	p.conflict(1)
	require.Contains(t, p.ok("dead", "list"), "was booked for another user")
	decision := []string{"dead", "requeue", "--sink", "points", "--expect", "1", "--by", "ann", "--why", "the row was wrong"}
	const other = "sink points is delivered by points of team CRM, and this program can't open it: give the command to that program"
	p.refused(1, decision, other)
	p.refused(1, []string{"replay", "again", "--to", "points"}, other)
	_, err := p.db.Exec(`DELETE FROM booked WHERE user_id = 'somebody'`)
	require.NoError(t, err)
	r := p.points(decision...).wait(time.Minute)
	require.Zero(t, r.code, r.out+r.err)
	p.booked(2)
	require.Zero(t, p.status().Dead)
	r = p.points("replay", "again", "--to", "points").wait(time.Minute)
	require.Zero(t, r.code, r.out+r.err)
	p.booked(2)

	p.conflict(2)
	p.ok("dead", "drop", "--sink", "points", "--expect", "1", "--by", "ann", "--why", "somebody has it")
	require.Zero(t, p.status().Dead)
	w.stop(syscall.SIGTERM)
}

// The command dev of a program with a sink of the user's own delivers to it.
func TestDevWithAnOwnSink(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	p := newPoints(t, &deployment{t: t, env: []string{"TMPDIR=" + tmp, "PATH=" + os.Getenv("PATH")}})
	d := startDevOf(t, p.path, p.env, "--crowd", "40")
	testkit.Eventually(t, time.Minute, func() bool {
		var has int
		return p.db.QueryRow(`SELECT count(*) FROM booked`).Scan(&has) == nil && has > 20
	}, "the sink books grants of the crowd")
	require.Contains(t, runProgram(t, nil, "status", "--config", d.Config).out, "points")
	d.end(syscall.SIGTERM)
	nothingLeft(t, tmp, d.Cmd.Process.Pid)
}

// Without its program no worker can open a sink of the user's own.
func TestOwnSinkWithoutItsProgram(t *testing.T) {
	t.Parallel()
	d := setup(t, options{uninitialized: true})
	d.set("DEPLOYMENT_SINKS", "balance,points", "OWN_POINTS_PROGRAM", "points of team CRM")
	d.ok("init")
	d.refused(1, []string{"work", "--sink", "points"}, "sink points is delivered by points of team CRM, and this program can't open it")
	d.set("DEPLOYMENT_SINKS", "points")
	d.refused(2, []string{"work"}, "this program can open none of them")
}
