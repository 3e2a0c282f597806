package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
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
