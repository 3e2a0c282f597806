package recovery_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis comes back from a file of before the shard's first event, and a silent process has told users of the latest
// grants. The margin covers their packets, as it does with any other old file.
func TestMarginOfAFileOfBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.process(t), w.process(t)
	old := w.older(t)
	won := p.wins(t, 10)
	unreported := silent.wins(t, 5)
	w.restart(t, old)
	p.watch(t)
	w.restores(t, w.guarded(), won)
	require.Subset(t, w.withheld(t), packetsOf(unreported))
	w.wakes(t, silent, unreported)
}

// A recoverer begins to restore a shard, and dies. Then Redis comes back from a file of before the shard's first event,
// which has no registration, and the process that told users is dead. The ledger knows how far the shard had come.
func TestAttemptBeforeAFileOfBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	w := setup(t)
	old := w.older(t)
	unreported := w.process(t).wins(t, 5)
	w.restart(t, "")
	require.NoError(t, w.guarded(long).OpenFrozen(t.Context(), 0))
	w.restart(t, old)
	w.restores(t, w.guarded())
	require.Subset(t, w.withheld(t), packetsOf(unreported))
}

// Redis comes back from a file of before the shard's first event. A process says how far the shard had come, and dies. A
// recoverer begins to restore the shard, and dies too. Then Redis comes back from that file once more. The ledger knows
// what the process said, so the packets of its users are withheld.
func TestSightBeforeAFileOfBeforeTheFirstEvent(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]func(t *testing.T, w *world){
		"while it waits for processes": func(t *testing.T, w *world) {
			ctx, kill := context.WithCancel(t.Context())
			killed := make(chan error, 1)
			go func() { killed <- w.guarded(long).OpenFrozen(ctx, 0) }()
			testkit.Eventually(t, 20*time.Second, func() bool {
				before, err := w.shard().Before(t.Context(), restore.Overlap)
				return err == nil && before.Attempt.Epoch > 0
			}, "the restore has begun")
			kill()
			require.Error(t, <-killed)
		},
		"when it has withheld packets": func(t *testing.T, w *world) { w.stops(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			old := w.older(t)
			teller := w.process(t)
			unreported := teller.wins(t, 5)
			w.restart(t, old)
			testkit.EventuallyOK(t, 20*time.Second, func() error {
				_, err := w.over(teller.rdb).Shard(0).Freeze(t.Context())
				return err
			}, "the process says what it has seen")
			dies(t, w)
			w.restart(t, old)
			z, err := w.shard().Freeze(t.Context())
			require.NoError(t, err)
			require.Zero(t, z.Seen.Seq, "the fault fired: Redis has forgotten it")
			w.restores(t, w.guarded())
			require.Subset(t, w.withheld(t), packetsOf(unreported))
		})
	}
}
