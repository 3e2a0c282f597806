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

// release is a build that was released.
type release struct {
	path   string // of the program
	schema int    // the version of its ledger's schema
}

// previous builds the release that previous.txt names, from its own source.
var previous = sync.OnceValues(func() (r release, err error) {
	text, err := os.ReadFile("previous.txt")
	if err != nil {
		return r, err
	}
	var commit string
	_, list, _ := strings.Cut(string(text), "\ncommit ")
	if _, err := fmt.Sscanf(list, "%s\nschema %d\n", &commit, &r.schema); err != nil {
		return r, fmt.Errorf("previous.txt: want the lines \"commit HASH\" and \"schema VERSION\": %w", err)
	}
	find := exec.Command("git", "-C", "../..", "cat-file", "-e", commit+"^{commit}")
	if out, err := find.CombinedOutput(); err != nil {
		return r, fmt.Errorf("the repository lacks commit %s of deploy/test/previous.txt: run `git fetch --unshallow`: %w: "+
			"%s", commit, err, out)
	}
	dir, err := testkit.Folder("previous")
	if err != nil {
		return r, err
	}
	r.path = filepath.Join(dir, "hongbao-previous")
	script := `git -C ../.. archive "$0" | tar -x -C "$1" && cd "$1" && go build -trimpath -o "$2" ./cmd/hongbao`
	cmd := exec.Command("bash", "-o", "pipefail", "-c", script, commit, dir, r.path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return r, fmt.Errorf("build commit %s of deploy/test/previous.txt: %w: %s", commit, err, out)
	}
	if n := schemaOf(dir); n != r.schema {
		return r, fmt.Errorf("previous.txt has schema %d, but that of its commit is %d: correct the number", r.schema, n)
	}
	return r, nil
})

// schemaOf returns the version of the ledger's schema in a source tree: the number of its last migration.
func schemaOf(tree string) (version int) {
	// The commit of previous.txt may have them in the second folder.
	for _, folder := range []string{"internal/ledger/db/postgres/migrations", "internal/ledger/migrations/postgres"} {
		list, err := filepath.Glob(filepath.Join(tree, folder, "*.sql"))
		if err != nil {
			panic(err) // impossible: the pattern is correct
		}
		for _, path := range list {
			number, _, _ := strings.Cut(filepath.Base(path), "_")
			if n, err := strconv.Atoi(number); err == nil {
				version = max(version, n)
			}
		}
	}
	return version
}

// fleet is a deployment's processes of one build: a server, a control, and a worker for each sink.
type fleet struct {
	t    *testing.T
	name string
	path string // of the program
	key  string // the path of a file with an API key
	// previous: the build is the previous release, whose serve has the control listener.
	previous bool
	front    *server
	control  string             // the address
	alone    *process           // the control; nil in the previous release
	workers  map[string]*worker // by sink
}

type worker struct {
	*process
	ops string
}

// start starts the workers and then the server, in the order of docs/operations.md.
func (f *fleet) start(env []string, front *balancer) {
	f.t.Helper()
	f.workers = map[string]*worker{}
	for _, sink := range []string{"balance", "kafka"} {
		w := &worker{ops: testkit.FreeAddr(f.t)}
		w.process = start(f.t, f.path, env, "work", "--sink="+sink, "--work.ops_listen="+w.ops, "--log.format=json")
		f.workers[sink] = w
	}
	for _, w := range f.workers {
		w.says(`"working"`)
	}
	f.control = testkit.FreeAddr(f.t)
	args := []string{"--serve.drain_delay=3s", "--serve.rate=1000000", "--serve.burst=1000000"}
	if f.previous {
		args = append(args, "--serve.control_listen="+f.control)
	} else {
		f.alone = start(f.t, f.path, env, "control", "--control.listen="+f.control, "--control.ops_listen="+testkit.FreeAddr(f.t))
		f.alone.says("serving the administration")
	}
	f.front = serve(f.t, f.path, env, args...)
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
	before := f.counts()
	var now map[string]int64
	testkit.Eventually(f.t, timeToStart, func() bool {
		now = f.counts()
		for part, n := range now {
			if n < before[part]+20 {
				return false
			}
		}
		return true
	}, "%s: each process of %s works", phase, f.name)
	fmt.Printf("%s: %s has done %v, before %v\n", phase, f.name, now, before)
}

// end stops the fleet, and kills the processes with these names.
func (f *fleet) end(front *balancer, killed ...string) {
	f.t.Helper()
	all := map[string]*process{"serve": f.front.process}
	for sink, w := range f.workers {
		all[sink] = w.process
	}
	if f.alone != nil {
		all["control"] = f.alone
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
