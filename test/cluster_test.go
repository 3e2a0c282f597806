package test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A deployment runs on a Redis Cluster of three masters, one shard on each. A worker takes over the pending entries of
// another worker. Everything is settled, and finished events are trimmed.
func TestTheWholeOnARedisCluster(t *testing.T) {
	t.Parallel()
	cluster := testkit.NewRedisCluster(t, testkit.RedisOptions{})
	client := cluster.Client(t, nil)
	st := storetest.InitializedOn(t, client, 3)
	b := bundleOf(st, zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)))
	oneSlotAShard(t, b)

	ownClock(t, b, cluster, client)
	ids := oneCampaignAShard(t, client, st)
	const packets = 200
	_, settler := b.ledger(t, b.load(t, spec(ids[0], packets, 100_000)), b.load(t, spec(ids[1], packets, 100_000)),
		b.load(t, spec(ids[2], packets, 100_000)))
	p := b.producer(t)
	var wg sync.WaitGroup
	for i := range packets {
		wg.Go(func() {
			for _, id := range ids {
				a, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: user(i)})
				if err != nil || a.Outcome != hongbao.OutcomeGranted {
					t.Errorf("%s: %v, %v", id, a.Outcome, err)
				}
			}
		})
	}
	wg.Wait()

	gone := vanished(t, b)
	tc := consumer.DefaultTrimmerConfig()
	tc.Deployment, tc.Groups = deployment.Of(st, b.log), []string{"balance"}
	tc.MaxEvents, tc.Every = 10, 100*time.Millisecond
	trimmer, err := consumer.NewTrimmer(tc)
	require.NoError(t, err)
	w, _ := b.work(t, "balance", "w1", settler, func(c *consumer.Config) {
		reads := cluster.Client(t, func(o *redis.ClusterOptions) { o.MaxRetries = -1 })
		with, err := store.New(store.Config{Redis: client, Reads: reads, Space: st.Space(), Deployment: "test"})
		require.NoError(t, err)
		c.Deployment = deployment.Of(with, b.log)
		c.Lease, c.Poll, c.Block = 4*time.Second, 50*time.Millisecond, 100*time.Millisecond
	})
	testkit.Go(t, trimmer.Run)
	testkit.Eventually(t, 30*time.Second, func() bool { return w.Stats().Done == int64(st.Len()*packets) },
		"all settled")
	require.EqualValues(t, gone, w.Stats().Taken, "the vanished worker's entries were taken over")
	for i := range st.Len() {
		k := st.Shard(i)
		testkit.EventuallyOK(t, 20*time.Second, func() error {
			finished, err := client.HGet(t.Context(), k.Keys.Meta(), "finished").Int64()
			if err == nil && finished != packets {
				err = fmt.Errorf("finished is %d", finished)
			}
			return err
		}, "the trimmer records how far shard %d is", i)
	}
}

// oneCampaignAShard returns a campaign id for each shard, and checks that every shard is on another master.
func oneCampaignAShard(t *testing.T, client *redis.ClusterClient, st *store.Store) []string {
	t.Helper()
	ids := make([]string, st.Len())
	masters := map[string]bool{}
	for i := 0; len(masters) < st.Len(); i++ {
		id := fmt.Sprintf("rain-%d", i)
		k := st.Home(id)
		if ids[k.Index()] != "" {
			continue
		}
		ids[k.Index()] = id
		node, err := client.MasterForKey(t.Context(), k.Keys.Events())
		require.NoError(t, err)
		masters[node.Options().Addr] = true
	}
	return ids
}

// vanished reads entries of each shard for a worker that does not exist, and returns their number.
func vanished(t *testing.T, b *bundle) (entries int) {
	t.Helper()
	for i := range b.store.Len() {
		_, err := b.store.Shard(i).Group("balance").Create(t.Context())
		require.NoError(t, err)
		raw, err := b.store.Shard(i).Group("balance").ReadNew(t.Context(), "vanished", 2, 0)
		require.NoError(t, err)
		entries += len(raw)
	}
	return entries
}

// oneSlotAShard checks that all keys of a shard are in one slot, and different shards in different slots. It also
// checks that the cluster refuses a script with keys of two slots (F10).
func oneSlotAShard(t *testing.T, b *bundle) {
	t.Helper()
	slots := map[int64]bool{}
	for i := range b.store.Len() {
		k := b.store.Shard(i)
		want, err := b.rdb.ClusterKeySlot(t.Context(), k.Keys.Meta()).Result()
		require.NoError(t, err)
		slots[want] = true
		for _, key := range []string{
			k.Keys.Meta(), k.Keys.Events(), k.Keys.Campaign("rain"), k.Keys.Stock("rain"), k.Keys.Receipts("rain"), k.Keys.Counters("rain", "c"),
			k.Keys.Done("kafka", 7),
			k.Keys.Claims("kafka"), k.Keys.Dead("kafka"), k.Keys.ResolvedLetters("kafka"), k.Keys.Replay("r"), k.Keys.Once("n", "m"), k.Keys.Refunded(),
			k.Keys.Lock("close"),
		} {
			got, err := b.rdb.ClusterKeySlot(t.Context(), key).Result()
			require.NoError(t, err)
			require.Equal(t, want, got, key)
		}
	}
	require.Len(t, slots, b.store.Len())
	err := b.rdb.Eval(t.Context(), "return redis.call('EXISTS', KEYS[1], KEYS[2])",
		[]string{b.store.Shard(0).Keys.Meta(), b.store.Shard(1).Keys.Meta()}).Err()
	require.True(t, redis.HasErrorPrefix(err, "CROSSSLOT"), "%v", err)
}

// ownClock checks that the search for campaigns to retire reads the time from the server of the shard.
func ownClock(t *testing.T, b *bundle, cluster *testkit.RedisCluster, client *redis.ClusterClient) {
	t.Helper()
	k := b.store.Shard(1)
	for range 10 {
		_, err := k.DueToRetire(t.Context(), 0, 1)
		require.NoError(t, err)
	}
	own := nodeOf(t, cluster, client, k)
	for _, server := range cluster.Masters {
		asked := strings.Contains(server.Order(t, "INFO commandstats"), "cmdstat_time:calls=10,")
		require.Equal(t, server == own, asked, "%s was asked for the time", server.Addr)
	}
}
