package simulation_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/simulation"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

var (
	seconds = flag.Int("seconds", 0, "TestSimulate: run histories for so long")
	seed    = flag.Uint64("seed", 0, "TestSimulate: the first seed; 0 for one by the clock")
	most    = flag.Int("histories", 0, "TestSimulate: run at most so many; 0 for no limit")
	stop    = flag.Bool("stop", false, "TestSimulate: stop at the first failure, without shrinking it")
	deeds   = flag.String("deeds", "", "TestSimulate: the kinds of deeds, comma-separated; by default all")
	replay  = flag.String("replay", "", "TestReplay: the file of a plan")
	runs    = flag.Int("runs", 5, "how often a replayed or shrunk plan runs; it fails if one run fails")
	keep    = flag.String("keep", "", "the folder for the plans and traces of failures; by default bin/simulation")
)

// bench runs histories one after another.
type bench struct {
	t     *testing.T
	dir   string
	dog   *simulation.Watchdog
	total simulation.Total
	spent time.Duration // virtual
	runs  atomic.Uint64 // the seed of the plan
}

func newBench(t *testing.T) *bench {
	dir, err := os.MkdirTemp("/dev/shm", "simulation-") //nolint:usetesting // in memory, because SQLite syncs
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	was := debug.SetGCPercent(-1) // a collection moves goroutines in the run queue
	limit := debug.SetMemoryLimit(1 << 30)
	b := &bench{t: t, dir: dir}
	b.dog = simulation.Watch(os.Stderr, func() { panic(fmt.Sprintf("virtual time stands in seed %d", b.runs.Load())) })
	t.Cleanup(func() {
		debug.SetGCPercent(was)
		debug.SetMemoryLimit(limit)
		b.dog.Stop()
	})
	return b
}

// run runs a plan in a bubble of its own.
func (b *bench) run(p simulation.Plan, trace io.Writer, plant *judge.Plant) (r *simulation.Result) {
	cryptotest.SetGlobalRandom(b.t, p.Seed)
	b.runs.Store(p.Seed)
	synctest.Test(b.t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go b.dog.Beat(ctx)
		r = simulation.Run(ctx, p, simulation.Options{Dir: b.dir, Trace: trace, Plant: plant})
	})
	runtime.GC() // empties the sync.Pools, whose timers and channels belong to the bubble
	runtime.GC()
	b.total.Add(r.Cover)
	b.spent += r.Virtual
	return r
}

// failed keeps a failing history: its plan with all faults, and a whole trace.
func (b *bench) failed(r *simulation.Result, trace []byte) {
	folder := *keep
	if folder == "" {
		folder = filepath.Join("..", "..", "bin", "simulation")
	}
	require.NoError(b.t, os.MkdirAll(folder, 0o700))
	name := filepath.Join(folder, fmt.Sprintf("seed-%d", r.Plan.Seed))
	require.NoError(b.t, r.Plan.Write(name+".json"))
	require.NoError(b.t, os.WriteFile(name+".trace", trace, 0o600))
	fmt.Printf("seed %d FAILED: %v\n", r.Plan.Seed, r.Err)
	for _, n := range r.Notes {
		fmt.Println("   ", n)
	}
	fmt.Printf("    its plan and faults: %s.json, its trace: %s.trace\n", name, name)
	b.t.Fail()
}

// shrink finds a smaller plan that fails, too.
func (b *bench) shrink(p simulation.Plan) {
	const tries = 60
	small := simulation.Shrink(p, tries, func(p simulation.Plan) bool {
		for range *runs {
			if b.run(p, nil, nil).Err != nil {
				return true
			}
		}
		return false
	})
	fmt.Printf("    shrunk from %d to %d faults of requests, from %d to %d deeds:\n", len(p.Faults), len(small.Faults),
		len(p.Deeds), len(small.Deeds))
	for _, f := range small.Faults {
		fmt.Printf("      %+v\n", f)
	}
	for _, d := range small.Deeds {
		fmt.Printf("      %+v\n", d)
	}
}

// long is a history that is worth a look: something waited.
const long = 90 * time.Second

func (b *bench) seed(seed uint64, on []string) (ok bool) {
	var trace bytes.Buffer
	r := b.run(simulation.PlanOf(seed, simulation.Usual, on), &trace, nil)
	if testing.Verbose() && r.Virtual > long {
		fmt.Printf("seed %d took %.0f virtual s: told %d, gave up %d, faults %d, deeds %d, losses %d\n", seed,
			r.Virtual.Seconds(), r.Told, r.GaveUp, len(r.Plan.Faults), len(r.Plan.Deeds), len(r.Losses))
	}
	if r.Err == nil {
		return true
	}
	b.failed(r, trace.Bytes())
	if !*stop {
		b.shrink(r.Plan)
	}
	return false
}

// everything has every kind of deed.
var everything = slices.Concat(simulation.All, simulation.Later)

func kinds() []string {
	if *deeds == "" {
		return everything
	}
	return strings.Split(*deeds, ",")
}

// fixedSeeds is how many histories every run of the tests has.
const fixedSeeds = 40

// fixedTime is after how long no further one begins, on a machine that is slow or busy.
const fixedTime = 45 * time.Second

func TestFixedSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	b := newBench(t)
	start := time.Now()
	for s := uint64(1); s <= fixedSeeds && time.Since(start) < fixedTime; s++ {
		b.seed(s, everything)
	}
	require.Positive(t, b.total.Histories)
}

// expected is what histories should reach: each way of opening a shard, each outcome, each error class, each deed.
func expected() map[string][]string {
	list := map[string][]string{"opening": {"nothing lost", "exact", "guarded", "a person"}, "deed": everything,
		"subscriber": {"died before its COMMIT", "done", "repeated", "fence", "read failed", "commit failed",
			"retry of the sink"},
		"ledger": {"a promotion lost grants", "a promotion lost a refund", "refunded while users grab"},
		"person": simulation.Commands(), "delivery": simulation.Reached}
	for _, o := range hongbao.Outcomes() {
		list["outcome"] = append(list["outcome"], string(o))
	}
	for _, c := range []hongbao.Class{hongbao.ClassTransient, hongbao.ClassUnknown, hongbao.ClassPermanent,
		hongbao.ClassConflict, hongbao.ClassBroken} {
		list["grab error"] = append(list["grab error"], c.String())
	}
	files, _ := filepath.Glob(filepath.Join("..", "..", "lua", "*.lua"))
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".lua")
		if !slices.Contains(included, name) {
			list["answer"] = append(list["answer"], name)
		}
	}
	return list
}

// included are the files of lua that no call names, because other scripts include them.
var included = []string{"bits", "control", "fields", "left", "parking", "stub", "withheld", "guard",
	"marks", "seen"}

// TestReplay runs the plan of -replay.
func TestReplay(t *testing.T) {
	if *replay == "" {
		return
	}
	p, err := simulation.ReadPlan(*replay)
	require.NoError(t, err)
	b := newBench(t)
	for range *runs {
		var trace bytes.Buffer
		if r := b.run(p, &trace, nil); r.Err != nil {
			b.failed(r, trace.Bytes())
		}
	}
}

// The judge and the audit must both name a difference that somebody makes in a store.
func TestPlantedDifferences(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	b := newBench(t)
	for _, p := range judge.Plants() {
		t.Run(p.Name, func(t *testing.T) {
			plan := simulation.PlanOf(3, simulation.Usual, nil)
			plan.Faults = []virtual.Fault{}
			require.NoError(t, b.run(plan, nil, &p).Err)
		})
	}
}

// A shrunk plan still fails, and nothing in it can be left out.
func TestShrink(t *testing.T) {
	t.Parallel()
	p := simulation.Plan{}
	for n := range 37 {
		p.Faults = append(p.Faults, virtual.Fault{Point: virtual.Point{N: n}})
		p.Deeds = append(p.Deeds, simulation.Deed{At: time.Duration(n)})
	}
	small := simulation.Shrink(p, 1000, func(p simulation.Plan) bool {
		has := func(n int) bool {
			return slices.ContainsFunc(p.Faults, func(f virtual.Fault) bool { return f.N == n })
		}
		return has(5) && has(31) && slices.Contains(p.Deeds, simulation.Deed{At: 8})
	})
	require.Len(t, small.Faults, 2)
	require.Equal(t, []simulation.Deed{{At: 8}}, small.Deeds)
}

// No history has deeds after which nobody can know of a burst, see wouldHideAll. Each of these deeds still occurs.
func TestNoPlanHidesAll(t *testing.T) {
	t.Parallel()
	occurs := map[string]int{}
	for seed := range uint64(5_000) {
		here := map[string]bool{}
		p := simulation.PlanOf(seed, simulation.Usual, simulation.All)
		for _, d := range p.Deeds {
			here[d.What], occurs[d.What] = true, occurs[d.What]+1
		}
		require.False(t, here[simulation.ClockAhead] && (here[simulation.FirstFile] || here[simulation.Flushed]), "seed %d", seed)
	}
	for _, what := range []string{simulation.ClockAhead, simulation.FirstFile, simulation.Flushed} {
		require.Greater(t, occurs[what], 100, what)
	}
}
