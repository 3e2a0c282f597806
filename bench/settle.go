package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// settleRow compares Redis -> ledger by a whole consumer with a bare loop over the same entries, on the same tables.
func settleRow(name string, want float64, start func(context.Context) (*database, error)) row {
	return row{name, func(ctx context.Context, o options) ([]Result, error) {
		n := o.n(200_000)
		r, err := newFixture(ctx)
		if err != nil {
			return nil, err
		}
		db, err := start(ctx)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		b := &settleBench{fixture: r, db: db, n: n}
		results, err := b.rows(ctx, o, name, want)
		return results, errors.Join(err, db.close(), r.close())
	}}
}

type settleBench struct {
	fixture *fixture
	db      *database
	n, runs int
}

func (b *settleBench) rows(ctx context.Context, o options, name string, want float64) ([]Result, error) {
	ours := fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the settler: plan checked, "+
		"double entry, quarantine, leases, done bits; %s", b.n, shardCount, b.db.about)
	rows := []Result{{
		Name: name, Unit: "grants/s", Want: want, HowOurs: ours,
		HowBaseline: fmt.Sprintf("%d goroutines on the same entries and the same tables with their indices: XREADGROUP of %d "+
			"grants, one transaction that inserts the grants, adds to the users' balances and takes from the pool, XACK",
			shardCount, batch),
	}}
	runs := []func(context.Context) (float64, error){b.bare, b.ours}
	if b.db.plain != nil {
		rows = append(rows, Result{
			Name: name + "_plain", Unit: "grants/s", Want: want, HowOurs: ours,
			HowBaseline: "the same loop on two tables with primary keys and no other index, no CHECK, no pool; one statement",
		})
		runs = append(runs, b.plain)
	}
	figures := make([][]float64, len(runs))
	for range o.rounds {
		for i, run := range runs {
			rate, err := run(ctx)
			if err != nil {
				return nil, err
			}
			figures[i] = append(figures[i], rate)
		}
	}
	rows[0].compare(figures[1], figures[0])
	if len(rows) > 1 {
		rows[1].compare(figures[1], figures[2])
	}
	return rows, nil
}

// ours settles the events of a run.
func (b *settleBench) ours(ctx context.Context) (float64, error) {
	b.runs++
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
	rate, err := b.fixture.consume(ctx, layout, fmt.Sprintf("balance-%d", b.runs), b.n, settler)
	return rate, errors.Join(err, allGranted(ctx, books, campaigns), books.Close(), drop(ctx))
}

// bare brings the same events to the same tables by the least that a program can do.
func (b *settleBench) bare(ctx context.Context) (float64, error) {
	layout, campaigns, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return 0, err
	}
	config, drop, err := b.db.fresh(ctx)
	if err != nil {
		return 0, err
	}
	books, _, err := openLedger(ctx, config, campaigns)
	if err != nil {
		return 0, err
	}
	post, end, err := b.db.poster(ctx, config.DSN)
	if err != nil {
		return 0, errors.Join(err, books.Close())
	}
	rate, err := b.fixture.bareLoop(ctx, layout, "bare", b.n,
		func(ctx context.Context, _ int, grants []hongbao.Grant) error { return post(ctx, grants) })
	return rate, errors.Join(err, allGranted(ctx, books, campaigns), end(), books.Close(), drop(ctx))
}

// plain brings the same events to tables that a program would make which keeps no books.
func (b *settleBench) plain(ctx context.Context) (float64, error) {
	layout, _, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return 0, err
	}
	config, drop, err := b.db.fresh(ctx)
	if err != nil {
		return 0, err
	}
	post, end, err := b.db.plain(ctx, config.DSN)
	if err != nil {
		return 0, err
	}
	rate, err := b.fixture.bareLoop(ctx, layout, "bare", b.n,
		func(ctx context.Context, _ int, grants []hongbao.Grant) error { return post(ctx, grants) })
	return rate, errors.Join(err, end(), drop(ctx))
}

// allGranted tells that the ledger holds every packet of the campaigns.
func allGranted(ctx context.Context, books *ledger.Ledger, campaigns []ledger.Campaign) error {
	for _, c := range campaigns {
		t, _, err := books.Totals(ctx, c.Spec.ID)
		if err == nil && t.Granted != t.Funded {
			err = fmt.Errorf("campaign %s: %d of %d settled", c.Spec.ID, t.Granted, t.Funded)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openLedger opens an empty ledger with the campaigns in it, and a settler on it.
func openLedger(ctx context.Context, config ledger.Config, campaigns []ledger.Campaign) (*ledger.Ledger,
	*ledger.Settler, error) {
	if _, err := ledger.Migrate(ctx, config); err != nil {
		return nil, nil, err
	}
	books, err := ledger.Open(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range campaigns {
		if _, err := books.CreateCampaign(ctx, c); err != nil {
			return nil, nil, err
		}
	}
	plans, err := campaign.NewPlans(campaign.PlansConfig{
		MaxPackets: hongbao.MaxPackets,
		Source: func(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, error) {
			c, _, err := books.Campaign(ctx, id)
			return c.Spec, c.Seed, err
		},
	})
	if err != nil {
		return nil, nil, err
	}
	settler, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: books, Plan: plans, Log: zap.NewNop()})
	return books, settler, err
}
