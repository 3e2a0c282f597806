package main

import (
	"context"
	"database/sql"
	"fmt"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/topic"
)

// compare compares the callers' history with the ledger and the topic, independently of the audit.
func (s *soak) compare(ctx context.Context) error {
	if err := s.compareLedger(ctx); err != nil {
		return fmt.Errorf("compare with the ledger: %w", err)
	}
	if err := s.compareTopic(ctx); err != nil {
		return fmt.Errorf("compare with the topic: %w", err)
	}
	s.compareHook(ctx)
	return nil
}

// compareLedger reads the tables of the ledger by SQL. The ledger must have exactly the grants of the answers, each
// once, with the same user and amount. Each user's balance must be the sum of their grants.
func (s *soak) compareLedger(ctx context.Context) error {
	t := newTally(s.campaigns)
	var g hongbao.Grant
	if err := s.eachRow(ctx, "SELECT campaign, packet, user_id, amount, shard, seq FROM grants",
		[]any{&g.Campaign, &g.Packet, &g.User, &g.Amount, &g.Shard, &g.Seq}, func() { t.add(&g) }); err != nil {
		return fmt.Errorf("read the grants: %w", err)
	}
	s.outcome.Settled = t.events
	s.outcome.Lost += t.missing()
	var id string
	var amount int64
	want := map[string]int64{}
	for _, c := range s.campaigns {
		for _, f := range c.announced {
			want[f.user] += int64(f.amount)
		}
	}
	err := s.eachRow(ctx, "SELECT id, balance FROM account WHERE kind = 'user'", []any{&id, &amount}, func() {
		if user := id[len("user:CNY:"):]; want[user] != amount {
			s.outcome.DoubleCredits++
		}
	})
	if err != nil {
		return fmt.Errorf("read the balances: %w", err)
	}
	return nil
}

// eachRow runs a query in the ledger, and calls fn for each row, which it has scanned into dest.
func (s *soak) eachRow(ctx context.Context, query string, dest []any, fn func()) error {
	db, err := sql.Open(s.servers.driver, s.servers.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		fn()
	}
	return rows.Err()
}

// compareTopic reads the whole topic. It must have exactly the grants of the answers, each once.
func (s *soak) compareTopic(ctx context.Context) error {
	t, err := s.count(ctx, topicName)
	if err != nil {
		return err
	}
	s.outcome.Published, s.outcome.Duplicates = t.events, t.duplicates
	s.outcome.Lost += t.missing()
	return nil
}

// count reads a whole topic, and returns a tally of its grants.
func (s *soak) count(ctx context.Context, name string) (*tally, error) {
	v := &s.servers
	pc := v.cfg.PublisherConfig()
	pc.Topic = name
	log, err := publish.NewLog(pc)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	t := newTally(s.campaigns)
	report, err := log.Scan(ctx, nil, func(_ publish.Position, e topic.Event) error {
		t.add(&e.Grant)
		return nil
	})
	if err == nil && report.Malformed > 0 {
		err = fmt.Errorf("%d records of topic %s can't be read: %w", report.Malformed, name, report.FirstMalformed)
	}
	return t, err
}
