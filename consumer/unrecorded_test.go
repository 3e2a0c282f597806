package consumer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// An operator opened a shard while the ledger was down. Workers take none of the shard's entries until this decision
// is in the ledger.
func TestAShardWaitsForTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	text, err := json.Marshal([]store.Unrecorded{{Epoch: 1, Decision: annSays("the database burns"), At: time.Now()}})
	require.NoError(t, err)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), "unrecorded", text).Err())
	b.add(t, 0, 2)
	b.add(t, 1, 3)
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	testkit.Eventually(t, soon, func() bool { return s.size() == 3 && w.logged("shard waits") > 1 }, "the other shard works")
	require.Equal(t, SinkDown, w.Health()[0].Code)
	require.NoError(t, b.keys().Recorded(t.Context(), string(text)))
	testkit.Eventually(t, soon, func() bool { return s.size() == 5 }, "the shard continues")
}
