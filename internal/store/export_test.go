package store

import (
	"context"
	"time"
)

// Seen returns the latest event of the shard that this process has seen through the shard's client.
func Seen(k *Shard) Sight { return k.state.known() }

// WitnessOf makes this process report to the shard once, as its watch does at the start.
func WitnessOf(ctx context.Context, k *Shard) error { return k.witness(ctx, true) }

// CheckOnce makes one periodic check of the shard, as a watch does.
func CheckOnce(ctx context.Context, k *Shard) error {
	if err := k.witness(ctx, k.store.answering.Load() > 0); err != nil {
		return err
	}
	node, err := k.Node(ctx)
	if err != nil {
		return err
	}
	return k.store.copyRegistrations(ctx, node, []int{k.Index()})
}

// SendEvidence sends two grants to a restore attempt, and says that these are all that the process knows.
func SendEvidence(ctx context.Context, k *Shard, epoch int64) error {
	return k.sendEvidence(ctx, epoch, []any{"grant rain 1 1 1800000000000 -\n1 1 u1 - -", "grant rain 2 1 1800000000000 -\n2 1 u2 r -"},
		true)
}

// AgeRegistration makes the process's registration as a witness of the shard older.
func AgeRegistration(k *Shard, by time.Duration) {
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.registration.at, w.wrote = w.registration.at.Add(-by), w.wrote.Add(-by)
}

// Guarded returns the names of the scripts that lua/guard.lua precedes.
func Guarded() (names []string) {
	for _, s := range scripts {
		if s.guard == guarded {
			names = append(names, s.name)
		}
	}
	return names
}

// Forget drops the remembered calls that the process no longer needs. It returns how many calls remain, and the
// highest seq among the dropped grants.
func Forget(k *Shard, epoch, settled int64, now time.Time) (remembered int, dropped int64) {
	w := &k.state.witness
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(k.store, epoch, settled, now)
	return len(w.reported), w.dropped
}

// SawOpening reads the shard's opening, as each call that asks whether the shard is open does.
func SawOpening(ctx context.Context, k *Shard) error {
	v, err := k.rdb.HMGet(ctx, k.Keys.Meta(), openingFields...).Result()
	k.state.sawOpening(v)
	return err
}

// LateOf returns the seq of an event that this process has seen or reported and that an opening has lost; 0 if there is
// none. epoch is the shard's.
func LateOf(k *Shard, epoch int64, skipped string) int64 {
	list, err := parseSkipped(skipped)
	if err != nil {
		panic(err)
	}
	return k.state.late(&Skips{list, epoch}).Seq
}

// SetNow replaces the clock of the locks.
func (l *Locks) SetNow(now func() time.Time) { l.now = now }

// ReleaseSome is ReleaseWithheld for at most the given number of packets.
func ReleaseSome(ctx context.Context, k *Shard, campaign string, most int) (still int64, why Refusal, err error) {
	return k.Place(campaign).releaseWithheld(ctx, most)
}

// Touch calls touch.lua for the receipts of users.
func Touch(ctx context.Context, k *Shard, campaign string, users ...string) error {
	return Classify(touch(ctx, k.rdb, k.Keys.Receipts(campaign), users...).Err())
}

// CopyTime is how long the first answer of a process waits for replicas.
const CopyTime = copyTime
