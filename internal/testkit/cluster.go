package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// clusterNode returns settings in redis.conf for a node of a cluster. A primary that does not answer for two
// seconds counts as failed. If a slot has no server, the other slots remain available, as Hongbao requires.
func clusterNode(bus int) map[string]string {
	return map[string]string{
		"cluster-enabled": "yes", "cluster-port": strconv.Itoa(bus), "cluster-config-file": "nodes.conf",
		"cluster-node-timeout": "2000", "cluster-replica-validity-factor": "0", "cluster-require-full-coverage": "no",
		"cluster-allow-replica-migration": "no",
	}
}

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// RedisCluster is a running Redis Cluster. It has three masters with a third of the slots each, and one replica of
// each master.
type RedisCluster struct {
	Masters, Replicas [clusterMasters]*RedisServer
}

// StartRedisCluster starts a cluster. It returns when all nodes agree on the slots and the replicas are connected.
// The caller must close it. It uses only the options Args and Binary.
func StartRedisCluster(ctx context.Context, opts RedisOptions) (_ *RedisCluster, err error) {
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	opts.Cluster = true
	var all errgroup.Group
	for _, list := range [][]*RedisServer{c.Masters[:], c.Replicas[:]} {
		for i := range list {
			all.Go(func() (err error) {
				list[i], err = StartRedis(ctx, opts)
				return err
			})
		}
	}
	if err = all.Wait(); err != nil {
		return nil, err
	}
	return c, c.join(ctx)
}

// NewRedisCluster returns a cluster for this test alone. It is closed when the test ends.
func NewRedisCluster(t testing.TB, opts RedisOptions) *RedisCluster {
	t.Helper()
	return closing(t, running(t, func() (*RedisCluster, error) { return StartRedisCluster(t.Context(), opts) }))
}

// nodes returns the servers that were started.
func (c *RedisCluster) nodes() (all []*RedisServer) {
	for _, n := range append(c.Masters[:len(c.Masters):len(c.Masters)], c.Replicas[:]...) {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// Addrs returns the addresses of all nodes.
func (c *RedisCluster) Addrs() (addrs []string) {
	for _, n := range c.nodes() {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Node returns the server with an address.
func (c *RedisCluster) Node(t testing.TB, addr string) *RedisServer {
	t.Helper()
	for _, n := range c.nodes() {
		if n.Addr == addr {
			return n
		}
	}
	t.Fatalf("testkit: no node of the cluster is at %s", addr)
	return nil
}

// Close stops every node and removes its folder.
func (c *RedisCluster) Close() (err error) {
	for _, n := range c.nodes() {
		err = errors.Join(err, n.Close())
	}
	return err
}

// join assigns the slots, connects the nodes, and waits for the replicas. Each node meets all previous nodes,
// because gossip alone would take seconds longer.
func (c *RedisCluster) join(ctx context.Context) error {
	nodes := c.nodes()
	for i, n := range nodes {
		orders := [][]any{{"CLUSTER", "SET-CONFIG-EPOCH", i + 1}}
		if i < clusterMasters {
			low, high := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
			orders = append(orders, []any{"CLUSTER", "ADDSLOTSRANGE", low, high})
		}
		for _, other := range nodes[:i] {
			host, port, _ := net.SplitHostPort(other.Addr) // loopback built the address, so it is valid
			orders = append(orders, []any{"CLUSTER", "MEET", host, port, other.bus})
		}
		for _, order := range orders {
			if _, err := n.order(ctx, order...); err != nil {
				return err
			}
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d", len(nodes))
	for _, n := range nodes {
		if err := n.says(ctx, "CLUSTER INFO", known); err != nil {
			return err
		}
	}
	for i, n := range c.Masters {
		id, err := n.order(ctx, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if err := c.Replicas[i].follow(ctx, id); err != nil {
			return err
		}
	}
	return c.whole(ctx)
}

// follow makes this node a replica of the node with the id. It retries until this node knows the other one.
func (r *RedisServer) follow(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, r.current(), func(ctx context.Context) error {
		_, err := r.order(ctx, "CLUSTER", "REPLICATE", id)
		return err
	})
}

// whole waits until every node sees all slots served and each replica is connected.
func (c *RedisCluster) whole(ctx context.Context) error {
	for _, n := range c.nodes() {
		if err := n.says(ctx, "CLUSTER INFO", "cluster_state:ok"); err != nil {
			return err
		}
	}
	for i, n := range c.Replicas {
		if err := n.says(ctx, "INFO", "master_link_status:up"); err != nil {
			return err
		}
		if err := c.Masters[i].says(ctx, "INFO", "connected_slaves:1"); err != nil {
			return err
		}
	}
	return nil
}

// Client returns a client of the cluster. It is closed when the test ends.
func (c *RedisCluster) Client(t testing.TB, change func(*redis.ClusterOptions)) *redis.ClusterClient {
	t.Helper()
	o := &redis.ClusterOptions{
		Addrs: c.Addrs(), MaxRedirects: 3, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: c.Masters[0].Options().MaintNotificationsConfig,
	}
	if change != nil {
		change(o)
	}
	client := redis.NewClusterClient(o)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the client of the cluster: %v", err)
		}
	})
	return client
}

// AwaitPromotion waits until the replica of a killed master is promoted and every live node knows the new
// master.
func (c *RedisCluster) AwaitPromotion(t testing.TB, master int) {
	t.Helper()
	c.Replicas[master].Says(t, "INFO", "role:master")
	for _, n := range c.nodes() {
		if n != c.Masters[master] {
			n.Says(t, "CLUSTER INFO", "cluster_state:ok")
		}
	}
}

// handOverTime is how long a server tries a planned failover before it gives up, plus a margin.
const handOverTime = 6 * time.Second

// HandOver promotes a replica by a planned failover. It returns when the replica is the master.
func (c *RedisCluster) HandOver(t testing.TB, replica *RedisServer) {
	t.Helper()
	var ordered time.Time
	Eventually(t, startTimeout, func() bool {
		if strings.Contains(replica.Order(t, "INFO replication"), "role:master") {
			return true
		}
		if time.Since(ordered) > handOverTime {
			replica.Order(t, "CLUSTER FAILOVER")
			ordered = time.Now()
		}
		return false
	}, "%s has taken over", replica.Addr)
}

// slotKeys is the maximum number of keys that one call lists.
const slotKeys = 1000

// MoveSlot moves a slot from one master to another, key by key, sorted by name or, with backwards, in reverse
// order. It calls moved with the number of moved keys: before the first key, and after each key. The slot's owner
// changes only after the last call.
func (c *RedisCluster) MoveSlot(t testing.TB, slot int, from, to *RedisServer, backwards bool, moved func(n int)) {
	t.Helper()
	fromID, toID := from.Order(t, "CLUSTER MYID"), to.Order(t, "CLUSTER MYID")
	to.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d IMPORTING %s", slot, fromID))
	from.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d MIGRATING %s", slot, toID))
	host, port, _ := net.SplitHostPort(to.Addr) // loopback built the address, so it is valid
	client := from.Client(t)
	moved(0)
	for n := 0; ; {
		keys := must(t, func() ([]string, error) {
			return client.ClusterGetKeysInSlot(t.Context(), slot, slotKeys).Result()
		})
		slices.Sort(keys)
		if backwards {
			slices.Reverse(keys)
		}
		for _, key := range keys {
			from.Order(t, fmt.Sprintf("MIGRATE %s %s %s 0 5000", host, port, key)) // answer NOKEY: the key has expired
			n++
			moved(n)
		}
		if len(keys) == 0 {
			break
		}
	}
	for _, n := range append([]*RedisServer{to, from}, c.nodes()...) {
		if strings.Contains(n.Order(t, "INFO replication"), "role:master") {
			n.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d NODE %s", slot, toID))
		}
	}
}

// MigrateSlot lets the server move a slot from one master to another, which Valkey 9 can do. It returns when all
// masters know the new owner.
func (c *RedisCluster) MigrateSlot(t testing.TB, slot int, from, to *RedisServer) {
	t.Helper()
	id := to.Order(t, "CLUSTER MYID")
	from.Order(t, fmt.Sprintf("CLUSTER MIGRATESLOTS SLOTSRANGE %d %d NODE %s", slot, slot, id))
	for _, n := range c.Masters {
		client := n.Client(t)
		Eventually(t, startTimeout, func() bool {
			shards, err := client.ClusterShards(t.Context()).Result()
			return err == nil && slices.ContainsFunc(shards, func(s redis.ClusterShard) bool {
				return slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool {
					return r.Start <= int64(slot) && int64(slot) <= r.End
				}) && slices.ContainsFunc(s.Nodes, func(n redis.Node) bool { return n.ID == id && n.Role == "master" })
			})
		}, "the slot has moved")
	}
}
