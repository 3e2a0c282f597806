package restore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// turns lets the agents take steps for some ms, without faults.
func (w *world) turns(ms int64) {
	for until := w.now + ms; w.err == nil && w.now < until; {
		w.turn()
	}
}

func (w *world) sleep(name string, ms int64) {
	for _, a := range w.agents {
		if a.name == name {
			a.asleep = w.now + ms
		}
	}
}

// opens lets the agents take steps until shard 0 has opened in a later epoch, and returns how many packets it withholds.
func (w *world) opens(t *testing.T) (withheld int) {
	t.Helper()
	d := w.nodes[0].up.data
	epoch := d.epoch
	for until := w.now + 60_000; w.err == nil && (d.frozen || d.epoch == epoch); w.turn() {
		require.Less(t, w.now, until, "shard 0 opens")
	}
	for _, c := range d.camps {
		withheld += len(c.withheld)
	}
	return withheld
}

// oldFile lets shard 0 come back from an old file. Sinks were paused since, and the processes that answered users die.
// So no source knows that anything is lost. The shard opens by itself.
func (w *world) oldFile(t *testing.T) (withheld int) {
	t.Helper()
	w.turns(8_000)
	n := w.nodes[0]
	n.old = n.up.data.clone()
	w.sleep("settler", 30_000)
	w.sleep("publisher", 30_000)
	w.sleep("sponsor", 30_000)
	w.turns(13_000)
	for _, p := range append([]*producer{}, w.producers...) {
		p.die()
	}
	n.older()
	return w.opens(t)
}

// night lets shard 0 come back from a complete file after a time without grabs. It was down for so long that a process
// may have registered and answered users since the file was written, for all that a recoverer knows.
func (w *world) night(t *testing.T) (withheld int) {
	t.Helper()
	w.turns(8_000)
	w.sleep("grabs", 60_000)
	w.sleep("sponsor", 60_000)
	w.turns(15_000)
	n := w.nodes[0]
	n.replicate(1, n.written())
	n.restart()
	w.now += 12_000
	return w.opens(t)
}

// Nothing is known to be lost, and a process that may have answered users is silent. The recoverer withholds the margin
// if the shard granted packets just before its last write, and nothing otherwise.
func TestModelOfASilentProcess(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]func(*world, *testing.T) int{
		"an old file": (*world).oldFile, "a quiet restart": (*world).night,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withheld, stats := 0, map[string]int{}
			for seed := range uint64(100) {
				w := newWorld(seed, "", false, stats)
				w.margin = 3 * time.Second
				withheld += history(w, t)
				require.NoError(t, w.finish(), "seed %d", seed)
				w.stopAll()
			}
			require.GreaterOrEqual(t, stats["openings, guarded"], 100)
			if name == "an old file" {
				require.Greater(t, withheld, 100)
			} else {
				require.Zero(t, withheld)
			}
		})
	}
}

// The model shows a recoverer that withholds no margin because no loss is known.
func TestModelCatchesAMissingMargin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		w := newWorld(seed, "a margin only for a known loss", false, map[string]int{})
		w.margin = 3 * time.Second
		w.oldFile(t)
		w.stopAll()
		if w.err != nil {
			require.ErrorContains(t, w.err, "withheld for a silent process")
			t.Logf("seed %d: %v", seed, w.err)
			return
		}
	}
	t.Error("100 histories did not show the bug")
}
