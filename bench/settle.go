package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// settleRow compares package consumer and the settler with a bare loop over the same entries and the same tables.
func settleRow(name string, grants int, want float64, start func(context.Context) (*database, error)) row {
	return row{name, func(ctx context.Context, o options) ([]Result, error) {
		n := o.n(grants)
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
	n       int
}

// begin creates the events of a run, and a ledger with their campaigns and no grants.
func (b *settleBench) begin(ctx context.Context) (*store.Store, *ledgerFixture, error) {
	st, campaigns, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return nil, nil, err
	}
	books, err := b.db.open(ctx, campaigns)
	return st, books, err
}

func (b *settleBench) rows(ctx context.Context, o options, name string, want float64) ([]Result, error) {
	ours := fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the settler, with the "+
		"check of the plan, double entry, quarantine, leases and done bits; %s", b.n, shardCount, b.db.about)
	rows := []Result{{
		Name: name, Unit: "grants/s", Want: want, HowOurs: ours,
		HowBaseline: fmt.Sprintf("%d goroutines on the same entries and the same tables with their indices: XREADGROUP of %d grants, then "+
			"one transaction that inserts the grants, adds to the users' balances and takes from the pool, then XACK",
			shardCount, batch),
	}}
	runs := []func(context.Context) (float64, error){b.bare, b.ours}
	if b.db.plain != nil {
		rows = append(rows, Result{
			Name: name + "_plain", Unit: "grants/s", Want: want, HowOurs: ours,
			HowBaseline: "the same loop in one statement, on two tables with only primary keys: without other indices, CHECK and " +
				"pool",
		})
		runs = append(runs, b.plain)
	}
	rates, err := inTurn(ctx, o.rounds, runs...)
	if err != nil {
		return nil, err
	}
	rows[0].compare(rates[1], rates[0])
	if len(rows) > 1 {
		rows[1].compare(rates[1], rates[2])
	}
	return rows, nil
}

func (b *settleBench) ours(ctx context.Context) (float64, error) {
	st, books, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	rate, err := b.fixture.consume(ctx, st, "balance", b.n, books.settler)
	return rate, errors.Join(err, books.settled(ctx), books.end(ctx))
}

// bare delivers the events of a run to the same tables by a loop that does only the necessary work.
func (b *settleBench) bare(ctx context.Context) (float64, error) {
	st, books, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	post, end, err := b.db.batchWriter(ctx, books.dsn)
	if err != nil {
		return 0, errors.Join(err, books.end(ctx))
	}
	rate, err := b.loop(ctx, st, post)
	return rate, errors.Join(err, books.settled(ctx), end(), books.end(ctx))
}

// plain delivers the events of a run to the tables of a program without double entry.
func (b *settleBench) plain(ctx context.Context) (float64, error) {
	st, _, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return 0, err
	}
	dsn, drop, err := b.db.fresh(ctx)
	if err != nil {
		return 0, err
	}
	post, end, err := b.db.plain(ctx, dsn)
	if err != nil {
		return 0, errors.Join(err, drop(ctx))
	}
	rate, err := b.loop(ctx, st, post)
	return rate, errors.Join(err, end(), drop(ctx))
}

func (b *settleBench) loop(ctx context.Context, st *store.Store, post batchWriter) (float64, error) {
	return b.fixture.bareLoop(ctx, st, "bare", b.n,
		func(ctx context.Context, _ int, grants []hongbao.Grant) error { return post(ctx, grants) })
}
