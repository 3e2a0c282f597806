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

// The dialects. PostgreSQL is tested with the stdlib driver of pgx, and SQLite with modernc.org/sqlite. Other drivers
// with placeholders like $1 work too.
const (
	postgreSQL = "postgres"
	sqLite     = "sqlite"
)

//go:embed schema/postgres.sql
var postgresSchema string

//go:embed schema/sqlite.sql
var sqliteSchema string

// SQLConfig configures NewSQL. All fields are required.
type SQLConfig struct {
	// DB is the database of the effects, where the position is stored too. The caller limits its connections and
	// closes it.
	DB *sql.DB
	// Dialect is "postgres" or "sqlite".
	Dialect string
	// Name is the name of the position, usually the consumer group. Two subscribers with the same name share a
	// position, so each event has its effect in only one of them.
	Name string
	// Timeout limits one transaction, from 10 ms to 10 min.
	Timeout time.Duration
	// Effect runs the effects of new events, in their order. It gets at most BatchEvents events. Its writes in tx are
	// committed together with the position; effects outside tx may happen twice. Effect must not commit or roll back
	// tx. The class of its error says what happens next, see Sink.
	Effect func(ctx context.Context, tx *sql.Tx, events []topic.Event) error
}

type sqlSink struct{ cfg SQLConfig }

// NewSQL returns a Sink that runs the effects in the same transaction that stores the position. So each event has its
// effect exactly once, even if processes die. Several processes may share one position: PostgreSQL locks one row per
// shard, and SQLite locks the whole database for writing.
//
// NewSQL checks the configuration, and that the database does not lose confirmed commits. It creates the table
// hongbao_position if it does not exist.
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

// checkServer returns an error if the database may lose a confirmed commit. The offset in Kafka would then be
// committed, but the effect would be lost.
func (s *sqlSink) checkServer(ctx context.Context) error {
	var level string
	if s.cfg.Dialect == postgreSQL {
		if err := s.cfg.DB.QueryRowContext(ctx, `SHOW synchronous_commit`).Scan(&level); err != nil {
			return fmt.Errorf("asking PostgreSQL for synchronous_commit: %w", err)
		}
		if level == "off" {
			return errors.New(
				"synchronous_commit is off: a crash would lose effects whose offsets are committed; set it to on " +
					"for this user")
		}
		return nil
	}
	if err := s.cfg.DB.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return fmt.Errorf("reading PRAGMA synchronous of SQLite: %w", err)
	}
	if level == "0" || level == "1" {
		return errors.New("PRAGMA synchronous is OFF or NORMAL: a crash would lose effects whose offsets are committed; " +
			"open it with _pragma=synchronous(FULL)")
	}
	return nil
}

func (s *sqlSink) migrate(ctx context.Context) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		statements := []string{sqliteSchema}
		if s.cfg.Dialect == postgreSQL { // a lock, because concurrent CREATE TABLE IF NOT EXISTS may fail
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

// transact runs fn in a transaction, and commits it if fn returns nil.
func (s *sqlSink) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.cfg.DB.BeginTx(ctx, nil)
	if err != nil {
		return down("begin a transaction", err)
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback() // may fail if the connection is lost, which also ends the transaction
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the effect and its position: %w", err)
	}
	return nil
}

// down returns an outage, for an error that occurs before the effect and so is not the fault of an event.
func down(what string, err error) error {
	return hongbao.Outagef(hongbao.ClassTransient, "%s: %w", what, err)
}

// Push implements Sink. It handles all events or none, so Report.Next is 0 after an error.
func (s *sqlSink) Push(ctx context.Context, events []topic.Event) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var r Report
	err := s.transact(ctx, func(tx *sql.Tx) error {
		held, err := s.lockPositions(ctx, tx, events)
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

// sift adds the events to the positions, and returns the events that are new.
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

// lockPositions locks and reads the positions of the events' shards. It always locks in the same order, to avoid
// deadlocks. Its first statement is a write, because in SQLite a transaction that reads first may fail when it writes.
func (s *sqlSink) lockPositions(ctx context.Context, tx *sql.Tx, events []topic.Event) (map[shardOf]*position, error) {
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

// judge returns an outage if err has no class and the database does not accept writes, because then no event is at
// fault.
func (s *sqlSink) judge(err error) error {
	var classed *hongbao.Error
	if errors.As(err, &classed) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer cancel()
	if _, probe := s.cfg.DB.ExecContext(ctx, `DELETE FROM hongbao_position WHERE name = $1 AND turns < 0`,
		s.cfg.Name); probe != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w; and the database does not accept writes: %w", err, probe)
	}
	return err
}

// Skip implements Sink.
func (s *sqlSink) Skip(ctx context.Context, event topic.Event) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	err := s.transact(ctx, func(tx *sql.Tx) error {
		held, err := s.lockPositions(ctx, tx, []topic.Event{event})
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
