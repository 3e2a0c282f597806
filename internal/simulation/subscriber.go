package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// The names of the subscribers' group, and of their topic of dead letters.
const (
	subscriberGroup = "points"
	deadTopic       = "hongbao.dead"
)

// newRows creates the database of the subscribers, with the table of their effects. It has no unique key, so a second
// effect of a grant is a second row.
func (w *world) newRows(ctx context.Context) (err error) {
	w.rows = &rows{file: w.dsn + ".rows", dying: map[*virtual.Proc]func(){}}
	db, err := sql.Open("sqlite", w.rows.dsn())
	if err != nil {
		return fmt.Errorf("open the subscribers' database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, `CREATE TABLE handled (campaign TEXT, packet INTEGER, user_id TEXT, amount INTEGER,
		shard INTEGER, seq INTEGER, request_id TEXT)`)
	return err
}

// handled is the effect of the subscribers: one row for each grant.
func handled(ctx context.Context, tx *sql.Tx, events []topic.Event) error {
	for i := range events {
		g := &events[i].Grant
		if _, err := tx.ExecContext(ctx, `INSERT INTO handled VALUES ($1, $2, $3, $4, $5, $6, $7)`, g.Campaign, g.Packet,
			g.User, int64(g.Amount), g.Shard, g.Seq, g.RequestID); err != nil {
			return err
		}
	}
	return nil
}

// subscribe lives as a program with a Subscriber.
func (s *slot) subscribe(ctx context.Context, cfg *configs.Config) (err error) {
	if err := s.w.enter(ctx); err != nil {
		return nil // it did not begin
	}
	broken := false
	defer func() { s.w.leave(broken) }()
	_, p := s.get()
	log, err := cfg.Logger(cfg.Seams.Log)
	if err != nil {
		return err
	}
	db := sql.OpenDB(&connector{s.w.rows, p})
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(2)
	sink, err := subscriber.NewSQL(ctx, subscriber.SQLConfig{DB: db, Dialect: "sqlite", Name: subscriberGroup,
		Timeout: 3 * time.Second, Effect: handled})
	if err != nil {
		return err
	}
	c := subscriber.DefaultConfig()
	c.Brokers, c.ClientID, c.Dial, c.Log = cfg.Publisher.Brokers, p.Name, p.Dial, log
	c.Topic, c.DeadLetters, c.Group, c.Deployment = kafkaTopic, deadTopic, subscriberGroup, cfg.Deployment.ID
	c.Sink, c.BatchEvents, c.MaxWait = sink, 50, 300*time.Millisecond
	c.Backoff, c.MaxBackoff, c.RequestTimeout = 50*time.Millisecond, time.Second, time.Second
	c.SessionTimeout, c.DrainTimeout, c.CommitTimeout = sessionTimeout, 2*time.Second, 2*time.Second
	sub, err := subscriber.New(c)
	if err != nil {
		return err
	}
	err = sub.Run(ctx)
	s.w.subscribed(p, sub.Stats())
	broken = hongbao.ClassOf(err) == hongbao.ClassBroken
	if broken && !s.w.plan.has(TopicAgain) {
		s.w.bug("%s: no topic was made again, and Run ended: %v", p.Name, err)
	}
	return err
}

// sessionTimeout is after how long the group gives away the partitions of a subscriber that died.
const sessionTimeout = 3 * time.Second

// subscribed notes what a subscriber did.
func (w *world) subscribed(p *virtual.Proc, s subscriber.Stats) {
	w.note("%s: %+v", p.Name, s)
	for what, n := range map[string]int64{"done": s.Done, "repeated": s.Repeated, "fence": s.Fences,
		"retry of the sink": s.Retries, "commit failed": s.CommitErrors, "read failed": s.ReadErrors} {
		if n > 0 {
			w.cover.note("subscriber", what)
		}
	}
	if s.Malformed+s.Refused > 0 {
		w.bug("%s: %d malformed and %d refused events, and no effect ever refuses one", p.Name, s.Malformed, s.Refused)
	}
}
