package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// clusterNode are the lines of redis.conf of a cluster's node. A master that is silent for two seconds has failed.
func clusterNode(bus int) map[string]string {
	return map[string]string{
		"cluster-enabled": "yes", "cluster-port": strconv.Itoa(bus), "cluster-config-file": "nodes.conf",
		"cluster-node-timeout": "2000", "cluster-replica-validity-factor": "0",
	}
}

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// RedisCluster is a running Redis Cluster: three masters, each with a third of the slots, in order, and a replica of
// the first.
type RedisCluster struct {
	Masters [clusterMasters]*RedisServer
	Replica *RedisServer // of Masters[0]
}

// StartRedisCluster starts a cluster and returns when all of it is of one mind and the replica follows. The caller
// closes it.
func StartRedisCluster(ctx context.Context) (_ *RedisCluster, err error) {
	c := &RedisCluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range c.Masters {
		if c.Masters[i], err = StartRedis(ctx, RedisOptions{Cluster: true}); err != nil {
			return nil, err
		}
	}
	if c.Replica, err = StartRedis(ctx, RedisOptions{Cluster: true}); err != nil {
		return nil, err
	}
	return c, c.join(ctx)
}

// NewRedisCluster is a cluster of the test's own, closed at its end.
func NewRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	return closing(t, must(t, func() (*RedisCluster, error) { return StartRedisCluster(t.Context()) }))
}

// nodes are the servers that were started.
func (c *RedisCluster) nodes() (all []*RedisServer) {
	for _, n := range append(c.Masters[:len(c.Masters):len(c.Masters)], c.Replica) {
		if n != nil {
			all = append(all, n)
		}
	}
	return all
}

// Addrs are the addresses of all nodes.
func (c *RedisCluster) Addrs() (addrs []string) {
	for _, n := range c.nodes() {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Close ends every node and removes its folder.
func (c *RedisCluster) Close() (err error) {
	for _, n := range c.nodes() {
		err = errors.Join(err, n.Close())
	}
	return err
}

// join deals the slots, makes the nodes known to each other, and waits for the replica.
func (c *RedisCluster) join(ctx context.Context) error {
	for i, n := range c.nodes() {
		low, high := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
		orders := [][]any{{"CLUSTER", "SET-CONFIG-EPOCH", i + 1}, {"CLUSTER", "ADDSLOTSRANGE", low, high}}
		if n == c.Replica {
			orders = orders[:1]
		}
		host, port, _ := net.SplitHostPort(c.Masters[0].Addr) // made by loopback
		orders = append(orders, []any{"CLUSTER", "MEET", host, port, c.Masters[0].bus})
		for _, order := range orders {
			if _, err := n.order(ctx, order...); err != nil {
				return err
			}
		}
	}
	if err := c.agree(ctx); err != nil {
		return err
	}
	id, err := c.Masters[0].order(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := c.Replica.order(ctx, "CLUSTER", "REPLICATE", id); err != nil {
		return err
	}
	return c.wait(ctx, c.Replica, "INFO", "master_link_status:up")
}

// agree waits until every node knows all others and sees all slots served.
func (c *RedisCluster) agree(ctx context.Context) error {
	for _, n := range c.nodes() {
		if err := c.wait(ctx, n, "CLUSTER INFO", "cluster_state:ok",
			fmt.Sprintf("cluster_known_nodes:%d", len(c.nodes()))); err != nil {
			return err
		}
	}
	return nil
}

// wait asks a node again and again until its answer has every part.
func (c *RedisCluster) wait(ctx context.Context, n *RedisServer, question string, parts ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var order []any
	for _, word := range strings.Fields(question) {
		order = append(order, word)
	}
	return poll(ctx, n.current(), func(ctx context.Context) error {
		text, err := n.order(ctx, order...)
		for _, part := range parts {
			if err == nil && !strings.Contains(text, part) {
				err = fmt.Errorf("%s at %s: no %s: %w", question, n.Addr, part, errNotYet)
			}
		}
		return err
	})
}

// order has a node carry out one command.
func (r *RedisServer) order(ctx context.Context, args ...any) (string, error) {
	client := redis.NewClient(r.Options())
	defer client.Close()
	text, err := client.Do(ctx, args...).Text()
	if err != nil {
		return "", fmt.Errorf("%v at %s: %w", args, r.Addr, err)
	}
	return text, nil
}

// Client connects to the cluster; it is closed at the test's end.
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

// AwaitPromotion waits until the replica of the first master, which was killed, has taken its place and every node that
// lives has learnt it.
func (c *RedisCluster) AwaitPromotion(ctx context.Context) error {
	if err := c.wait(ctx, c.Replica, "INFO", "role:master"); err != nil {
		return err
	}
	for _, n := range append(c.Masters[1:len(c.Masters):len(c.Masters)], c.Replica) {
		if err := c.wait(ctx, n, "CLUSTER INFO", "cluster_state:ok"); err != nil {
			return err
		}
	}
	return nil
}
