package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A primary whose replica confirms nothing falls back to asynchronous replication. The alarm and the doctor's question
// know that, and the fall-back's end. A server with the wrong wait point is refused.
func TestSemiSyncFallsBack(t *testing.T) {
	t.Parallel()
	p, ok := pairOfMariaDB(300)(t).(*mariadbPair)
	require.True(t, ok)
	config := p.config()
	core, logs := observer.New(zap.ErrorLevel)
	config.Log = zap.New(core)
	f := newFixture(t, config)
	asynchronous := func() bool {
		s, err := f.ledger.Server(t.Context())
		require.NoError(t, err)
		_, err = f.ledger.Unfinished(t.Context())
		require.NoError(t, err)
		return s.Asynchronous
	}
	require.False(t, asynchronous())
	require.Zero(t, logs.Len())
	p.cut(t)
	f.create(t, "rain", 10) // waits for the replica, and falls back
	require.True(t, asynchronous())
	require.Equal(t, 1, logs.FilterField(zap.String("code", "ledger_asynchronous")).Len())
	p.do(t, p.replica, "START REPLICA IO_THREAD")
	testkit.Eventually(t, 20*time.Second, func() bool { return !asynchronous() }, "the replica confirms again")

	name := "rpl_semi_sync_master_wait_point"
	if testkit.OnMySQL() {
		name = "rpl_semi_sync_source_wait_point"
	}
	p.do(t, p.primary, "SET GLOBAL "+name+" = 'AFTER_COMMIT'")
	_, err := Open(t.Context(), config)
	require.ErrorContains(t, err, name+" is AFTER_COMMIT")
}
