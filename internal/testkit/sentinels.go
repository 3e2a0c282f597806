package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// SentinelName is the name by which the sentinels know their master.
const SentinelName = "main"

// sentinelConf returns the configuration of a sentinel. The sentinel waits three seconds before it considers a
// master dead, so that a busy machine causes no failover.
func sentinelConf(dir string, port int, opts RedisOptions) string {
	host, masterPort, _ := net.SplitHostPort(opts.Watches.Addr) // loopback built the address, so it is valid
	return fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %q\nsentinel monitor %[3]s %s %s %d\nsentinel "+
		"down-after-milliseconds %[3]s 3000\n"+
		"sentinel failover-timeout %[3]s 10000\n", port, dir, SentinelName, host, masterPort, max(opts.Quorum, 1))
}

// sentinelReplicas and sentinels are the numbers of replicas and sentinels in a RedisSentinels.
const (
	sentinelReplicas = 2
	sentinels        = 3
)

// RedisSentinels is a primary with two replicas and three sentinels.
type RedisSentinels struct {
	Primary   *RedisServer // at the start
	Replicas  [sentinelReplicas]*RedisServer
	Sentinels [sentinels]*RedisServer
}

// StartRedisSentinels starts the servers. It returns when the sentinels know each other and both replicas. The caller
// closes it. It uses only the options Args and Binary.
func StartRedisSentinels(ctx context.Context, opts RedisOptions) (_ *RedisSentinels, err error) {
	s := &RedisSentinels{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Primary, err = StartRedis(ctx, opts); err != nil {
		return nil, err
	}
	var all errgroup.Group
	replica := opts
	replica.ReplicaOf = s.Primary
	for i := range s.Replicas {
		all.Go(func() (err error) {
			if s.Replicas[i], err = StartRedis(ctx, replica); err == nil {
				err = s.Replicas[i].says(ctx, "INFO replication", "master_link_status:up")
			}
			return err
		})
	}
	if err = all.Wait(); err != nil {
		return nil, err
	}
	for i := range s.Sentinels { // they look for replicas only every ten seconds, so start them last
		all.Go(func() (err error) {
			s.Sentinels[i], err = StartRedis(ctx, RedisOptions{Binary: opts.Binary, Watches: s.Primary, Quorum: 2})
			return err
		})
	}
	if err = all.Wait(); err != nil {
		return nil, err
	}
	for _, n := range s.Sentinels {
		if err = n.says(ctx, "INFO sentinel", "status=ok,address="+s.Primary.Addr+
			fmt.Sprintf(",slaves=%d,sentinels=%d", sentinelReplicas, sentinels)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// NewRedisSentinels returns sentinels with their servers for this test alone. They are closed when the test
// ends.
func NewRedisSentinels(t testing.TB, opts RedisOptions) *RedisSentinels {
	t.Helper()
	return closing(t, running(t, func() (*RedisSentinels, error) { return StartRedisSentinels(t.Context(), opts) }))
}

// Addrs returns the addresses of the sentinels.
func (s *RedisSentinels) Addrs() (addrs []string) {
	for _, n := range s.Sentinels {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Close stops all servers and removes their folders.
func (s *RedisSentinels) Close() (err error) {
	for _, n := range append(append(s.Sentinels[:sentinels:sentinels], s.Primary), s.Replicas[:]...) {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}

// Client returns a client that finds the primary through the sentinels. It is closed when the test ends.
func (s *RedisSentinels) Client(t testing.TB, change func(*redis.FailoverOptions)) *redis.Client {
	t.Helper()
	o := &redis.FailoverOptions{
		MasterName: SentinelName, SentinelAddrs: s.Addrs(), DialerRetries: 1, ContextTimeoutEnabled: true,
		DisableIdentity: true,
	}
	if change != nil {
		change(o)
	}
	client := redis.NewFailoverClient(o)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Errorf("close the client of the sentinels: %v", err)
		}
	})
	return client
}

// AwaitPromotion waits until a replica is promoted and all sentinels know the new primary. It returns that
// replica.
func (s *RedisSentinels) AwaitPromotion(t testing.TB) (promoted *RedisServer) {
	t.Helper()
	Eventually(t, startTimeout, func() bool {
		for _, r := range s.Replicas {
			text, err := r.order(t.Context(), "INFO", "replication")
			if err == nil && strings.Contains(text, "role:master") {
				promoted = r
				return true
			}
		}
		return false
	}, "a replica is promoted")
	for _, n := range s.Sentinels {
		n.Says(t, "INFO sentinel", "address="+promoted.Addr)
	}
	return promoted
}
