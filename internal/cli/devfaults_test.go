package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// press presses a button on the page of faults.
func (d *devServer) press(fault string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.Console+"/faults/"+fault, nil)
	require.NoError(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.Key)
	res, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(d.t, err)
	require.NoError(d.t, res.Body.Close())
	require.Equal(d.t, http.StatusSeeOther, res.StatusCode, fault)
}

// output returns the output of the terminal since the mark.
func (d *devServer) output() string { return d.Out.String()[d.mark:] }

// waitForOutput waits until the output matches the pattern, and returns the groups of the match.
func (d *devServer) waitForOutput(pattern string) (groups []string) {
	d.t.Helper()
	sentence := regexp.MustCompile(pattern)
	testkit.EventuallyOK(d.t, time.Minute, func() error {
		if groups = sentence.FindStringSubmatch(d.output()); groups == nil {
			return fmt.Errorf("the output does not match:\n%s", d.output())
		}
		return nil
	}, "%s", pattern)
	return groups
}

// waits returns the number of grants that wait for a sink, as `hongbao status` reports it.
func (d *devServer) waits(sink string) int64 {
	d.t.Helper()
	r := runProgram(d.t, []string{"HONGBAO_CONFIG=" + d.Config}, "status", "--json")
	require.Contains(d.t, []int{exitDone, exitFound}, r.code, r.err) // a sink may be down
	var s deliveries.Status
	require.NoError(d.t, json.Unmarshal([]byte(r.out), &s))
	for i := range s.Sinks {
		if s.Sinks[i].Sink == sink {
			return s.Sinks[i].Waiting
		}
	}
	d.t.Fatalf("no sink %s in %s", sink, r.out)
	return 0
}

// Each button of `hongbao dev` causes its fault in real processes. Afterwards the audit agrees.
func TestDevFaults(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "100")
	d.shell(d.printed()[0])
	require.Contains(t, d.shell(d.printed()[5]), "agrees", "the workers have connected to Kafka")
	require.Contains(t, d.Out.String(), "Keys need a terminal")
	guide, err := os.ReadFile("../../docs/dev.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^    (curl .+/faults/cut-kafka")$`).FindStringSubmatch(string(guide))
	require.NotNil(t, line)
	d.shell(fmt.Sprintf("KEY=%s CONSOLE=%s; %s", d.Key, d.Console, line[1]))
	d.waitForOutput(`Kafka is cut off: [1-9]\d* connections closed`)
	testkit.Eventually(t, time.Minute, func() bool { return d.waits("kafka") > 100 && d.waits("balance") < 100 },
		"grants are paid while they wait for Kafka")
	d.press("kill-worker")
	killed := d.waitForOutput(`Worker (\d) \(process (\d+)\) is killed with SIGKILL\. It held \d+ entries`)
	pid, err := strconv.Atoi(killed[2])
	require.NoError(t, err)
	testkit.Eventually(t, time.Minute, func() bool { return syscall.Kill(pid, 0) != nil }, "the process is gone")
	d.press("restore-kafka")
	d.waitForOutput(`Kafka is back after [1-9]\d*\.\d s`)
	testkit.Eventually(t, time.Minute, func() bool { return d.waits("kafka") < 100 }, "the waiting grants are published")
	d.press("cut-redis")
	d.waitForOutput(`Redis is cut off: [1-9]\d* connections closed`)
	d.waitForOutput(`The crowd can't go on`)
	status, page := (&visitor{t, d.Console, d.Key}).ask(http.MethodGet, "/faults")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "Restore Redis")
	d.press("restore-redis")
	d.waitForOutput(`The crowd gets on again`)
	d.press("reject-grant")
	d.waitForOutput(`The payment of event 0-\d+, user guest-\d+, is rejected: it is a dead letter`)
	env := []string{"HONGBAO_CONFIG=" + d.Config}
	list := decided[listed](t, runProgram(t, env, "dead", "list", "--json").out)
	require.NotEmpty(t, list.Letters)
	for i := range list.Letters {
		r := runProgram(t, env, "dead", "requeue", list.Letters[i].ID, "--by", "ann", "--why", "as the page says")
		require.Zero(t, r.code, "%s%s", r.out, r.err)
	}
	d.press("lose-answers")
	d.waitForOutput(`The next 20 answers of Redis' scripts and the next 2 of Kafka are lost`)
	testkit.Eventually(t, time.Minute, func() bool {
		return strings.Contains(d.shell(d.printed()[5]), "Redis, ledger and topic: agrees")
	}, "the audit agrees")
	d.end(syscall.SIGTERM)
	nothingLeft(t, tmp, d.Cmd.Process.Pid)
}

// After Redis was emptied, `hongbao recover` says what is lost. Once a person has accepted that, the crowd grabs in a new
// campaign.
func TestDevEmptyRedis(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "20")
	d.waitForOutput(`20 users a second grab in campaign crowd: `)
	env := []string{"HONGBAO_CONFIG=" + d.Config}
	testkit.Eventually(t, time.Minute, func() bool { return strings.Contains(runProgram(t, env, "tail", "-n", "1").out, "guest-") }, "a win")
	d.press("empty-redis")
	d.waitForOutput("Redis is empty. .* Next: `hongbao recover`")
	var accept []string
	testkit.EventuallyOK(t, time.Minute, func() error {
		r := runProgram(t, env, "recover")
		if accept = regexp.MustCompile(`hongbao (recover --accept-loss --shard 0 --expect [0-9a-f]+)`).FindStringSubmatch(r.out); accept == nil {
			return fmt.Errorf("exit code %d\n%s%s", r.code, r.out, r.err)
		}
		return nil
	}, "recover shows the loss")
	r := runProgram(t, env, append(strings.Fields(accept[1]), "--by", "ann", "--why", "dev has emptied Redis")...)
	require.Contains(t, r.out, "shard 0 is opened", r.err)
	r = runProgram(t, env, "campaign", "refund-lost", "crowd")
	require.Contains(t, r.out, "would be refunded", "what recover names next: %s", r.err)
	d.Signal(syscall.SIGTERM)
	r = d.wait(30 * time.Second)
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	for line := range strings.Lines(r.err) { // whoever looked at the empty Redis has said so
		require.Contains(t, line, `"code":"redis_lost_data"`)
	}
	nothingLeft(t, tmp, d.Cmd.Process.Pid)
}

// When a campaign is sold out, the crowd continues in a new campaign.
func TestDevCrowdGoesOn(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "10000")
	d.waitForOutput(`10000 users a second grab in campaign crowd: 10000 packets, 1,000\.00 CNY`)
	d.waitForOutput(`10000 users a second grab in campaign crowd-2: `)
	require.NotContains(t, d.output(), "can't go on")
	d.end(syscall.SIGTERM)
	nothingLeft(t, tmp, d.Cmd.Process.Pid)
}
