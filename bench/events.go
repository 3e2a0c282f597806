package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// shardCount and batch apply to the bare loops and to the consumers alike.
const (
	shardCount = 2
	batch      = 2_000 // grants
)

// campaignOn returns a campaign id whose home is the shard.
func campaignOn(st *store.Store, shard int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("bench-%d", i); st.Home(id).Index() == shard {
			return id
		}
	}
}

// events fills a deployment's streams with n grants, half of them on each shard. Each entry has 50 grants, as when many
// users grab at once.
func (r *fixture) events(ctx context.Context, n int) (*store.Store, []ledger.Campaign, error) {
	st, err := r.deployment(ctx, shardCount)
	if err != nil {
		return nil, nil, err
	}
	var campaigns []ledger.Campaign
	for shard := range shardCount {
		c, err := r.load(ctx, st, spec(campaignOn(st, shard), n/shardCount))
		if err != nil {
			return nil, nil, err
		}
		campaigns = append(campaigns, c)
		const entry = 50
		call := store.GrabCall{MaxBacklog: 1e9, FactNames: "device"}
		for i := 0; i < n/shardCount; i += entry {
			call.Grabs = call.Grabs[:0]
			for u := i; u < min(i+entry, n/shardCount); u++ {
				call.Grabs = append(call.Grabs, &hongbao.Grab{
					User: user(u), RequestID: fmt.Sprintf("r%05d", u%100_000),
					Facts: map[string]string{"device": fmt.Sprintf("d%07d", u/2)},
				})
			}
			if _, err := st.Shard(shard).Place(c.Spec.ID).Grab(ctx, &call, nil); err != nil {
				return nil, nil, err
			}
		}
	}
	return st, campaigns, nil
}

// bareLoop reads the group's entries with one goroutine per shard. It collects about a batch of grants, calls handle,
// and then acks the entries. Any consumer does at least this work. It returns grants per second.
func (r *fixture) bareLoop(ctx context.Context, st *store.Store, group string, n int,
	handle func(ctx context.Context, shard int, g []hongbao.Grant) error) (float64, error) {
	for shard := range st.Len() {
		if _, err := st.Shard(shard).Group(group).Create(ctx); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	_, err := crowd.Load{Callers: st.Len(), Calls: st.Len()}.Run(ctx, func(ctx context.Context, _, shard int) error {
		k := st.Shard(shard)
		for done := 0; done < n/st.Len(); {
			raw, err := k.Group(group).ReadNew(ctx, "bare", batch/50, time.Second)
			if err != nil {
				return err
			}
			var grants []hongbao.Grant
			ids := make([]string, len(raw))
			for i := range raw {
				e, err := stream.ParseEntry(shard, raw[i].ID, raw[i].Values)
				if err != nil {
					return err
				}
				grants, ids[i] = append(grants, e.Grants...), raw[i].ID
			}
			if err := handle(ctx, shard, grants); err != nil {
				return err
			}
			if err := r.rdb.XAck(ctx, k.Keys.Events(), group, ids...).Err(); err != nil {
				return fmt.Errorf("ack: %w", err)
			}
			done += len(grants)
		}
		return nil
	})
	return float64(n) / time.Since(start).Seconds(), err
}

// consume delivers all n grants to the handler through package consumer, and returns grants per second.
func (r *fixture) consume(ctx context.Context, st *store.Store, group string, n int, h hongbao.Handler) (float64,
	error) {
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler, cfg.BatchGrants = deployment.Of(st, zap.NewNop()), group, h, batch
	cfg.Block = 50 * time.Millisecond
	c, err := consumer.New(cfg)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- c.Run(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var spent time.Duration
	for spent == 0 {
		select {
		case err := <-ended:
			return 0, fmt.Errorf("the consumer ended early: %w", err)
		case <-tick.C:
			if s := c.Stats(); s.Done >= int64(n) {
				spent = time.Since(start)
			} else if s.Dead > 0 || time.Since(start) > 10*time.Minute {
				return 0, fmt.Errorf("the consumer makes no progress: %+v", s)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		return 0, err
	}
	if s := c.Stats(); s.Done != int64(n) || s.Dead+s.Parked+s.Skipped > 0 {
		return 0, errors.New("the consumer did not handle each grant exactly once")
	}
	return float64(n) / spent.Seconds(), nil
}
