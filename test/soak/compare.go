package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/lua"
	"github.com/hongbao-project/hongbao/publisher"
)

// compare holds the callers' history against the ledger's tables and the topic's records, without the audit's help.
func (s *soak) compare(ctx context.Context) error {
	if err := s.compareLedger(ctx); err != nil {
		return fmt.Errorf("compare with the ledger: %w", err)
	}
	if err := s.compareTopic(ctx); err != nil {
		return fmt.Errorf("compare with the topic: %w", err)
	}
	return nil
}

func (s *soak) campaign(id string) *raining {
	for _, c := range s.campaigns {
		if c.spec.ID == id {
			return c
		}
	}
	return nil
}

// compareLedger reads the tables by plain SQL: each grant that a caller was told of must be there once, with its user and amount,
// and nothing else; and each user's balance must be the sum of his grants.
func (s *soak) compareLedger(ctx context.Context) (err error) {
	db, err := pgx.Connect(ctx, s.servers.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close(ctx)) }()
	found := int64(0)
	rows, err := db.Query(ctx, "SELECT campaign, packet, user_id, amount FROM grants")
	if err != nil {
		return fmt.Errorf("read the grants: %w", err)
	}
	var id, user string
	var packet, amount int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &packet, &user, &amount}, func() error {
		s.outcome.Settled++
		if c := s.campaign(id); c != nil && c.told[packet] == (fact{user: user, amount: hongbao.Amount(amount)}) {
			found++
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read the grants: %w", err)
	}
	s.outcome.Lost += s.outcome.Granted - found
	want := map[string]int64{}
	for _, c := range s.campaigns {
		for _, f := range c.told {
			want[f.user] += int64(f.amount)
		}
	}
	if rows, err = db.Query(ctx, "SELECT id, balance FROM account WHERE kind = 'user'"); err != nil {
		return fmt.Errorf("read the balances: %w", err)
	}
	_, err = pgx.ForEachRow(rows, []any{&id, &amount}, func() error {
		if user := id[len("user:CNY:"):]; want[user] != amount {
			s.outcome.DoubleCredits++
		}
		return nil
	})
	return err
}

// compareTopic reads the whole topic: each grant that a caller was told of must be there once, and nothing else.
func (s *soak) compareTopic(ctx context.Context) error {
	v := &s.servers
	claims, err := dedup.NewClaims(dedup.Config{Redis: v.rdb, Space: v.space, Sink: "kafka", Owner: "soak", Lease: lease, TakeLive: true})
	if err != nil {
		return err
	}
	pc := v.cfg.PublisherConfig()
	pc.Worker = "soak"
	p, err := publisher.New(pc, claims, &lua.Reader{Redis: v.rdb, Space: v.space})
	if err != nil {
		return err
	}
	defer p.Close()
	type key struct {
		campaign string
		packet   int64
	}
	var mu sync.Mutex
	seen := map[key]bool{}
	found := int64(0)
	if _, err := p.Scan(ctx, nil, func(_ int, _ int64, e publisher.Event) error {
		mu.Lock()
		defer mu.Unlock()
		g := &e.Grant
		s.outcome.Published++
		k := key{g.Campaign, g.Packet}
		if seen[k] {
			s.outcome.Duplicates++
		} else if c := s.campaign(g.Campaign); c != nil && c.told[g.Packet] == (fact{user: g.User, amount: g.Amount}) {
			found++
		}
		seen[k] = true
		return nil
	}); err != nil {
		return err
	}
	s.outcome.Lost += s.outcome.Granted - found
	return nil
}
