package find

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A user has a grant on each shard of a campaign. The trail by user or by packet finds them. If one shard can't be
// read, the trail says so and shows the grant on the other shard.
func TestTrailOverShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 2)
	a.Config.Deployment.Sinks, a.Config.Ledger.DSN = []string{"balance"}, ""
	places := a.Store().Places("rain", 2)
	for _, k := range places {
		apptest.GrantsOn(t, a, k.Shard, "u1")
	}
	trail := func(q TrailOf) (packets []int64, unread []Unread) {
		t.Helper()
		q.Campaign = "rain"
		out, err := Of(a).Trail(t.Context(), q)
		require.NoError(t, err)
		for _, s := range out.Steps {
			packets = append(packets, s.Packet)
			require.NotNil(t, s.Receipt)
			require.NotNil(t, s.Entry, "the entry on the shard of the grant")
		}
		return packets, out.Unread
	}
	packets, unread := trail(TrailOf{User: "u1"})
	require.Equal(t, []int64{1, 2}, packets)
	require.Empty(t, unread)
	packets, _ = trail(TrailOf{Packet: 2})
	require.Equal(t, []int64{2}, packets, "the packet is on the second shard, and its user is unknown")

	// The process runs only a few searches through all receipts at the same time, whatever the number of requests.
	require.NoError(t, a.Scans().Acquire(t.Context(), app.MaxScans))
	_, err := Of(a).Trail(t.Context(), TrailOf{Campaign: "rain", Packet: 3})
	require.ErrorIs(t, err, ErrBusy)
	packets, _ = trail(TrailOf{User: "u1"})
	require.Equal(t, []int64{1, 2}, packets, "a trail by user needs no search")
	// The searches through dead letters are bounded too, but they wait until another search has ended. The rest of the
	// trail does not wait.
	searching := &trailSearch{app: a, grants: map[int64]*trailed{1: {TrailStep: TrailStep{Packet: 1,
		Sinks: []TrailSink{{Sink: "balance", Finished: true}}}}}}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, searching.letters(short), errManyScans)
	a.Scans().Release(app.MaxScans)
	for range app.MaxScans + 1 {
		require.NoError(t, searching.letters(t.Context()))
		packets, _ = trail(TrailOf{Packet: 2})
		require.Equal(t, []int64{2}, packets, "each search frees its slot")
	}
	require.NoError(t, a.Redis().Set(t.Context(), places[1].Keys.Campaign("rain"), "x", 0).Err())
	packets, unread = trail(TrailOf{User: "u1"})
	require.Equal(t, []int64{1}, packets)
	require.Len(t, unread, 1)
	require.Equal(t, "redis", unread[0].Where)
}

// The topic has two copies of one event. The search ends only when it has found the other event, too.
func TestTrailCountsNoCopies(t *testing.T) {
	t.Parallel()
	a, b := &trailed{}, &trailed{}
	s := sightings{of: map[string]*trailed{"a": a, "b": b}}
	require.NoError(t, s.see("a", TrailRecord{Partition: 0, Offset: 1}))
	require.NoError(t, s.see("a", TrailRecord{Partition: 0, Offset: 2}))
	require.NoError(t, s.see("other", TrailRecord{Partition: 0, Offset: 3}))
	require.ErrorIs(t, s.see("b", TrailRecord{Partition: 1, Offset: 1}), errSeen)
	require.Equal(t, &TrailRecord{Partition: 0, Offset: 1}, a.Topic, "the first")
	require.Equal(t, &TrailRecord{Partition: 1, Offset: 1}, b.Topic)
}
