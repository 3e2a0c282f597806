package consumer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A person opened the shard without the ledger. Workers take no entry from it until the ledger has this decision.
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
