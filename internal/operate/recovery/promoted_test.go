package recovery_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// watch watches the servers from a new process, which has seen no event.
func (w *world) watch(t *testing.T) {
	t.Helper()
	watch := &store.Watch{Store: w.over(w.server.Client(t)), Every: 10 * time.Millisecond}
	testkit.Go(t, watch.Run)
}

// demote makes the server a replica of another server until it has that server's data, and promotes it again. The
// server keeps its run_id and its scripts.
func (w *world) demote(t *testing.T, to *testkit.RedisServer) {
	t.Helper()
	host, port, err := net.SplitHostPort(to.Addr)
	require.NoError(t, err)
	rdb := w.server.Client(t)
	require.NoError(t, rdb.ReplicaOf(t.Context(), host, port).Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		info, err := rdb.InfoMap(t.Context(), "replication").Result()
		return err == nil && info["Replication"]["master_link_status"] == "up"
	}, "the server is a replica of the other one")
	require.NoError(t, rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())
}

func (w *world) isFrozen(t *testing.T) {
	t.Helper()
	rdb := w.server.Client(t)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return rdb.HExists(t.Context(), w.store.Shard(0).Keys.Meta(), "frozen").Val()
	}, "the shard is frozen")
}

// copyOf returns a new server with the present data of the deployment's server. The copy gets no later writes.
func (w *world) copyOf(t *testing.T) *testkit.RedisServer {
	t.Helper()
	other := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: w.server})
	testkit.Eventually(t, 20*time.Second, func() bool {
		return w.rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, "the copy has all data")
	require.NoError(t, other.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
	return other
}

// An opening waits until the replicas have it (WAIT). So a failover right after it does not lose the new epoch.
func TestReplicasHaveTheOpening(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: w.server})
	testkit.Eventually(t, 20*time.Second, func() bool {
		return strings.Contains(w.rdb.Info(t.Context(), "replication").Val(), "state=online")
	}, "the first replica has attached, which changes the server's replication id")
	require.NoError(t, w.rdb.HSet(t.Context(), w.store.Shard(0).Keys.Meta(), "opened", "another").Err())
	w.opens(t)
	require.Contains(t, w.rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_wait:")
}

// A server that was demoted and promoted again keeps its run_id and its scripts, but has lost events. A watch freezes
// the shard, even if no caller has seen the lost events.
func TestDemotedAndPromotedWithLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	other := w.server.Client(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, other, 10)),
		"the grabs load the script on the server")
	older := w.copyOf(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 50}, outcomes(w.grab(t, w.rdb, 50)))
	w.settle(t)
	w.watch(t)
	w.demote(t, older)
	seq, err := other.HGet(t.Context(), w.store.Shard(0).Keys.Meta(), "seq").Int()
	require.NoError(t, err)
	require.Equal(t, 10, seq, "the fault fired")
	w.isFrozen(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, other, 2)))
	w.staysFrozen(t)
}

// A server was demoted and promoted again, and lost nothing. The shard freezes, opens without a person, and stays open.
// The first replica that attaches freezes nothing, although it also changes the server's replication id.
func TestDemotedAndPromotedWithoutLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	same := w.copyOf(t)
	z, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.False(t, z.Frozen, "the first replica has attached")
	w.watch(t)
	w.demote(t, same)
	w.isFrozen(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)))
	w.opens(t)
	z, err = w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.False(t, z.Frozen, "the shard was opened for this write history")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, w.rdb, 10)))
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
}
