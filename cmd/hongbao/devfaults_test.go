package main

import (
	"fmt"
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

// told is what the terminal has since the mark.
func (d *devServer) told() string { return d.Out.String()[d.mark:] }

// tells waits for a sentence on the terminal, and gives the groups of the pattern.
func (d *devServer) tells(pattern string) (groups []string) {
	d.t.Helper()
	sentence := regexp.MustCompile(pattern)
	testkit.EventuallyOK(d.t, time.Minute, func() error {
		if groups = sentence.FindStringSubmatch(d.told()); groups == nil {
			return fmt.Errorf("nobody tells it; what is told:\n%s", d.told())
		}
		return nil
	}, "%s", pattern)
	return groups
}

// killsWithoutKafka cuts Kafka off, kills the worker that holds most of what waits for it, and gives the two sentences.
// Workers read nothing meanwhile, so one may hold nothing: then it begins again.
func (d *devServer) killsWithoutKafka() (killed, held []string) {
	d.t.Helper()
	for range 5 {
		d.mark = len(d.Out.String())
		d.press("cut-kafka")
		d.tells(`Kafka is cut off: [1-9]\d* connections? closed`)
		d.tells(`Kafka is cut off for .*: [1-9]\d* grants wait, the oldest for .* for sink kafka, .*; [1-9]\d* connections? to Kafka refused`)
		d.press("kill-worker")
		killed = d.tells(`Worker (\d) is killed with SIGKILL \(process (\d+)\)`)
		held = d.tells(`Worker \d held nothing|Everything that worker \d held is done|` +
			`Worker \d held ([1-9]\d*) grants? in [1-9]\d* entr(?:y|ies) for sink kafka; its lease ends in [0-3]\.\d s`)
		d.press("mend-kafka")
		if held[1] != "" {
			return killed, held
		}
		d.tells(`Sink kafka has caught up`)
		d.tells(`Worker ` + killed[1] + ` is back`)
	}
	d.t.Fatal("no worker that was killed held anything for Kafka")
	return nil, nil
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
	d.shell(d.printed()[0])
	require.Contains(t, d.shell(d.printed()[5]), "agrees", "the workers have connected to Kafka")
	killed, held := d.killsWithoutKafka()
	d.tells(`Kafka is back after .*: [1-9]\d* grants wait`)
	d.tells(`Everything that worker ` + killed[1] + ` held is done`)
	taken := 0 // by one worker or by more
	takes := regexp.MustCompile(`(?:Worker \d|Another worker) takes (\d+) grants? of worker ` + killed[1] + ` for sink kafka`)
	for _, groups := range takes.FindAllStringSubmatch(d.told(), -1) {
		taken += atoi(t, groups[1])
	}
	require.Equal(t, held[1], strconv.Itoa(taken), "all that it held is taken")
	d.tells(`Sink kafka has caught up, .*: [1-9]\d* grants that waited are in the topic\. Dead letters: 0\.`)
	back := d.tells(`Worker ` + killed[1] + ` is back \(process (\d+)\)`)
	require.NotEqual(t, killed[2], back[1])
	d.tells(`(?s)` + strings.Repeat(`The audit agrees: of [1-9]\d* grants none is lost.*`, 2)) // of the kill, and of the cut
	d.press("lose-answers")
	lost := d.tells(`(\d+) answers were lost \((.*produce [1-9].*)\)\. `) // 22, but for a very slow machine
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
