package recovery_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Seqs that openings have skipped do not count as waiting for a sink, with or without a consumer group.
func TestSkippedSeqsDoNotWait(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for opened := range 3 {
		w.grab(t, w.rdb, 2)
		for _, sink := range []string{"balance", "absent"} {
			if sink == "balance" && opened == 0 {
				_, err := w.shard().Group(sink).Create(t.Context())
				require.NoError(t, err)
			}
			s, err := w.shard().Group(sink).Status(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2*(opened+1), s.Waiting, "sink %s after %d openings", sink, opened)
		}
		w.restart(t, "")
		w.opens(t)
	}
}
