package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
)

const (
	partitions = 4
	topicName  = "hongbao.grants"
)

// Servers are Redis and Kafka, each behind a proxy. The ledger is a SQLite file and needs no server.
type Servers struct {
	// Redis and Kafka are the proxies to which every client connects. They cause the faults. The configuration has
	// the addresses of the proxies.
	Redis, Kafka *proxy.Proxy
	// RedisPath is the path of redis-server; if it is empty, Redis is a miniredis in this process.
	RedisPath string

	direct string         // the address of Redis itself
	kafka  *kfake.Cluster // in this process
	redis  *redisServer
	mini   *miniredis.Miniredis
	aging  func() // stops the clock of mini, and waits until it has stopped
}

// findRedis returns the path of redis-server, or "" if it is not installed. To keep data it must be installed,
// because miniredis writes no files.
func findRedis(kept bool) (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil && kept {
		return "", app.Usage("--data-dir: there is no redis-server on the PATH, and the Redis inside this program keeps " +
			"nothing: install redis-server (apt-get install redis-server, brew install redis), or leave --data-dir out")
	}
	return path, nil
}

// startServers starts the servers. After an error it still returns the servers that run, so that the caller can
// close them.
func startServers(ctx context.Context, redisPath string, f *folder) (s *Servers, err error) {
	s = &Servers{RedisPath: redisPath}
	if redisPath != "" {
		err = s.startRedis(ctx, f.path)
	} else if s.mini, err = miniredis.Run(); err == nil {
		s.mini.Server().SetPreHook(answerInfo(s.mini))
		s.aging = age(s.mini)
		s.direct = s.mini.Addr()
		s.Redis, err = proxy.Start(s.direct)
	}
	if err != nil {
		return s, fmt.Errorf("start Redis: %w", err)
	}
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(partitions, topicName), kfake.ListenFn(s.kafkaBehind)}
	if f.kept {
		opts = append(opts, kfake.DataDir(filepath.Join(f.path, "kafka")))
	}
	if s.kafka, err = kfake.NewCluster(opts...); err != nil {
		return s, fmt.Errorf("start the in-process Kafka broker: %w", err)
	}
	return s, nil
}

// answerInfo makes miniredis answer every INFO with the one section that it knows. Otherwise miniredis would return
// an error.
func answerInfo(mini *miniredis.Miniredis) server.Hook {
	const known = "clients"
	return func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" || len(args) == 1 && args[0] == known {
			return false
		}
		mini.Server().Dispatch(c, []string{cmd, known})
		return true
	}
}

// age advances the clock of miniredis, which by itself never expires keys. Otherwise a killed worker's lead
// would never end.
func age(mini *miniredis.Miniredis) (end func()) {
	const step = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var aging sync.WaitGroup
	aging.Go(func() {
		for retry.Pause(ctx, step) {
			mini.FastForward(step)
		}
	})
	return func() {
		cancel()
		aging.Wait()
	}
}

// startRedis starts redis-server and its proxy, and waits until Redis answers through the proxy.
func (s *Servers) startRedis(ctx context.Context, folder string) (err error) {
	if s.redis, err = startRedis(ctx, s.RedisPath, folder); err != nil {
		return err
	}
	s.direct = s.redis.addr
	if s.Redis, err = proxy.Start(s.direct); err != nil {
		return err
	}
	return s.redis.await(ctx, s.Redis.Addr)
}

// kafkaBehind opens the broker's listener and starts a proxy in front of it. The broker tells its clients the
// address of its listener, so the listener returns the proxy's address.
func (s *Servers) kafkaBehind(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("listen for Kafka: %w", err)
	}
	if s.Kafka, err = proxy.Start(l.Addr().String()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return behind{l, netip.MustParseAddrPort(s.Kafka.Addr)}, nil
}

// behind is a listener that returns the address of the proxy in front of it.
type behind struct {
	net.Listener
	front netip.AddrPort
}

// Addr returns the address of the proxy.
func (b behind) Addr() net.Addr { return net.TCPAddrFromAddrPort(b.front) }

// close stops the servers that were started.
func (s *Servers) close() (err error) {
	for _, p := range []*proxy.Proxy{s.Kafka, s.Redis} {
		if p != nil {
			err = errors.Join(err, p.Close())
		}
	}
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.mini != nil {
		s.aging()
		s.mini.Close()
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.close(redisEnd))
	}
	return err
}
