package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const (
	firstFailover = 30 * time.Second
	nextFailover  = time.Minute
	failoverTime  = 2 * time.Minute // bounds a failover; restoring workers are killed, too
)

// loseWrites kills the primary once a minute until over is closed. With class fast every replica lags at that time.
// With class replica one replica has every write, and the sentinels promote it.
func (s *soak) loseWrites(ctx context.Context, over <-chan struct{}) error {
	if s.lose == "" {
		return nil
	}
	set := s.servers.set
	all := append([]*testkit.RedisServer{set.Primary}, set.Replicas[:]...)
	wait := time.NewTimer(firstFailover)
	defer wait.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-wait.C:
		}
		wait.Reset(nextFailover)
		bounded, cancel := context.WithTimeout(ctx, failoverTime)
		err := s.failOver(bounded, all)
		cancel()
		if err != nil {
			return fmt.Errorf("failover %d: %w", s.outcome.Failovers+1, err)
		}
		s.outcome.Failovers++
	}
}

// failOver kills the primary among all, restarts it as a replica of the new primary, and waits until all shards are
// open.
func (s *soak) failOver(ctx context.Context, all []*testkit.RedisServer) error {
	primary, err := primaryOf(ctx, all)
	if err != nil {
		return err
	}
	late := slices.DeleteFunc(slices.Clone(all), func(r *testkit.RedisServer) bool { return r == primary })
	if s.lose == string(hongbao.DurabilityReplica) {
		late = late[:1]
	}
	epochs := make([]int64, shardCount)
	for i := range epochs {
		h, err := s.servers.store.Shard(i).Head(ctx)
		if err != nil {
			return err
		}
		epochs[i] = h.Epoch
	}
	lag := 500*time.Millisecond + rand.N(2500*time.Millisecond)
	for _, r := range late {
		if err := order(ctx, r, "REPLICAOF", "127.0.0.1", "1"); err != nil { // no server listens there
			return err
		}
	}
	retry.Pause(ctx, lag)
	if err := primary.Kill(); err != nil {
		return err
	}
	killed := time.Now()
	others := slices.DeleteFunc(slices.Clone(all), func(r *testkit.RedisServer) bool { return r == primary })
	var promoted *testkit.RedisServer
	err = retry.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
		promoted, err = primaryOf(ctx, others)
		return err == nil, nil
	})
	if err != nil {
		return errors.Join(err, errors.New("no replica was promoted"))
	}
	since := time.Now()
	if err := primary.Restart(); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(promoted.Addr) // the address is valid
	if err := order(ctx, primary, "REPLICAOF", host, port); err != nil {
		return err
	}
	for i := range epochs {
		if err := retry.Poll(ctx, 20*time.Millisecond, func() (bool, error) {
			h, err := s.servers.store.Shard(i).OpenHead(ctx)
			return err == nil && h.Epoch > epochs[i], nil
		}); err != nil {
			return fmt.Errorf("shard %d does not open: %w", i, err)
		}
	}
	s.say("failover: %d replicas lagged %s, one was promoted %.1f s after the kill, all shards were open %.1f s later", len(late),
		lag.Round(time.Millisecond), since.Sub(killed).Seconds(), time.Since(since).Seconds())
	return nil
}

var errNoPrimary = errors.New("no server is a primary")

func primaryOf(ctx context.Context, all []*testkit.RedisServer) (*testkit.RedisServer, error) {
	for _, r := range all {
		client := redis.NewClient(r.Options())
		text, err := client.Info(ctx, "replication").Result()
		if err = errors.Join(err, client.Close()); err == nil && strings.Contains(text, "role:master") {
			return r, nil
		}
	}
	return nil, errNoPrimary
}

func order(ctx context.Context, r *testkit.RedisServer, args ...any) error {
	client := redis.NewClient(r.Options())
	return errors.Join(client.Do(ctx, args...).Err(), client.Close())
}

// countRestored sums up the counts in the reports of `hongbao recover`.
func (s *soak) countRestored(ctx context.Context) error {
	if s.lose == "" {
		return nil
	}
	out, err := s.hongbao(ctx, "recover", "--json")
	var report struct {
		Restored []model.Restored `json:"restored"`
	}
	if err = errors.Join(err, json.Unmarshal(out, &report)); err != nil {
		return fmt.Errorf("read what was restored: %w", err)
	}
	for i := range report.Restored {
		r := &report.Restored[i]
		if r.First > 0 { // else no loss is known
			s.outcome.RedisLost += r.Last - r.First + 1
		}
		s.outcome.Restored += int64(r.Ledger + r.Topic + r.Witnesses)
		s.say("shard %d, epoch %d: %+v", r.Shard, r.Epoch, r.RestoreCounts)
	}
	return nil
}
