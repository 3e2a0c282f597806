package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A setting of Redis that protects receipts is changed while a worker runs. The worker raises an alarm.
func TestWorkTellsOfASettingThatWasLost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(w.Err.String(), `"working"`) }, "it works")
	// The worker compares each reading with the previous one, so wait for two more.
	own, was := 0, -1
	testkit.Eventually(t, 30*time.Second, func() bool {
		stats, err := d.rdb.InfoMap(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		calls := 0
		_, err = fmt.Sscanf(stats["Commandstats"]["cmdstat_info"], "calls=%d,", &calls)
		require.NoError(t, err)
		if was < 0 {
			was = calls
		} else {
			own++
		}
		return calls-own >= was+2
	}, "it looks at Redis")
	require.NoError(t, d.rdb.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(w.Err.String(), "redis_evicts") },
		"an alarm comes")
}

// Creating a campaign of class fsync warns if Redis does not sync each write to disk.
func TestCreateTellsOfASlowFsync(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	r := d.run("campaign", "create", spec(t, "synced", 10, 1000, "durability: fast", "durability: fsync"))
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.err, "do not fit the durability class")
	require.Contains(t, r.err, "appendfsync always")
	r = d.run("campaign", "create", spec(t, "quick", 10, 1000))
	require.NotContains(t, r.err, "durability")
}
