package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/producer"
)

// memoryRow compares how much memory a granted packet takes in Redis, after settlement and trimming. The classic design
// keeps JSON in a list, and a hash of users, permanently.
func memoryRow(ctx context.Context, o options) ([]Result, error) {
	n := o.n(250_000) // nearly fills a hash table of 2^18 buckets, as a million nearly fills 2^20
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	res := Result{
		Name: "memory_per_grant", Unit: "bytes", Want: 0.85, Below: true,
		HowOurs: fmt.Sprintf("used_memory of Redis per packet, without that of an empty Redis, after %d packets were loaded, granted "+
			"through package producer, settled in PostgreSQL, and trimmed from the stream with retention 0", n),
		HowBaseline: fmt.Sprintf("used_memory of Redis per packet, after the classic script granted %d packets: JSON in a list, users in a "+
			"hash", n),
	}
	err = res.inTurn(ctx, o.rounds,
		func(ctx context.Context) (float64, error) { return r.classicMemory(ctx, n) },
		func(ctx context.Context) (float64, error) { return r.ourMemory(ctx, n, db) })
	return []Result{res}, errors.Join(err, db.close(), r.close())
}

func (r *fixture) usedMemory(ctx context.Context) (float64, error) {
	m, err := r.info(ctx, "memory")
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(m["used_memory"], 64)
	if err != nil {
		return 0, fmt.Errorf("INFO memory: %w", err)
	}
	return v, nil
}

// grown returns how many bytes per packet f adds to the memory of an empty Redis.
func (r *fixture) grown(ctx context.Context, n int, f func() error) (float64, error) {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return 0, fmt.Errorf("empty redis: %w", err)
	}
	before, err := r.usedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := r.usedMemory(ctx)
	return (after - before) / float64(n), err
}

func (r *fixture) classicMemory(ctx context.Context, n int) (float64, error) {
	return r.grown(ctx, n, func() error { return r.classicGrabs(ctx, fleet{1, 20}, n, newMeter(r)) })
}

func (r *fixture) ourMemory(ctx context.Context, n int, db *database) (float64, error) {
	return r.grown(ctx, n, func() error {
		st, err := r.deployment(ctx, 1)
		if err != nil {
			return err
		}
		s := spec("bench", n)
		// This is the only limit that the classic script has.
		s.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}}
		c, err := r.load(ctx, st, s)
		if err != nil {
			return err
		}
		err = r.grabbing(ctx, st, func(p *producer.Producer) error {
			_, err := crowd.Load{Callers: 512, Calls: n}.Run(ctx, func(ctx context.Context, _, i int) error {
				return grab(ctx, p, userGrab(i), hongbao.OutcomeGranted)
			})
			return err
		})
		if err != nil {
			return err
		}
		books, err := db.open(ctx, []ledger.Campaign{c})
		if err != nil {
			return err
		}
		_, err = r.consume(ctx, st, "balance", n, books.settler)
		if err = errors.Join(err, books.end(ctx)); err != nil {
			return err
		}
		cfg := consumer.DefaultTrimmerConfig()
		cfg.Deployment, cfg.Groups = deployment.Of(st, zap.NewNop()), []string{"balance"}
		cfg.Retention, cfg.MaxEvents, cfg.ForgetAfter = 0, 0, time.Hour // trims every finished event
		t, err := consumer.NewTrimmer(cfg)
		if err != nil {
			return err
		}
		return t.Trim(ctx, 0)
	})
}
