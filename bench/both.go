package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
)

// bothRow compares two consumers that settle and publish the same streams at once with the slower of the two alone.
func bothRow(ctx context.Context, o options) ([]Result, error) {
	topics, err := newPublishBench(ctx, o.n(200_000))
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, topics.close())
	}
	b := &bothBench{settleBench{fixture: topics.fixture, db: db, n: topics.n}, topics}
	res := Result{
		Name: "both_sinks", Unit: "grants/s", Want: 0.7,
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards to PostgreSQL and to Kafka at the same time, until the slower "+
			"sink has finished all. One process has a consumer for each sink", b.n, shardCount),
		HowBaseline: "the same grants to PostgreSQL alone, the slower sink",
	}
	err = res.inTurn(ctx, o.rounds, b.settleBench.ours, b.both)
	return []Result{res}, errors.Join(err, db.close(), topics.close())
}

type bothBench struct {
	settleBench
	topics *publishBench
}

// both settles and publishes the events of a run at the same time. It returns the slower rate.
func (b *bothBench) both(ctx context.Context) (float64, error) {
	st, books, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	topic, err := b.topics.topic(ctx)
	if err != nil {
		return 0, errors.Join(err, books.end(ctx))
	}
	p, err := b.topics.sink(st, topic, "none")
	if err != nil {
		return 0, errors.Join(err, books.end(ctx))
	}
	defer p.Close()
	groups, handlers := []string{"balance", "kafka"}, []hongbao.Handler{books.settler, p}
	rates := make([]float64, len(groups))
	all, both := errgroup.WithContext(ctx)
	for i, group := range groups {
		all.Go(func() (err error) {
			rates[i], err = b.fixture.consume(both, st, group, b.n, handlers[i])
			return err
		})
	}
	err = all.Wait()
	return slices.Min(rates), errors.Join(err, books.settled(ctx), books.end(ctx))
}
