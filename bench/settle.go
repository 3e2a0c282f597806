package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// startPostgres starts one that does not lose what it has confirmed.
func startPostgres(ctx context.Context) (*testkit.PostgresServer, error) {
	pg, err := testkit.StartPostgres(ctx, testkit.PostgresOptions{Settings: map[string]string{
		"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "4GB",
	}})
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return pg, nil
}

// settleRow compares Redis -> PostgreSQL by a whole consumer with a bare loop over the same entries.
func settleRow(ctx context.Context, o options) ([]Result, error) {
	n := o.n(200_000)
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	pg, err := startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	res := Result{
		Name: "settle_postgres", Unit: "grants/s", Want: 0.85,
		HowOurs: fmt.Sprintf("%d grants in entries of 50 on %d shards through package consumer and the settler: plan "+
			"checked, double entry, quarantine, leases, done bits; PostgreSQL with fsync", n, shardCount),
		HowBaseline: fmt.Sprintf("%d goroutines on the same entries: XREADGROUP of %d grants, one statement that inserts "+
			"the grants and adds up the balances, XACK", shardCount, batch),
	}
	round := 0
	err = res.inTurn(ctx, o.rounds,
		func(ctx context.Context) (float64, error) { return bareSettle(ctx, r, pg, n) },
		func(ctx context.Context) (float64, error) {
			round++
			return ourSettle(ctx, r, pg, n, fmt.Sprintf("balance-%d", round))
		})
	return []Result{res}, errors.Join(err, pg.Close(), r.close())
}

const bareTables = `
CREATE TABLE grants (campaign text, packet bigint, usr text NOT NULL, amount bigint NOT NULL, shard int NOT NULL,
	seq bigint NOT NULL, epoch bigint NOT NULL, request_id text NOT NULL, granted_at bigint NOT NULL, PRIMARY KEY (campaign, packet));
CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL);`

const bareInsert = `
WITH g AS (
	INSERT INTO grants SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::int[], $6::bigint[],
		$7::bigint[], $8::text[], $9::bigint[])
	ON CONFLICT DO NOTHING RETURNING usr, amount)
INSERT INTO account SELECT usr, sum(amount) FROM g GROUP BY usr ORDER BY usr
ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance`

func bareSettle(ctx context.Context, r *fixture, pg *testkit.PostgresServer, n int) (float64, error) {
	layout, _, err := r.events(ctx, n)
	if err != nil {
		return 0, err
	}
	name, err := pg.CreateDatabase(ctx)
	if err != nil {
		return 0, err
	}
	pool, err := pgxpool.New(ctx, pg.DSN(name))
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	if _, err := pool.Exec(ctx, bareTables); err != nil {
		return 0, fmt.Errorf("make the bare tables: %w", err)
	}
	rate, err := r.bareLoop(ctx, layout, "bare", n, func(ctx context.Context, _ int, grants []hongbao.Grant) error {
		m := len(grants)
		campaigns, users, requests := make([]string, m), make([]string, m), make([]string, m)
		packets, amounts, seqs, epochs, times := make([]int64, m), make([]int64, m), make([]int64, m), make([]int64, m),
			make([]int64, m)
		on := make([]int32, m)
		for i := range grants {
			g := &grants[i]
			campaigns[i], packets[i], users[i], amounts[i], on[i] = g.Campaign, g.Packet, g.User, int64(g.Amount), int32(g.Shard)
			seqs[i], epochs[i], requests[i], times[i] = g.Seq, g.Epoch, g.RequestID, g.Time.UnixMilli()
		}
		_, err := pool.Exec(ctx, bareInsert, campaigns, packets, users, amounts, on, seqs, epochs, requests, times)
		return err
	})
	pool.Close()
	return rate, errors.Join(err, pg.DropDatabase(ctx, name))
}

func ourSettle(ctx context.Context, r *fixture, pg *testkit.PostgresServer, n int, group string) (float64, error) {
	layout, campaigns, err := r.events(ctx, n)
	if err != nil {
		return 0, err
	}
	name, err := pg.CreateDatabase(ctx)
	if err != nil {
		return 0, err
	}
	books, settler, err := openLedger(ctx, pg.DSN(name), campaigns)
	if err != nil {
		return 0, err
	}
	rate, err := r.consume(ctx, layout, group, n, settler)
	return rate, errors.Join(err, allGranted(ctx, books, campaigns), books.Close(), pg.DropDatabase(ctx, name))
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
func openLedger(ctx context.Context, dsn string, campaigns []ledger.Campaign) (*ledger.Ledger, *ledger.Settler, error) {
	config := ledger.Config{
		Driver: ledger.PostgreSQL, DSN: dsn, Conns: 8, ConnectTimeout: 5 * time.Second, LockTimeout: 10 * time.Second,
		Timeout: time.Minute, Retries: 10,
	}
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
