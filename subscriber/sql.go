package subscriber

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// SQLConfig configures NewSQL. All fields but UnsafeAllow are required.
type SQLConfig struct {
	// DB is the database of the effects, which also has the tables hongbao_seen and hongbao_offset. The caller limits its connections and
	// closes it.
	DB *sql.DB
	// Dialect is "postgres" or "sqlite".
	Dialect string
	// Name identifies the subscriber in the table, usually by its consumer group. Two subscribers with the same name
	// share what they have seen, so each event has its effect in only one of them.
	Name string
	// Timeout limits one transaction, from 10 ms to 10 min.
	Timeout time.Duration
	// UnsafeAllow names unsafe settings of PostgreSQL that NewSQL shall accept: "fsync", "full_page_writes". A power loss
	// may then lose effects, so this is for tests only. It may be empty.
	UnsafeAllow []string
	// Effect runs the effects of new events, in their order. It gets at most BatchEvents events. Its writes in tx are
	// committed together with the rows of the two tables; effects outside tx may happen twice. Effect must not commit or
	// roll back tx. The class of its error says what happens next, see Sink.
	Effect func(ctx context.Context, tx *sql.Tx, events []topic.Event) error
}

type sqlSink struct{ cfg SQLConfig }

// NewSQL returns a Sink that runs the effects in the same transaction that stores which events it has seen. So each
// event has its effect exactly once, even if processes die. Several processes may share one Name: PostgreSQL locks one
// row for up to 4,096 packets of a campaign on a shard, and SQLite locks the whole database for writing.
//
// NewSQL checks the configuration, and that the database does not lose confirmed commits. It creates the tables
// hongbao_seen and hongbao_offset if they do not exist.
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
		return nil, fmt.Errorf("subscriber: making the tables hongbao_seen and hongbao_offset: %w; let this user CREATE TABLE, or run "+
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
	return fmt.Errorf("subscriber: Sink in SQL: %w", errors.Join(errs...))
}

// checkServer returns an error if the database may lose a confirmed commit. The offset in Kafka would then be
// committed, but the effect would be lost. It also refuses the rows of a build before the first release.
func (s *sqlSink) checkServer(ctx context.Context) error {
	if err := s.refuseUnreleased(ctx); err != nil {
		return err
	}
	if s.cfg.Dialect == postgreSQL {
		return s.checkPostgres(ctx)
	}
	var level string
	if err := s.cfg.DB.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&level); err != nil {
		return fmt.Errorf("reading PRAGMA synchronous of SQLite: %w", err)
	}
	if level == "0" || level == "1" {
		return errors.New("PRAGMA synchronous is OFF or NORMAL: a crash would lose effects whose offsets are committed; " +
			"open it with _pragma=synchronous(FULL)")
	}
	return nil
}

func (s *sqlSink) checkPostgres(ctx context.Context) error {
	var commit, fsync, fullPage string
	err := s.cfg.DB.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync'),
		current_setting('full_page_writes')`).Scan(&commit, &fsync, &fullPage)
	if err != nil {
		return fmt.Errorf("asking PostgreSQL for its settings: %w", err)
	}
	if commit == "off" {
		return errors.New("synchronous_commit is off: a crash would lose effects whose offsets are committed; set it to on " +
			"for this user")
	}
	for _, set := range [][2]string{{"fsync", fsync}, {"full_page_writes", fullPage}} {
		if name, value := set[0], set[1]; value != "on" && !slices.Contains(s.cfg.UnsafeAllow, name) {
			return fmt.Errorf("%s is %s: a power loss would lose effects whose offsets are committed; ALTER SYSTEM SET %s = on",
				name, value, name)
		}
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

// transact runs fn in a transaction, and commits it if fn returns nil. It closes a connection to a server that is no
// longer the primary, since a role change may leave connections open.
func (s *sqlSink) transact(ctx context.Context, fn func(tx *sql.Tx) error) error {
	conn, err := s.cfg.DB.Conn(ctx)
	if err != nil {
		return down("get a connection", err)
	}
	defer func() { _ = conn.Close() }() // returns the connection to the pool
	err = transactOn(ctx, conn, fn)
	var state interface{ SQLState() string } // of pgx and of lib/pq
	if errors.As(err, &state) && state.SQLState() == "25006" {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

func transactOn(ctx context.Context, conn *sql.Conn, fn func(tx *sql.Tx) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return down("begin a transaction", err)
	}
	defer func() { _ = tx.Rollback() }() // also after a panic of the effect; after the commit it does nothing
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit the effect and what was seen: %w", err)
	}
	return nil
}

// down returns an outage, for an error that occurs before the effect and so is not the fault of an event.
func down(what string, err error) error {
	return hongbao.Outagef(hongbao.ClassTransient, "%s: %w", what, err)
}

// Push implements Sink. It handles all events or none, so Report.Next is 0 after an error.
func (s *sqlSink) Push(ctx context.Context, events []topic.Event) (Report, error) {
	return s.push(ctx, events, func(context.Context, *sql.Tx) error { return nil })
}

// push is Push. It calls also at the end of its transaction.
func (s *sqlSink) push(ctx context.Context, events []topic.Event, also func(context.Context, *sql.Tx) error) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var r Report
	err := s.transact(ctx, func(tx *sql.Tx) error {
		seen, err := s.lock(ctx, tx, events)
		if err != nil {
			return err
		}
		var fresh []topic.Event
		r, fresh = seen.sift(events)
		if len(fresh) == 0 {
			return also(ctx, tx)
		}
		if err := s.cfg.Effect(ctx, tx, fresh); err != nil {
			return fmt.Errorf("the effect of %d events from %s on: %w", len(fresh), fresh[0].Grant.EventID(), err)
		}
		if err := s.write(ctx, tx, seen); err != nil {
			return err
		}
		return also(ctx, tx)
	})
	if err != nil {
		return Report{}, s.judge(err)
	}
	return r, nil
}

// seenRows has the rows of hongbao_seen that a transaction has locked.
type seenRows map[chunkKey]*bitmap

// keys returns the keys of the rows in the order in which all transactions lock them. So there are no deadlocks.
func (r seenRows) keys() []chunkKey { return slices.SortedFunc(maps.Keys(r), chunkKey.compare) }

// sift adds the events to the rows, and returns the events that are new.
func (r seenRows) sift(events []topic.Event) (report Report, fresh []topic.Event) {
	for i := range events {
		e := &events[i]
		if seen := r[chunkOf(e)]; seen.has(e) {
			report.Repeated++
		} else {
			seen.add(e)
			fresh = append(fresh, *e)
			report.Done++
		}
	}
	report.Next = len(events)
	return report, fresh
}

// lock locks and reads the rows of the events. Missing rows are inserted. Its first statement is a write, because in
// SQLite a transaction that reads first may fail when it writes.
func (s *sqlSink) lock(ctx context.Context, tx *sql.Tx, events []topic.Event) (seenRows, error) {
	rows := seenRows{}
	for i := range events {
		rows[chunkOf(&events[i])] = &bitmap{}
	}
	for keys := range slices.Chunk(rows.keys(), rowsPerStatement) {
		insert, args := s.insert(keys, rows)
		found, err := tx.QueryContext(ctx, insert+`seen = hongbao_seen.seen
			RETURNING source, campaign, shard, chunk, seen`, args...)
		if err == nil {
			err = rows.read(found)
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken {
			return nil, err
		}
		if err != nil {
			return nil, down(fmt.Sprintf("lock %d rows of hongbao_seen", len(keys)), err)
		}
	}
	return rows, nil
}

// read reads the rows that a statement returns, and closes them.
func (r seenRows) read(found *sql.Rows) error {
	defer func() { _ = found.Close() }() // found.Err has the error
	for found.Next() {
		var k chunkKey
		var seen []byte
		if err := found.Scan(&k.source, &k.campaign, &k.shard, &k.number, &seen); err != nil {
			return err
		}
		if len(seen) != len(bitmap{}) {
			return hongbao.Errorf(hongbao.ClassBroken, "hongbao_seen has %d bytes for source %q, campaign %q, shard %d, chunk %d "+
				"of this subscriber, want %d: another program wrote them; restore the row from a backup",
				len(seen), k.source, k.campaign, k.shard, k.number, len(bitmap{}))
		}
		*r[k] = bitmap(seen)
	}
	return found.Err()
}

func (s *sqlSink) write(ctx context.Context, tx *sql.Tx, rows seenRows) error {
	for keys := range slices.Chunk(rows.keys(), rowsPerStatement) {
		insert, args := s.insert(keys, rows)
		if _, err := tx.ExecContext(ctx, insert+`seen = excluded.seen`, args...); err != nil {
			return fmt.Errorf("store %d rows of hongbao_seen: %w", len(keys), err)
		}
	}
	return nil
}

// rowsPerStatement limits the number of different statements, because drivers prepare and cache each of them. A batch
// seldom has more rows: a campaign is on at most 64 shards.
const rowsPerStatement = 64

// insert returns a statement that inserts the rows, without the update of the rows that exist already.
func (s *sqlSink) insert(keys []chunkKey, rows seenRows) (text string, args []any) {
	var b strings.Builder
	b.WriteString(`INSERT INTO hongbao_seen (name, source, campaign, shard, chunk, seen) VALUES `)
	args = append(args, s.cfg.Name)
	for i, k := range keys {
		if i > 0 {
			b.WriteString(", ")
		}
		n := len(args)
		fmt.Fprintf(&b, "($1, $%d, $%d, $%d, $%d, $%d)", n+1, n+2, n+3, n+4, n+5)
		args = append(args, k.source, k.campaign, k.shard, k.number, rows[k][:])
	}
	b.WriteString(` ON CONFLICT (name, source, campaign, shard, chunk) DO UPDATE SET `)
	return b.String(), args
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
	if _, probe := s.cfg.DB.ExecContext(ctx, `DELETE FROM hongbao_seen WHERE name = $1 AND source = ''`,
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
		seen, err := s.lock(ctx, tx, []topic.Event{event})
		if err != nil {
			return err
		}
		seen[chunkOf(&event)].add(&event)
		return s.write(ctx, tx, seen)
	})
	if err == nil {
		return nil
	}
	return s.judge(err)
}
