package store

import (
	"context"
	"time"
)

// Stores returns how many stores the process keeps for a space.
func Stores(of *Store) (n int) {
	stores.Range(func(at, _ any) bool {
		if at.(clientSpace).space == of.Space() {
			n++
		}
		return true
	})
	return n
}

// Seen returns the highest seq that the process has seen of a shard by its client.
func Seen(k *Shard) int64 { return k.state.seen.Load() }

// WitnessOf makes the process of a shard's client watch the shard once.
func WitnessOf(ctx context.Context, k *Shard) error { return k.witness(ctx, true) }

// LookOf does what a watch does at each look at the shard.
func LookOf(ctx context.Context, k *Shard) error { return k.witness(ctx, false) }

// TestifyOf sends two grants and everything that the process knows to an attempt.
func TestifyOf(ctx context.Context, k *Shard, epoch int64) error {
	return k.testify(ctx, epoch, []any{"grant rain 1 1 1800000000000 -\n1 1 u1 - -", "grant rain 2 1 1800000000000 -\n2 1 u2 r -"},
		true)
}

// AgeLine makes the line of a shard's process older.
func AgeLine(k *Shard, by time.Duration) {
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.at = w.line.at.Add(-by)
}

// Forget makes a process forget the calls it may forget. It returns how many calls it still remembers, and the
// highest grant that it dropped.
func Forget(k *Shard, epoch, settled int64, now time.Time) (remembered int, dropped int64) {
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(k.store, epoch, settled, now)
	return len(w.reported), w.dropped
}

// LateOf returns the event that a process has seen or reported in an epoch before the given one and that an opening
// has skipped.
func LateOf(k *Shard, epoch int64, skipped string) int64 {
	list, err := parseSkipped(skipped)
	if err != nil {
		panic(err)
	}
	seq, _ := k.state.late(epoch, list)
	return seq
}

// ReleaseSome is ReleaseWithheld for up to some packets.
func ReleaseSome(ctx context.Context, k *Shard, campaign string, most int) (still int64, why Refusal, err error) {
	return k.releaseWithheld(ctx, campaign, most)
}
