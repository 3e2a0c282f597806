package main

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// press presses a button of the page of faults.
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

// tells waits for a sentence on the terminal, and gives the groups of the pattern.
func (d *devServer) tells(pattern string) (groups []string) {
	d.t.Helper()
	sentence := regexp.MustCompile(pattern)
	testkit.Eventually(d.t, time.Minute, func() bool {
		groups = sentence.FindStringSubmatch(d.Out.String())
		return groups != nil
	}, "nobody tells %s", pattern)
	return groups
}

func atoi(t *testing.T, figures string) int {
	t.Helper()
	n, err := strconv.Atoi(figures)
	require.NoError(t, err)
	return n
}

// Every fault of `hongbao dev` really fires, on real processes: figures say so, and the audit agrees afterwards.
func TestDevFaults(t *testing.T) {
	t.Parallel()
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "100")
	d.press("cut-kafka")
	d.tells(`Kafka is cut off: [1-9]\d* connections? closed`)
	d.tells(`Kafka is cut off for .*: [1-9]\d* grants wait, the oldest for .* for sink kafka, .*; [1-9]\d* connections? to Kafka refused`)
	d.press("kill-worker") // it holds what waits for Kafka
	killed := d.tells(`Worker (\d) is killed with SIGKILL \(process (\d+)\)`)
	held := d.tells(`Worker ` + killed[1] + ` held ([1-9]\d*) grants? in [1-9]\d* entr(?:y|ies) for sink kafka; its lease ends in [0-3]\.\d s`)
	d.press("mend-kafka")
	d.tells(`Kafka is back after .*: [1-9]\d* grants wait`)
	d.tells(`Everything that worker ` + killed[1] + ` held is done`)
	taken := 0 // by one worker or by more
	takes := regexp.MustCompile(`(?:Worker \d|Another worker) takes (\d+) grants? of worker ` + killed[1] + ` for sink kafka`)
	for _, groups := range takes.FindAllStringSubmatch(d.Out.String(), -1) {
		taken += atoi(t, groups[1])
	}
	require.Equal(t, held[1], strconv.Itoa(taken), "all that it held is taken")
	d.tells(`Sink kafka has caught up, .*: [1-9]\d* grants that waited are in the topic\. Dead letters: 0\.`)
	back := d.tells(`Worker ` + killed[1] + ` is back \(process (\d+)\)`)
	require.NotEqual(t, killed[2], back[1])
	d.tells(`(?s)` + strings.Repeat(`The audit agrees: of [1-9]\d* grants none is lost.*`, 2)) // of the kill, and of the cut
	d.press("lose-answers")
	lost := d.tells(`(\d+) answers were lost \((.*grab [1-9].*produce [1-9].*)\)\. `) // 22, but for a very slow machine
	sum := 0
	for _, n := range regexp.MustCompile(`\d+`).FindAllString(lost[2], -1) {
		sum += atoi(t, n)
	}
	require.Equal(t, lost[1], strconv.Itoa(sum), lost[2])
	d.tells(`(?s)` + strings.Repeat(`The audit agrees: of [1-9]\d* grants none is lost.*`, 3))
	require.NotContains(t, d.Out.String(), "differences")
	require.Contains(t, d.shell(d.printed()[5]), "Redis, ledger and topic: agrees")
	d.end(syscall.SIGTERM)
	nothingLeft(t, tmp, d.Cmd.Process.Pid)
}
