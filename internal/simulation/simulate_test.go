package simulation_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/simulation"
)

var (
	processes = flag.Int("processes", 1, "TestSimulate: so many processes side by side; one uses one core")
	step      = flag.Uint64("step", 1, "TestSimulate: the distance between two seeds")
	counts    = flag.String("counts", "", "TestSimulate: write the counts to this file, and print none")
)

// simulated is what many histories showed.
type simulated struct {
	Failed  int
	Virtual time.Duration
	Total   simulation.Total
}

// TestSimulate runs seeds for -seconds; `make simulate` calls it.
func TestSimulate(t *testing.T) {
	if *seconds == 0 {
		return
	}
	first, start := *seed, time.Now()
	if first == 0 {
		first = uint64(start.UnixNano())
	}
	var all simulated
	if *processes > 1 {
		all = sideBySide(t, first)
	} else {
		all = simulate(t, first)
	}
	if *counts != "" {
		text, err := json.Marshal(all)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*counts, text, 0o600))
		return
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "%d histories, %d failed, in %.0f s: %.1f a minute, %.0f virtual s\n", all.Total.Histories, all.Failed,
		time.Since(start).Seconds(), float64(all.Total.Histories)/time.Since(start).Minutes(), all.Virtual.Seconds())
	all.Total.Write(out, expected())
	require.NoError(t, out.Flush())
}

// simulate runs histories in this process.
func simulate(t *testing.T, first uint64) simulated {
	b := newBench(t)
	failed := 0
	fmt.Printf("from seed %d on\n", first)
	for n, end := 0, time.Now().Add(time.Duration(*seconds)*time.Second); time.Now().Before(end) && (*most == 0 || n < *most); n++ {
		if !b.seed(first+uint64(n)*max(*step, 1), kinds()) {
			failed++
			if *stop {
				break
			}
		}
	}
	return simulated{failed, b.spent, b.total}
}

// sideBySide runs -processes of this program, each with its own seeds, and adds their counts. With -histories, each
// process runs so many.
func sideBySide(t *testing.T, first uint64) (all simulated) {
	folder := t.TempDir()
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range *processes {
		running.Go(func() {
			counts := filepath.Join(folder, strconv.Itoa(i))
			args := []string{"-test.run", "^TestSimulate$", "-test.timeout", "0", "-test.v=" + strconv.FormatBool(testing.Verbose()),
				"-seconds", strconv.Itoa(*seconds), "-seed", strconv.FormatUint(first+uint64(i), 10),
				"-step", strconv.Itoa(*processes), "-histories", strconv.Itoa(*most), "-stop=" + strconv.FormatBool(*stop),
				"-deeds", *deeds, "-runs", strconv.Itoa(*runs), "-keep", *keep, "-counts", counts}
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			var one simulated
			text, unread := os.ReadFile(counts)
			if unread != nil || json.Unmarshal(text, &one) != nil {
				t.Errorf("process %d left no counts: %v, %v", i, err, unread)
				return
			}
			if err != nil {
				t.Fail()
			}
			all.Failed += one.Failed
			all.Virtual += one.Virtual
			all.Total.Join(&one.Total)
		})
	}
	running.Wait()
	return all
}
