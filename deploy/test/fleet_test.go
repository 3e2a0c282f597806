package test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// previousBuild builds the release that previous.txt names, from its own source.
var previousBuild = sync.OnceValues(func() (path string, err error) {
	var commit string
	var schema int
	text, err := os.ReadFile("previous.txt")
	if err != nil {
		return "", err
	}
	_, list, _ := strings.Cut(string(text), "\ncommit ")
	if _, err := fmt.Sscanf(list, "%s\nschema %d\n", &commit, &schema); err != nil {
		return "", fmt.Errorf("previous.txt: want the lines \"commit HASH\" and \"schema VERSION\": %w", err)
	}
	if out, err := exec.Command("git", "-C", "../..", "cat-file", "-e", commit+"^{commit}").CombinedOutput(); err != nil {
		return "", fmt.Errorf("the repository lacks the commit of deploy/test/previous.txt: run `git fetch --unshallow`: %w: %s",
			err, out)
	}
	dir, err := testkit.Folder("previous")
	if err != nil {
		return "", err
	}
	script := `git -C ../.. archive "$0" | tar -x -C "$1" && cd "$1" && go build -trimpath -o hongbao-previous ./cmd/hongbao`
	cmd := exec.Command("bash", "-o", "pipefail", "-c", script, commit, dir)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", commit, err, out)
	}
	return filepath.Join(dir, "hongbao-previous"), nil
})

// fleet is a deployment's processes of one build: a server, and a worker for each sink.
type fleet struct {
	t       *testing.T
	name    string
	path    string // of the program
	key     string // the path of a file with an API key
	front   *server
	control string
	workers map[string]*worker // by sink
	was     map[string]int64   // the counts when the phase began
}

type worker struct {
	*process
	ops string
}

// start starts the workers and then the server, in the order of docs/operations.md.
func (f *fleet) start(env []string, front *balancer) {
	f.t.Helper()
	f.workers, f.was = map[string]*worker{}, map[string]int64{}
	for _, sink := range []string{"balance", "kafka"} {
		w := &worker{ops: testkit.FreeAddr(f.t)}
		w.process = start(f.t, f.path, env, "work", "--sink="+sink, "--work.ops_listen="+w.ops, "--log.format=json")
		f.workers[sink] = w
	}
	for _, w := range f.workers {
		w.says(`"working"`)
	}
	f.control = testkit.FreeAddr(f.t)
	f.front = serve(f.t, f.path, env, "--serve.control_listen="+f.control, "--serve.drain_delay=3s",
		"--serve.rate=1000000", "--serve.burst=1000000")
	front.add(f.front)
}

// counts returns how many grabs the fleet's server has granted, and how many grants its workers have delivered.
func (f *fleet) counts() map[string]int64 {
	out := map[string]int64{"serve": sum(f.t, f.front.ops, "hongbao_grabs_total", `outcome="granted"`)}
	for sink, w := range f.workers {
		out[sink] = sum(f.t, w.ops, "hongbao_worker_done_grants_total", "")
	}
	return out
}

// works waits until each process of the fleet has done its part of some more grants.
func (f *fleet) works(phase string) {
	f.t.Helper()
	var now map[string]int64
	testkit.Eventually(f.t, timeToStart, func() bool {
		now = f.counts()
		for part, n := range now {
			if n < f.was[part]+20 {
				return false
			}
		}
		return true
	}, "%s: each process of %s works", phase, f.name)
	fmt.Printf("%s: %s has done %v, before %v\n", phase, f.name, now, f.was)
	f.was = now
}

// end stops the fleet, and kills the processes with these names.
func (f *fleet) end(front *balancer, killed ...string) {
	f.t.Helper()
	all := map[string]*process{"serve": f.front.process}
	for sink, w := range f.workers {
		all[sink] = w.process
	}
	for _, name := range killed {
		all[name].Kill()
		delete(all, name)
	}
	for _, p := range all {
		p.stop(timeToStart)
	}
	front.remove(f.front)
}

// sum returns the sum of a metric's samples whose labels contain the text.
func sum(t *testing.T, ops, metric, label string) (n int64) {
	t.Helper()
	status, text, err := call(t.Context(), http.DefaultClient, request{method: "GET", url: "http://" + ops + "/metrics"})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	for line := range bytes.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), "} ")
		if labels, ok := strings.CutPrefix(name, metric+"{"); ok && strings.Contains(labels, label) {
			v, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			require.NoError(t, err, "%s", line)
			n += int64(v)
		}
	}
	return n
}
