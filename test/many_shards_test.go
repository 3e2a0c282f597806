package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// steady starts a Redis Cluster with a long node timeout, so that no replica takes over from a silent node.
func steady(t *testing.T) (*testkit.RedisCluster, *redis.ClusterClient) {
	t.Helper()
	c := testkit.NewRedisCluster(t, testkit.RedisOptions{Args: map[string]string{"cluster-node-timeout": "120000"}})
	for _, addr := range c.Addrs() { // with this timeout it takes long until nodes know all slots
		c.Node(t, addr).Says(t, "CLUSTER INFO", "cluster_slots_assigned:16384")
	}
	return c, c.Client(t, nil)
}

// nodeOf returns the server that has a shard.
func nodeOf(t *testing.T, c *testkit.RedisCluster, rdb *redis.ClusterClient, k *store.Shard) *testkit.RedisServer {
	t.Helper()
	master, err := rdb.MasterForKey(t.Context(), k.Keys.Meta())
	require.NoError(t, err)
	return c.Node(t, master.Options().Addr)
}

// heldBy returns the source and the packets of a user's receipts, as `hongbao receipts` prints them.
func (e *ending) heldBy(user string) (source string, packets []int64) {
	e.t.Helper()
	var got struct {
		Source   string            `json:"source"`
		Receipts []hongbao.Receipt `json:"receipts"`
	}
	require.NoError(e.t, json.Unmarshal([]byte(e.ok("receipts", "rain", user, "--json")), &got))
	for _, r := range got.Receipts {
		packets = append(packets, r.Packet)
	}
	slices.Sort(packets)
	return got.Source, packets
}

// grabOnEach grabs for two users on each place, and for a third user on two places.
func (e *ending) grabOnEach(places []store.Place) {
	e.t.Helper()
	for j, k := range places {
		users := []string{user(10 + j), user(20 + j)}
		if j == 0 || j == 2 {
			users = append(users, user(1))
		}
		for _, u := range users {
			storetest.Grab(e.t, k.Shard, "rain", u+"/r"+u)
		}
	}
}

// A campaign has four shards on a cluster. Users grab on each, and the campaign is closed while a node is stopped. It
// is refunded once, after every shard is closed and settled. Audits agree before and after the close entries leave the
// stream. Receipts come from all shards.
func TestEndOnFourShards(t *testing.T) {
	t.Parallel()
	cluster, rdb := steady(t)
	broker := testkit.Kafka(t)
	topic := broker.Topic(t, 2, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	e := newEndingOn(t, rdb, "shards: 4\nlimits: [{by: user, per: campaign, max: 2}]\n", 4,
		"HONGBAO_REDIS_MODE=cluster", "HONGBAO_REDIS_ADDRS="+cluster.Masters[0].Addr,
		"HONGBAO_DEPLOYMENT_SINKS=balance,kafka", "HONGBAO_KAFKA_BROKERS="+broker.Addr, "HONGBAO_KAFKA_TOPIC="+topic,
		"HONGBAO_KAFKA_PARTITIONS=2", "HONGBAO_PUBLISHER_REQUEST_TIMEOUT=1500ms", "HONGBAO_PUBLISHER_ATTEMPT_TIME=2s",
		"HONGBAO_PUBLISHER_MAX_CLAIM_AGE=2500ms")
	places := e.store.Places("rain", 4)
	e.grabOnEach(places)
	_, packets := e.heldBy(user(1))
	require.Equal(t, []int64{9, 11}, packets, "the third packets of shards 1 and 3 of 4")
	require.Contains(t, e.ok("campaign", "show", "rain"), "10 of ")

	stopped := nodeOf(t, cluster, rdb, places[2].Shard)
	silent := 0
	for _, k := range places {
		if nodeOf(t, cluster, rdb, k.Shard) == stopped {
			silent++
		}
	}
	require.Less(t, silent, 4)
	require.NoError(t, stopped.Stop())
	e.exits(1, []string{"receipts", "rain", user(1)}, "redis at")
	_, err := e.store.Campaign("rain").UserReceipts(t.Context(), user(1))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	closer := e.closer()
	_, err = closer.Close(t.Context(), e.row("rain"), true)
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("campaign rain, %d of its 4 shards: ", silent))
	_, err = closer.Refund(t.Context(), e.row("rain"), closing.Order{Campaign: "rain", Amount: 1})
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.NoError(t, stopped.Cont())
	e.exits(1, []string{"campaign", "refund", "rain", "--amount", "1"}, "not closed", "hongbao campaign close rain")
	closed := e.exits(0, []string{"campaign", "close", "rain", "--early"}, "granted 10 packets", "left 40 packets", "settling")
	require.Equal(t, closed, e.ok("campaign", "close", "rain"), "a second close prints the same")

	amount := e.leftOver(places)
	e.exits(4, []string{"campaign", "refund", "rain", "--amount", fmt.Sprint(amount)}, "settling")
	stop := e.work()
	first := e.exits(0, []string{"campaign", "refund", "rain", "--amount", fmt.Sprint(amount), "--wait", "30s"},
		"was refunded", "to sponsor acme")
	require.Equal(t, first, e.ok("campaign", "refund", "rain", "--amount", fmt.Sprint(amount)))
	pool, sponsor, refunds := e.balances()
	require.Equal(t, []int64{0, amount - endTotal, 1}, []int64{pool, sponsor, int64(refunds)})
	e.exits(0, []string{"audit", "--wait", "30s"}, "agrees")
	stop()
	e.env = append(e.env, "HONGBAO_CAMPAIGN_GRACE=0s")
	stop = e.work()
	testkit.Eventually(t, 30*time.Second, func() bool {
		there := int64(0)
		for _, k := range places {
			there += rdb.Exists(t.Context(), k.Keys.Campaign("rain")).Val() + rdb.Exists(t.Context(), k.Keys.Receipts("rain")).Val() +
				rdb.Exists(t.Context(), k.Keys.Stock("rain")).Val()
		}
		return there == 0
	}, "the campaign has left each shard")
	stop()
	source, packets := e.heldBy(user(1))
	require.Equal(t, "ledger", source)
	require.Equal(t, []int64{9, 11}, packets)
	for i := range e.store.Len() {
		do(t, rdb.XTrimMaxLen(t.Context(), e.store.Shard(i).Keys.Events(), 0))
	}
	e.exits(0, []string{"audit", "--wait", "30s"}, "agrees")
}

// closer closes campaigns in this process, as a server does whose node falls silent. A new command could not start
// then.
func (e *ending) closer() *closing.Closer {
	e.t.Helper()
	l, err := ledger.Open(e.t.Context(), sqlite(e.ledger))
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, l.Close()) })
	locks, err := e.store.Locks(store.LockConfig{Lease: 3 * time.Second,
		Poll: 100 * time.Millisecond})
	require.NoError(e.t, err)
	c, err := closing.New(closing.Config{Store: e.store, Ledger: l, Locks: locks, Group: "balance",
		Log: zap.NewNop(), Poll: 100 * time.Millisecond})
	require.NoError(e.t, err)
	return c
}

// row returns the row of a campaign in the ledger.
func (e *ending) row(id string) *ledger.StoredCampaign {
	e.t.Helper()
	l, err := ledger.Open(e.t.Context(), sqlite(e.ledger))
	require.NoError(e.t, err)
	c, found, err := l.Campaign(e.t.Context(), id)
	require.NoError(e.t, err)
	require.True(e.t, found)
	require.NoError(e.t, l.Close())
	return &c
}

// leftOver returns the sum of the amounts left in the close entries of all places.
func (e *ending) leftOver(places []store.Place) (sum int64) {
	e.t.Helper()
	for _, k := range places {
		c, err := k.CloseOf(e.t.Context())
		require.NoError(e.t, err)
		sum += int64(c.Close.LeftAmount)
	}
	return sum
}
