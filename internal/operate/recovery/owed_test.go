package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Redis has lost the events before a sink was added, and the ledger has the first event that the sink owes. The shard
// does not hand out their seqs again: the sink would not owe these grants.
func TestTheSeqsBeforeAnAddedSinkAreKnown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	w.pair(t)
	first := w.seq(t) + 75_001
	require.NoError(t, w.ledger.Owe(t.Context(), "kafka", 0, first))
	w.restart(t, "")
	w.restores(t, w.guarded())
	require.GreaterOrEqual(t, w.seq(t)+1, first)
}
