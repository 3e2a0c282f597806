package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// During a failover the sentinels may still name the old primary, which is already a replica. With redis.mode sentinel
// that is an outage, so a starting worker waits. In another mode a replica in place of the primary is refused.
func TestReplicaUnderSentinelsIsAnOutage(t *testing.T) {
	t.Parallel()
	replica := store.Server{Version: "7.0.15", Role: "slave", MaxMemoryPolicy: store.NoEviction, Mode: "standalone", RunID: "r"}
	a := &App{Config: &configs.Config{}}
	for mode, class := range map[string]hongbao.Class{configs.Sentinel: hongbao.ClassTransient,
		configs.Standalone: hongbao.ClassBroken} {
		a.Config.Redis.Mode = mode
		err := a.CheckServer(&replica, hongbao.DurabilityFast)
		require.Equal(t, class, hongbao.ClassOf(err), mode)
		require.Equal(t, mode == configs.Sentinel, hongbao.IsOutage(err), mode)
	}
}

// Some commands, such as recover, open the ledger but not Redis. The founding id is then known from the ledger.
func TestFoundingIsKnownFromEither(t *testing.T) {
	t.Parallel()
	var none, ledger, redis founding
	require.Empty(t, none.known())
	require.NoError(t, ledger.asLedger("aaaa"))
	require.Equal(t, "aaaa", ledger.known())
	require.NoError(t, redis.asRedis("aaaa"))
	require.Equal(t, "aaaa", redis.known())
	require.Error(t, redis.asLedger("bbbb"))
}
