package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The sentinels name the old primary until they have chosen another one. The old primary comes back as a replica that
// still copies and has no append-only file: a worker that starts then waits. A replica that is configured as the primary
// is refused.
func TestReplicaUnderSentinelsIsAnOutage(t *testing.T) {
	t.Parallel()
	replica := store.Server{Version: "7.0.15", Role: "slave", MaxMemoryPolicy: store.NoEviction, Mode: "standalone", RunID: "r"}
	a := &App{Config: &configs.Config{}}
	for mode, class := range map[string]hongbao.Class{configs.Sentinel: hongbao.ClassTransient,
		configs.Standalone: hongbao.ClassBroken} {
		a.Config.Redis.Mode = mode
		err := a.checkServer(&replica, hongbao.DurabilityFast)
		require.Equal(t, class, hongbao.ClassOf(err), mode)
		require.Equal(t, mode == configs.Sentinel, hongbao.IsOutage(err), mode)
	}
}

// A command that opens the ledger but not Redis, such as recover, also knows the founding.
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
