package main

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
)

// ledgerFixture is a ledger in its own database, with a settler.
type ledgerFixture struct {
	dsn       string
	ledger    *ledger.Ledger
	settler   *ledger.Settler
	campaigns []ledger.Campaign
	drop      func(context.Context) error
}

// open creates a fixture whose ledger contains the campaigns.
func (db *database) open(ctx context.Context, campaigns []ledger.Campaign) (*ledgerFixture, error) {
	dsn, drop, err := db.fresh(ctx)
	if err != nil {
		return nil, err
	}
	l, settler, err := openLedger(ctx, db.config(dsn), campaigns)
	if err != nil {
		return nil, errors.Join(err, drop(ctx))
	}
	return &ledgerFixture{dsn: dsn, ledger: l, settler: settler, campaigns: campaigns, drop: drop}, nil
}

// settled returns an error unless the ledger contains every packet of the campaigns.
func (b *ledgerFixture) settled(ctx context.Context) error {
	for _, c := range b.campaigns {
		t, _, err := books.Of(b.ledger.Tables()).Totals(ctx, c.Spec.ID)
		if err == nil && t.Granted != t.Funded {
			err = fmt.Errorf("campaign %s: %d of %d settled", c.Spec.ID, t.Granted, t.Funded)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *ledgerFixture) end(ctx context.Context) error {
	return errors.Join(b.ledger.Close(), b.drop(ctx))
}

// openLedger creates the tables of a ledger, inserts the campaigns, and opens a settler on it.
func openLedger(ctx context.Context, config ledger.Config, campaigns []ledger.Campaign) (*ledger.Ledger,
	*ledger.Settler, error) {
	if _, err := ledger.Migrate(ctx, config); err != nil {
		return nil, nil, err
	}
	books, err := ledger.Open(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if err := foundShards(ctx, books); err != nil {
		return nil, nil, err
	}
	for _, c := range campaigns {
		if _, err := books.CreateCampaign(ctx, c); err != nil {
			return nil, nil, err
		}
	}
	plans, err := campaign.NewPlans(campaign.PlansConfig{
		MaxPackets: hongbao.MaxPackets,
		Source:     books.Plan,
	})
	if err != nil {
		return nil, nil, err
	}
	settler, err := ledger.NewSettler(ledger.SettlerConfig{Ledger: books, Plan: plans, Log: zap.NewNop()})
	return books, settler, err
}

// foundShards initializes a deployment and its shards in a ledger that has none, because a settler checks them.
func foundShards(ctx context.Context, l *ledger.Ledger) error {
	if _, err := l.Deployment(ctx); !errors.Is(err, ledger.ErrNotInitialized) {
		return err
	}
	_, err := l.Initialize(ctx, ledger.Deployment{ID: "bench", KeyPrefix: "hb", Shards: shardCount})
	for shard := range shardCount {
		if err == nil {
			err = l.SetShard(ctx, shard, 0, ledger.ShardState{Epoch: 1})
		}
	}
	return err
}
