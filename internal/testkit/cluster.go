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

// clusterNode returns the lines of redis.conf of a cluster's node. A primary that is silent for two seconds has
// failed. A slot without a server stops no other slot, as Hongbao requires.
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

// RedisCluster is a running Redis Cluster: three masters, each with a third of the slots, in order, and a replica of
// each.
type RedisCluster struct {
	Masters, Replicas [clusterMasters]*RedisServer
}

// StartRedisCluster starts a cluster. It returns when all nodes agree and the replicas follow. The caller closes it.
// Only the options Args and Binary have an effect.
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

// NewRedisCluster returns a cluster of the test's own. It is closed at the test's end.
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

// Node returns the server at an address.
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

// Close ends every node and removes its folder.
func (c *RedisCluster) Close() (err error) {
	for _, n := range c.nodes() {
		err = errors.Join(err, n.Close())
	}
	return err
}

// join deals the slots, makes the nodes known to each other, and waits for the replicas. Each node meets all before
// it, because gossip alone takes seconds longer.
func (c *RedisCluster) join(ctx context.Context) error {
	nodes := c.nodes()
	for i, n := range nodes {
		orders := [][]any{{"CLUSTER", "SET-CONFIG-EPOCH", i + 1}}
		if i < clusterMasters {
			low, high := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
			orders = append(orders, []any{"CLUSTER", "ADDSLOTSRANGE", low, high})
		}
		for _, other := range nodes[:i] {
			host, port, _ := net.SplitHostPort(other.Addr) // loopback made the address
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

// follow makes a node the replica of the node with the id, as soon as it knows that node.
func (r *RedisServer) follow(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, r.current(), func(ctx context.Context) error {
		_, err := r.order(ctx, "CLUSTER", "REPLICATE", id)
		return err
	})
}

// whole waits until every node sees all slots served, and each replica follows.
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

// Client returns a client of the cluster. It is closed at the test's end.
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

// AwaitPromotion waits until the replica of a killed master has taken its place, and every live node knows it.
func (c *RedisCluster) AwaitPromotion(t testing.TB, master int) {
	t.Helper()
	c.Replicas[master].Says(t, "INFO", "role:master")
	for _, n := range c.nodes() {
		if n != c.Masters[master] {
			n.Says(t, "CLUSTER INFO", "cluster_state:ok")
		}
	}
}

// handOverTime is how long a server tries a planned takeover before it gives up, plus a margin.
const handOverTime = 6 * time.Second

// HandOver makes a replica take over from its master by a planned failover. It returns when the replica has taken
// over.
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

// slotKeys bounds the keys of a slot that one call lists.
const slotKeys = 1000

// MoveSlot moves a slot from one master to another, key by key, in the order of their names, or backwards. It calls
// moved before the first key, after each key, and again before the slot belongs to the other master. n is the
// number of moved keys.
func (c *RedisCluster) MoveSlot(t testing.TB, slot int, from, to *RedisServer, backwards bool, moved func(n int)) {
	t.Helper()
	fromID, toID := from.Order(t, "CLUSTER MYID"), to.Order(t, "CLUSTER MYID")
	to.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d IMPORTING %s", slot, fromID))
	from.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d MIGRATING %s", slot, toID))
	host, port, _ := net.SplitHostPort(to.Addr) // loopback made the address
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
			from.Order(t, fmt.Sprintf("MIGRATE %s %s %s 0 5000", host, port, key)) // NOKEY: the key has expired
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

// MigrateSlot lets the server itself move a slot from one master to another, as Valkey 9 does. It returns when all
// masters know it.
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
