package test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// primaryOf returns the server that has a shard now.
func (s *site) primaryOf(shard int) *testkit.RedisServer {
	s.t.Helper()
	s.rdb.(*redis.ClusterClient).ReloadState(s.t.Context())
	var addr string
	testkit.EventuallyOK(s.t, startTime, func() error {
		node, err := s.store.Shard(shard).Node(s.t.Context())
		if err == nil {
			addr = node.(*redis.Client).Options().Addr
		}
		return err
	}, "shard %d has a server", shard)
	return s.at.cluster.Node(s.t, addr)
}

// epochOf returns the epoch of a shard, which increases with each opening.
func (s *site) epochOf(shard int) int64 {
	n, _ := s.rdb.HGet(s.t.Context(), s.store.Shard(shard).Keys.Meta(), "epoch").Int64() // 0 while it can't be read
	return n
}

// redirected counts the calls that the servers answered with MOVED, ASK or TRYAGAIN.
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

// callsAStep is the number of calls to the slot between the moves of two keys.
const callsAStep = 10

// The slot of a shard moves to another node and back under load, key by key. Meanwhile grabs are undecided and workers
// wait. The shard freezes, because its server has changed, and opens without a person. No grant is lost or repeated.
func TestASlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	slot := s.slotOf(0)
	r := s.rains(5_000, 1)
	home, other := s.at.cluster.Masters[0], s.at.cluster.Masters[1]
	for round, way := range [][2]*testkit.RedisServer{{home, other}, {other, home}} {
		r.pours("grants pour in")
		began, _ := r.crowd.count()
		epoch, sent := s.epochOf(0), redirected(t, way)
		// met counts the calls in this round that were decided or redirected.
		met := func() int { n, _ := r.crowd.count(); return n - began + redirected(t, way) - sent }
		var decided []int // grants before each key's move and after the last move
		s.at.cluster.MoveSlot(t, slot, way[0], way[1], round == 1, func(int) {
			before := met()
			testkit.Eventually(t, startTime, func() bool { return met() >= before+callsAStep }, "calls reach the slot in this state")
			n, _ := r.crowd.count()
			decided = append(decided, n)
		})
		keys := len(decided) - 1
		require.Greater(t, keys, 5, "the slot's keys moved one by one")
		require.Equal(t, decided[keys-1], decided[keys], "nothing is decided while the keys are on two servers")
		sent = redirected(t, way) - sent
		require.Greater(t, sent, 10, "some calls were redirected")
		testkit.Eventually(t, startTime, func() bool { return s.epochOf(0) > epoch }, "the shard opens automatically")
		require.Same(t, way[1], s.primaryOf(0))
		r.pours("grants continue")
		t.Logf("%d keys moved after %d grants, %d calls were redirected", keys, decided[0], sent)
	}
	granted, undecided := r.crowd.count()
	t.Logf("%d granted meanwhile, %d undecided answers", granted, undecided)
	r.ends()
}

// slotOf returns the slot of a shard's keys.
func (s *site) slotOf(shard int) int {
	s.t.Helper()
	slot, err := s.rdb.ClusterKeySlot(s.t.Context(), s.store.Shard(shard).Keys.Meta()).Result()
	require.NoError(s.t, err)
	return int(slot)
}

// The slot of a shard moves to another node and back under load, by the server's own atomic migration. Only Valkey 9 of
// the tested servers has it. Grabs are decided while keys are copied. The shard freezes, because its server has
// changed, and opens without a person. No grant is lost or repeated.
func TestASlotMovesAtomically(t *testing.T) {
	if !*everyServer {
		t.Skip("make test-servers runs it") //nolint:forbidigo // other tests need no Valkey
	}
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	for _, p := range programs {
		if p.Name != "Valkey" {
			continue
		}
		s := newSite(t, atRedis(t, configs.Cluster, p.Path))
		s.ok("init")
		slot := s.slotOf(0)
		r := s.rains(20_000, 1)
		home, other := s.at.cluster.Masters[0], s.at.cluster.Masters[1]
		for _, way := range [][2]*testkit.RedisServer{{home, other}, {other, home}} {
			r.pours("grants pour in")
			began, undecided := r.crowd.count()
			epoch, start := s.epochOf(0), time.Now()
			s.at.cluster.MigrateSlot(t, slot, way[0], way[1])
			moved := time.Since(start)
			at, _ := r.crowd.count()
			testkit.Eventually(t, startTime, func() bool { return s.epochOf(0) > epoch }, "the shard opens automatically")
			require.Same(t, way[1], s.primaryOf(0))
			_, waited := r.crowd.count()
			t.Logf("%s %s: the slot moved in %s, with %d grants meanwhile; the shard was open again %s after the order, after "+
				"%d undecided answers", p.Name, p.Version, moved.Round(time.Millisecond), at-began,
				time.Since(start).Round(100*time.Millisecond), waited-undecided)
			for _, server := range way {
				require.NotContains(t, server.Order(t, "INFO errorstats"), "TRYAGAIN", "no script found only some of its keys")
			}
			r.pours("grants continue")
		}
		r.ends()
	}
}
