package subscriber

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

// The dialects. PostgreSQL is tested with pgx's stdlib driver and SQLite with modernc.org/sqlite; any other driver
// with placeholders like $1 can be used.
const (
	postgreSQL = "postgres"
	sqLite     = "sqlite"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

// SQLConfig configures NewSQL. A zero is refused.
type SQLConfig struct {
	// DB is the pool of the database that has the effect and the position. The caller bounds and closes it.
	DB *sql.DB
	// Dialect is "postgres" or "sqlite".
	Dialect string
	// Name of the position: the consumer group, as a rule. Two subscribers with one name share a position, so each event
	// has its effect in one of them only.
	Name string
	// Timeout bounds one transaction with all its waits. 10 ms to 10 min.
	Timeout time.Duration
	// Effect of events that were not seen, in their order, at most the subscriber's BatchEvents. Everything that it
	// does in tx is stored with the position or not at all; its work outside tx is not protected. It must not end tx.
	// The class of its error decides what happens next, see Sink.
	Effect func(ctx context.Context, tx *sql.Tx, events []topic.Event) error
}

type sqlSink struct{ cfg SQLConfig }

// NewSQL makes a Sink that runs the effect in the transaction that stores the position. So each event has its effect
// exactly once, whichever process dies at whatever moment. Several processes may share one position: a row lock a
// shard separates them, on SQLite its one write lock. NewSQL checks the configuration and that the database keeps
// confirmed commits. It makes the table hongbao_position if it is missing.
func NewSQL(ctx context.Context, cfg SQLConfig) (Sink, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &sqlSink{cfg: cfg}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if err := s.checkServer(ctx); err != nil {
		return nil, fmt.Errorf("subscriber: %w", err)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, fmt.Errorf("subscriber: making the table hongbao_position: %w; let this user CREATE TABLE, or run "+
			"subscriber/schema/%s.sql by hand",
			err, cfg.Dialect)
	}
	return s, nil
}

func (c *SQLConfig) check() error {
	var errs []error
	if c.DB == nil || c.Effect == nil {
		errs = append(errs, errors.New("DB and Effect are required"))
	}
	if c.Dialect != postgreSQL && c.Dialect != sqLite {
		errs = append(errs, fmt.Errorf("dialect %.40q does not exist: want %q or %q", c.Dialect, postgreSQL, sqLite))
	}
	if err := hongbao.CheckID(c.Name); err != nil {
		errs = append(errs, fmt.Errorf("name %.140q: %w", c.Name, err))
	}
	if c.Timeout < 10*time.Millisecond || c.Timeout > 10*time.Minute {
		errs = append(errs, fmt.Errorf("timeout is %s: want 10ms to 10m", c.Timeout))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("subscriber: position in SQL: %w", errors.Join(errs...))
}

// checkServer refuses a database that may forget a commit: the offset in Kafka would have advanced, and the effect
// would be lost.
func (s *sqlSink) checkServer(ctx context.Context) error {
	var level string
	if s.cfg.Dialect == postgreSQL {
		if err := s.cfg.DB.QueryRowContext(ctx, `SHOW synchronous_commit`).Scan(&level); err != nil {
			return fmt.Errorf("asking PostgreSQL for synchronous_commit: %w", err)
		}
		if level == "off" {
			return errors.New("synchronous_commit is off: a crash would forget effects whose offsets are committed; set it on " +
				"for this user")
		}
		return nil
	}
	if err := s.cfg.DB.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return fmt.Errorf("asking SQLite for PRAGMA synchronous: %w", err)
	}
	if level == "0" || level == "1" {
		return errors.New("PRAGMA synchronous is OFF or NORMAL: a crash would forget effects whose offsets are committed; " +
			"open it with _pragma=synchronous(FULL)")
	}
	return nil
}

func (s *sqlSink) migrate(ctx context.Context) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		statements := []string{sqliteSchema}
		if s.cfg.Dialect == postgreSQL { // where CREATE TABLE IF NOT EXISTS fails if two processes run it at once
			statements = []string{`SELECT pg_advisory_xact_lock(7166473318641)`, postgresSchema}
		}
		for _, statement := range statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// transact commits the changes of fn, or nothing.
func (s *sqlSink) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.cfg.DB.BeginTx(ctx, nil)
	if err != nil {
		return down("begin a transaction", err)
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() // the connection may be gone, and the transaction with it
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the effect and its position: %w", err)
	}
	return nil
}

// down returns an error that occurs before the effect: no event caused it.
func down(what string, err error) error {
	return hongbao.Outagef(hongbao.ClassTransient, "%s: %w", what, err)
}

// Push implements Sink: all or nothing, so Report.Next is 0 with an error.
func (s *sqlSink) Push(ctx context.Context, events []topic.Event) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var r Report
	err := s.transact(ctx, func(tx *sql.Tx) error {
		held, err := s.hold(ctx, tx, events)
		if err != nil {
			return err
		}
		var fresh []topic.Event
		r, fresh = sift(held, events)
		if len(fresh) == 0 {
			return nil
		}
		if err := s.cfg.Effect(ctx, tx, fresh); err != nil {
			return fmt.Errorf("the effect of %d events from %s on: %w", len(fresh), fresh[0].Grant.EventID(), err)
		}
		return s.write(ctx, tx, held)
	})
	if err != nil {
		return Report{}, s.judge(err)
	}
	return r, nil
}

// sift notes the events in the positions and returns the new ones.
func sift(held map[shardOf]*position, events []topic.Event) (r Report, fresh []topic.Event) {
	for i := range events {
		p := held[shardFor(&events[i])]
		switch p.Look(events[i].Grant.Seq) {
		case sightSeen:
			r.Repeated++
		case sightTooOld:
			r.TooOld = append(r.TooOld, i)
		case sightFresh:
			p.Add(events[i].Grant.Seq)
			fresh = append(fresh, events[i])
			r.Done++
		}
	}
	r.Next = len(events)
	return r, fresh
}

// hold locks the rows of the events' shards, always in the same order, and reads them. Its first statement is a write:
// on SQLite a transaction that reads first may fail at its first write.
func (s *sqlSink) hold(ctx context.Context, tx *sql.Tx, events []topic.Event) (map[shardOf]*position, error) {
	held := map[shardOf]*position{}
	var order []shardOf
	for i := range events {
		k := shardFor(&events[i])
		if held[k] == nil {
			held[k] = &position{}
			order = append(order, k)
		}
	}
	slices.SortFunc(order, func(a,
		b shardOf) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(a.shard, b.shard))
	})
	for _, k := range order {
		var seen []byte
		row := tx.QueryRowContext(ctx, `INSERT INTO hongbao_position (name, source, shard, turns, seen)
			VALUES ($1, $2, $3, 1, $4)
			ON CONFLICT (name, source, shard) DO UPDATE SET turns = hongbao_position.turns + 1 RETURNING seen`,
			s.cfg.Name, k.source, k.shard, []byte{})
		if err := row.Scan(&seen); err != nil {
			return nil, down(fmt.Sprintf("lock the position of shard %d", k.shard), err)
		}
		if err := held[k].UnmarshalBinary(seen); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken,
				"hongbao_position of %q, %q, shard %d: %w; restore the row from a backup, or use the build that wrote it",
				s.cfg.Name, k.source, k.shard, err)
		}
	}
	return held, nil
}

func (s *sqlSink) write(ctx context.Context, tx *sql.Tx, held map[shardOf]*position) error {
	for k, p := range held {
		seen, err := p.MarshalBinary()
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE hongbao_position SET seen = $1
			WHERE name = $2 AND source = $3 AND shard = $4`,
			seen, s.cfg.Name, k.source, k.shard); err != nil {
			return fmt.Errorf("store the position of shard %d: %w", k.shard, err)
		}
	}
	return nil
}

// judge makes an error without a class an outage if the database does not answer: then no event caused it.
func (s *sqlSink) judge(err error) error {
	var classed *hongbao.Error
	if errors.As(err, &classed) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	if _, probe := s.cfg.DB.ExecContext(ctx, `DELETE FROM hongbao_position WHERE name = $1 AND turns < 0`,
		s.cfg.Name); probe != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w; and the database does not take writes: %w", err, probe)
	}
	return err
}

// Skip implements Sink.
func (s *sqlSink) Skip(ctx context.Context, event topic.Event) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	err := s.transact(ctx, func(tx *sql.Tx) error {
		held, err := s.hold(ctx, tx, []topic.Event{event})
		if err != nil {
			return err
		}
		held[shardFor(&event)].Add(event.Grant.Seq)
		return s.write(ctx, tx, held)
	})
	if err == nil {
		return nil
	}
	return s.judge(err)
}
