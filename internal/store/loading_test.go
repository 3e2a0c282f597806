package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A restarted server still loads its append-only file, and meanwhile reports that it has none. Inspect returns an
// outage, so that the caller asks again, instead of wrong settings.
func TestServerThatLoads(t *testing.T) {
	t.Parallel()
	// Loading takes 1 ms for each command in the file. Redis answers clients after every 1,024 commands.
	server := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always", "key-load-delay": "1000"}})
	rdb := server.Client(t)
	pipe := rdb.Pipeline()
	for i := range 5000 {
		pipe.Set(t.Context(), "key", i, 0)
	}
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	started := make(chan error, 1)
	go func() { started <- server.Restart() }()
	loads := 0
	testkit.Eventually(t, 30*time.Second, func() bool {
		servers, err := store.Inspect(t.Context(), rdb)
		if err == nil {
			require.NoError(t, servers[0].CheckAppendOnly())
			return true
		}
		require.True(t, hongbao.IsOutage(err), "%v", err)
		if strings.Contains(err.Error(), "loads") {
			loads++
		}
		return false
	}, "it has loaded")
	require.NoError(t, <-started)
	require.Positive(t, loads, "no answer came while it loaded")
}
