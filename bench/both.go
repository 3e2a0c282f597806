package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/publish"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// bothRow has the ledger and the topic served from the same streams at once, against the slower one alone.
func bothRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	broker, err := startKafka(ctx)
	if err != nil {
		return nil, errors.Join(err, db.close(), r.close())
	}
	b := &bothBench{publishBench{fixture: r, broker: broker, n: o.n(200_000)}, db}
	res := Result{
		Name: "both_sinks", Unit: "grants/s", Want: 0.7,
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards to PostgreSQL and to Kafka at once, by a consumer for "+
			"each in one process, until the slower one is done", b.n, shardCount),
		HowBaseline: "the same to PostgreSQL alone, which is the slower one",
	}
	err = res.inTurn(ctx, o.rounds,
		func(ctx context.Context) (float64, error) { return b.run(ctx, false) },
		func(ctx context.Context) (float64, error) { return b.run(ctx, true) })
	return []Result{res}, errors.Join(err, broker.Close(), db.close(), r.close())
}

type bothBench struct {
	publishBench
	db *database
}

// run settles the events of a run, and publishes them at the same time if both is set. It gives the slower rate.
func (b *bothBench) run(ctx context.Context, both bool) (float64, error) {
	layout, campaigns, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return 0, err
	}
	config, drop, err := b.db.fresh(ctx)
	if err != nil {
		return 0, err
	}
	books, settler, err := openLedger(ctx, config, campaigns)
	if err != nil {
		return 0, err
	}
	var rates [2]float64
	group, ctx2 := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		rates[0], err = b.fixture.consume(ctx2, layout, fmt.Sprintf("balance-%d", b.runs), b.n, settler)
		return err
	})
	if both {
		p, err := b.sink(ctx, layout)
		if err != nil {
			return 0, errors.Join(err, group.Wait())
		}
		defer p.Close()
		group.Go(func() (err error) {
			rates[1], err = b.fixture.consume(ctx2, layout, fmt.Sprintf("kafka-%d", b.runs), b.n, p)
			return err
		})
	}
	err = group.Wait()
	slower := rates[0]
	if both {
		slower = min(slower, rates[1])
	}
	return slower, errors.Join(err, allGranted(ctx, books, campaigns), closed(ctx, books, drop))
}

// sink makes a publisher to a topic of its own.
func (b *bothBench) sink(ctx context.Context, layout *shards.Layout) (*publish.Publisher, error) {
	topic, err := b.topic(ctx)
	if err != nil {
		return nil, err
	}
	return b.publisher(layout, topic, fmt.Sprintf("kafka-%d", b.runs), "none",
		&shards.Reader{Redis: b.fixture.rdb, Layout: layout})
}

func closed(ctx context.Context, books *ledger.Ledger, drop func(context.Context) error) error {
	return errors.Join(books.Close(), drop(ctx))
}
