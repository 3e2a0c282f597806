package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/retry"
)

const (
	partitions = 4
	topicName  = "hongbao.grants"
)

// servers are what the demo talks to; nothing of them is left after close.
type servers struct {
	redisAddr, kafkaAddr string
	redis                *exec.Cmd
	mini                 *miniredis.Miniredis
	aging                func() // ends the passing of mini's time, and waits for it
	kafka                *kfake.Cluster
}

// startServers starts them. What was started is in the answer even after an error.
func (d *Demo) startServers() (*servers, error) {
	s := &servers{}
	if path, err := exec.LookPath("redis-server"); err == nil {
		if err := s.startRedis(path, d.dir); err != nil {
			return s, err
		}
		fmt.Fprintf(d.Out, "redis     %s at %s, appendonly yes\n", path, s.redisAddr)
	} else {
		if s.mini, err = miniredis.Run(); err != nil {
			return s, fmt.Errorf("start miniredis: %w", err)
		}
		s.redisAddr, s.aging = s.mini.Addr(), age(s.mini)
		fmt.Fprintln(d.Out, "redis     miniredis, in this process: no redis-server is on the PATH. It counts deliveries and "+
			"idle times\n"+
			"          differently: for looking, not for money")
	}
	var err error
	if s.kafka, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topicName)); err != nil {
		return s, fmt.Errorf("start the in-process Kafka broker: %w", err)
	}
	s.kafkaAddr = s.kafka.ListenAddrs()[0]
	fmt.Fprintf(d.Out, "kafka     kfake, in this process, topic %s\nledger    SQLite in %s\n", topicName, d.dir)
	return s, nil
}

// age lets keys expire, which miniredis does not by itself: else a worker that was killed would lead for ever.
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

func (s *servers) startRedis(path, dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	s.redisAddr = l.Addr().String()
	port := l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // a TCP listener's
	if err := l.Close(); err != nil {
		return fmt.Errorf("find a free port: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, "redis.log"))
	if err != nil {
		return fmt.Errorf("make the log of redis: %w", err)
	}
	s.redis = exec.Command(path, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--appendonly", "yes",
		"--save", "",
		"--maxmemory-policy", "noeviction")
	s.redis.Stdout, s.redis.Stderr = log, log
	dieWithParent(s.redis)
	err = s.redis.Start()
	if err = errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: s.redisAddr, MaxRetries: -1, ContextTimeoutEnabled: true})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err = rdb.Ping(ctx).Err(); err != nil && ctx.Err() == nil; err = rdb.Ping(ctx).Err() {
		<-tick.C
	}
	if err = errors.Join(err, rdb.Close()); err != nil {
		return fmt.Errorf("%s does not answer: %w", path, err)
	}
	return nil
}

func (s *servers) close() error {
	if s.kafka != nil {
		s.kafka.Close()
	}
	if s.mini != nil {
		s.aging()
		s.mini.Close()
	}
	if s.redis == nil || s.redis.Process == nil {
		return nil
	}
	if err := s.redis.Process.Kill(); err != nil {
		return fmt.Errorf("stop redis: %w", err)
	}
	_ = s.redis.Wait() // says that it was killed
	return nil
}

// lossyRedis is a client to the same server, of which every so-many-th answer is lost after the server has acted.
func lossyRedis(cfg *configs.Config, every int64, lost func()) (*redis.Client, error) {
	base, ok := cfg.RedisClient().(*redis.Client)
	if !ok {
		return nil, errors.New("the demo needs a standalone Redis")
	}
	opts := *base.Options()
	if err := base.Close(); err != nil {
		return nil, fmt.Errorf("close a client: %w", err)
	}
	n := newEvery(every)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: opts.DialTimeout}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: c, loses: n, lost: lost}, nil
	}
	return redis.NewClient(&opts), nil
}
