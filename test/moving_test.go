package test

import (
	"context"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// primaryOf is the server that has a shard now.
func (s *site) primaryOf(shard int) *testkit.RedisServer {
	s.t.Helper()
	s.rdb.(*redis.ClusterClient).ReloadState(s.t.Context())
	var addr string
	testkit.EventuallyOK(s.t, startTime, func() error {
		node, err := shards.NodeOf(s.t.Context(), s.rdb, s.layout.Shard(shard))
		if err == nil {
			addr = node.(*redis.Client).Options().Addr
		}
		return err
	}, "shard %d has a server", shard)
	return s.at.cluster.Node(s.t, addr)
}

// epochOf is the epoch of a shard, which rises with each opening.
func (s *site) epochOf(shard int) int64 {
	n, _ := s.rdb.HGet(s.t.Context(), s.layout.Shard(shard).Meta(), "epoch").Int64() // 0 while it can't be read
	return n
}

// redirected counts the calls that servers have answered with MOVED, ASK or TRYAGAIN.
func redirected(t *testing.T, servers [2]*testkit.RedisServer) (all int) {
	t.Helper()
	for _, server := range servers {
		stats := server.Order(t, "INFO errorstats")
		for _, m := range regexp.MustCompile(`errorstat_(?:MOVED|ASK|TRYAGAIN):count=(\d+)`).FindAllStringSubmatch(stats, -1) {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			all += n
		}
	}
	return all
}

// callsAStep is how many calls meet the slot between two of its keys.
const callsAStep = 10

// The slot of a shard moves to another node and back under load, key by key. Grabs meanwhile are undecided, and none
// gets a wrong answer; workers wait. The shard freezes, since another server has it, and opens by itself; nothing is
// lost, and nobody has anything twice.
func TestASlotMovesUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	const packets = 5_000
	id := s.on(0, "rain")
	s.create(id, packets, hongbao.DurabilityReplica, "limits:\n  - {by: user, per: campaign, max: 1}\n")
	slot, err := s.rdb.ClusterKeySlot(t.Context(), s.layout.Shard(0).Meta()).Result()
	require.NoError(t, err)
	stop := s.work()
	crowd := s.people(s.producer(), id)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	enough, halt := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { crowd.grab(enough, 0, packets, 32) })
	home, other := s.at.cluster.Masters[0], s.at.cluster.Masters[1]
	for round, way := range [][2]*testkit.RedisServer{{home, other}, {other, home}} {
		began, _ := crowd.count()
		testkit.Eventually(t, startTime, func() bool { n, _ := crowd.count(); return n > began+200 }, "grants pour in")
		epoch, sent := s.epochOf(0), redirected(t, way)
		// met counts the calls that servers have decided or sent away since the round began.
		met := func() int { n, _ := crowd.count(); return n - began + redirected(t, way) - sent }
		var decided []int // before each key, and after the last one
		s.at.cluster.MoveSlot(t, int(slot), way[0], way[1], round == 1, func(int) {
			before := met()
			testkit.Eventually(t, startTime, func() bool { return met() >= before+callsAStep }, "the load meets the slot as it is")
			n, _ := crowd.count()
			decided = append(decided, n)
		})
		keys := len(decided) - 1
		require.Greater(t, keys, 5, "the slot's keys moved one by one")
		require.Equal(t, decided[keys-1], decided[keys], "nothing is decided while its keys lie on two servers")
		sent = redirected(t, way) - sent
		require.Greater(t, sent, 10, "the load met the move")
		testkit.Eventually(t, startTime, func() bool { return s.epochOf(0) > epoch }, "the shard opens by itself")
		require.Same(t, way[1], s.primaryOf(0))
		testkit.Eventually(t, startTime, func() bool { n, _ := crowd.count(); return n > decided[keys]+200 }, "grants go on")
		t.Logf("%d keys moved after %d grants, %d calls were sent away", keys, decided[0], sent)
	}
	halt()
	all.Wait()
	granted, undecided := crowd.count()
	crowd.grab(ctx, 0, packets, 64) // all once more by the same ids, and those who have nothing yet
	require.NoError(t, ctx.Err())
	crowd.right(t)
	final, _ := crowd.count()
	require.Equal(t, packets, final, "everybody has one packet")
	s.nobodyLost()
	stop()
	require.Equal(t, packets, s.published(id))
	t.Logf("%d granted under way, %d undecided answers", granted, undecided)
}
