package test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// mob is a crowd in a campaign over four shards. Each user grabs until they have a final answer. For nine in ten users
// the walk begins at the same place.
type mob struct {
	t                        *testing.T
	p                        *producer.Producer
	silent                   atomic.Bool // a shard with packets does not answer
	granted, soldOut, failed atomic.Int64
	packets                  sync.Map // by user
}

// grab repeats a user's grab until the answer is final.
func (m *mob) grab(user string) {
	for m.t.Context().Err() == nil {
		a, err := m.p.Grab(m.t.Context(), &hongbao.Grab{Campaign: "rain", User: user, RequestID: "r"})
		switch {
		case err != nil:
			m.failed.Add(1)
			continue
		case a.Outcome == hongbao.OutcomeGranted:
			m.granted.Add(1)
			m.packets.Store(user, a.Receipts[0].Packet)
		case a.Outcome == hongbao.OutcomeSoldOut:
			m.soldOut.Add(1)
			if m.silent.Load() {
				m.t.Errorf("%s got sold_out while a shard with packets is silent", user)
			}
		default:
			m.t.Errorf("%s: %s", user, a.Outcome)
		}
		return
	}
}

// mobOf returns n users. For 27 of 30 users the walk begins at place 0.
func mobOf(n int) (users []string) {
	course := walk.NewCourse("rain", 4, 1)
	for i := 0; len(users) < n; i++ {
		var w walk.Walk
		if w.Begin(course, user(i), "r"); w.Place() == max(0, len(users)%30-26) {
			users = append(users, user(i))
		}
	}
	return users
}

// A node of a cluster is stopped for 20 s while a crowd grabs, nine in ten of them first on the same shard. The crowd
// gets all packets of the other shards, and nobody gets sold_out. Afterwards the other packets are granted. Each packet
// is granted once, and no user gets two.
func TestCrowdWhileAShardIsStopped(t *testing.T) {
	t.Parallel()
	cluster, rdb := steady(t)
	st := storetest.InitializedOn(t, rdb, 4)
	b := bundleOf(st, zap.NewNop())
	const packets, users = 1200, 1500
	c := spec("rain", packets, 100_000)
	c.Shards = 4
	b.load(t, c)
	places := st.Places("rain", 4)
	home := nodeOf(t, cluster, rdb, places[0].Shard)
	var answering []*store.Shard
	stopped := home
	for _, k := range places {
		node := nodeOf(t, cluster, rdb, k.Shard)
		if stopped == home {
			stopped = node
		}
		if node == home || node != stopped {
			answering = append(answering, k.Shard)
		}
	}
	require.NotEqual(t, home, stopped)

	m := &mob{t: t, p: b.producer(t)}
	for _, u := range mobOf(users / 30) { // these users grab before the node stops
		m.grab(u)
	}
	require.NoError(t, stopped.Stop())
	m.silent.Store(true)
	over := make(chan struct{})
	time.AfterFunc(20*time.Second, func() { close(over) })
	var wg sync.WaitGroup
	for _, u := range mobOf(users)[users/30:] {
		wg.Go(func() { m.grab(u) })
	}
	for _, k := range answering {
		testkit.Eventually(t, 18*time.Second, func() bool { return rdb.LLen(t.Context(), k.Keys.Stock("rain")).Val() == 0 },
			"shard %d is emptied while another one is silent", k.Index())
	}
	<-over
	require.Less(t, m.granted.Load(), int64(packets))
	m.silent.Store(false)
	require.NoError(t, stopped.Cont())
	wg.Wait()
	require.EqualValues(t, packets, m.granted.Load())
	require.EqualValues(t, users-packets, m.soldOut.Load())
	require.Positive(t, m.failed.Load(), "the silent shard's users were undecided")

	seen := map[int64]bool{}
	m.packets.Range(func(u, packet any) bool {
		held, err := st.Campaign("rain").UserReceipts(t.Context(), u.(string))
		require.NoError(t, err)
		receipts := store.ReceiptsOf(held)
		require.Len(t, receipts, 1, u)
		require.Equal(t, packet, receipts[0].Packet)
		require.False(t, seen[receipts[0].Packet], "packet %d was granted twice", packet)
		seen[receipts[0].Packet] = true
		return true
	})
	require.Len(t, seen, packets)
}
