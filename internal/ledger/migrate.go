package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// makeIndexes creates the indexes of the missing steps, on a database that already has tables.
func (l *Ledger) makeIndexes(ctx context.Context, missing []db.Step) error {
	store, ok := l.tables.Store.(db.Indexer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.tables.Timeout)
	defer cancel()
	for _, m := range missing {
		if m.Index == "" {
			continue
		}
		if err := store.MakeIndex(ctx, m.Index); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
	}
	return nil
}

// readSchema returns the steps that the database has; none if it has no tables yet.
func (l *Ledger) readSchema(ctx context.Context) (has db.Schema, err error) {
	err = l.tables.Read(ctx, func(ctx context.Context, t db.Txn) error {
		has = db.Schema{}
		tables := 0
		if err := t.Query(ctx, l.tables.Dialect.HasSchema, nil, func(s db.Scan) error { return s(&tables) }); err != nil ||
			tables == 0 {
			return err
		}
		return readSteps(ctx, t, &has)
	})
	return has, err
}

func readSteps(ctx context.Context, t db.Txn, h *db.Schema) error {
	return t.Query(ctx, `SELECT version, name, sum, lowest, applied_at FROM hongbao_schema ORDER BY version`, nil,
		func(s db.Scan) error {
			var m db.Step
			var at int64
			err := s(&m.Version, &m.Name, &m.Sum, &m.Lowest, &at)
			if h.Steps = append(h.Steps, m); at != 0 {
				h.Done++
			}
			return err
		})
}

// checkSteps compares the database's steps with the build's. It accepts a newer schema if the lowest versions of the
// additional steps allow this build. It refuses the tables of a build that was never released.
func checkSteps(h *db.Schema, steps []db.Step) error {
	for i, has := range h.Steps {
		if has.Version < steps[0].Version {
			last := h.Steps[len(h.Steps)-1]
			return hongbao.Errorf(hongbao.ClassBroken, "%w: they have schema version %d (%s), and releases begin with version "+
				"%d. Nothing was changed. Let ledger.dsn name an empty database or a new file, or delete these tables if nobody "+
				"needs them", ErrUnreleased, last.Version, last.Name, steps[0].Version)
		}
		if i >= len(steps) && has.Lowest > db.Newest(steps) {
			return hongbao.Errorf(hongbao.ClassBroken, "the schema has version %d (%s), this build knows up to %d: upgrade "+
				"this program", has.Version, has.Name, db.Newest(steps))
		}
		if i < len(steps) && (has.Version != steps[i].Version || has.Sum != steps[i].Sum) {
			return hongbao.Errorf(hongbao.ClassBroken, "the schema's version %d (%s) is not this build's %s: "+
				"the database belongs to another build, use the one that created it", has.Version, has.Name, steps[i].Name)
		}
	}
	return nil
}

// ErrUnreleased says that a build which was never released made the tables. Errors that wrap it are Broken.
var ErrUnreleased = errors.New("the tables are those of a build before the first release, which no release reads")

// ErrOldSchema says that the database lacks steps that this build needs. Errors that wrap it are Broken.
var ErrOldSchema = errors.New("the schema is older than this build")

// checkSchema refuses a database whose tables this build can't work with, and returns this build's version.
func (l *Ledger) checkSchema(ctx context.Context) (version int64, err error) {
	steps := l.tables.Dialect.Migrations
	has, err := l.readSchema(ctx)
	if err == nil {
		err = checkSteps(&has, steps)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("check the schema: %w", err)
	case len(has.Steps) == 0:
		return 0, hongbao.Errorf(hongbao.ClassBroken, "%w: the database has no tables of Hongbao; point ledger.dsn to the "+
			"right one, or create them with `hongbao init`", ErrNotInitialized)
	case has.Done < int64(len(steps)):
		return 0, hongbao.Errorf(hongbao.ClassBroken, "%w: it has version %d, this build needs version %d: `hongbao init` "+
			"brings it up to date", ErrOldSchema, has.Version(), db.Newest(steps))
	}
	return db.Newest(steps), nil
}

// migrate brings the schema up to date, and returns the names of the steps that it ran.
func (l *Ledger) migrate(ctx context.Context) ([]string, error) {
	steps := l.tables.Dialect.Migrations
	return l.apply(ctx, steps)
}

// apply runs the steps that the database lacks, and gives other users their rights. If a newer build has changed the
// schema, that build's `hongbao init` has given the rights that its tables need.
func (l *Ledger) apply(ctx context.Context, steps []db.Step) (done []string, err error) {
	has, err := l.readSchema(ctx)
	if err == nil {
		err = checkSteps(&has, steps)
	}
	if err == nil && has.Done < int64(len(steps)) {
		done, err = l.complete(ctx, steps, has.Done)
	}
	if store, ok := l.tables.Store.(db.Granter); err == nil && ok && len(has.Steps) <= len(steps) {
		err = store.Grant(ctx)
	}
	return done, err
}

// complete runs the steps after the first has. Unless the store is a migrator, all run in one transaction that locks
// out other migrations.
func (l *Ledger) complete(ctx context.Context, steps []db.Step, has int64) (done []string, err error) {
	if m, ok := l.tables.Store.(db.Migrator); ok {
		tctx, cancel := context.WithTimeout(ctx, l.tables.Timeout)
		defer cancel()
		return m.Migrate(tctx, steps, func(has *db.Schema) error { return checkSteps(has, steps) })
	}
	if has > 0 {
		if err := l.makeIndexes(ctx, steps[has:]); err != nil {
			return nil, err
		}
	}
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		done, err = l.missing(ctx, t, steps)
		return nil, err
	})
	return done, err
}

// missing runs and records the steps that the database lacks. It refuses a database whose steps are not a prefix of the
// build's.
func (l *Ledger) missing(ctx context.Context, t db.Txn, steps []db.Step) (done []string, err error) {
	for _, lock := range l.tables.Dialect.Lock {
		if err := t.Run(ctx, db.Stmt{SQL: lock}); err != nil {
			return nil, err
		}
	}
	if err := t.Run(ctx, db.Stmt{SQL: `CREATE TABLE IF NOT EXISTS hongbao_schema (
		version bigint PRIMARY KEY, name text NOT NULL, sum text NOT NULL, lowest bigint NOT NULL,
		applied_at bigint NOT NULL)`}); err != nil {
		return nil, err
	}
	var has db.Schema
	if err := readSteps(ctx, t, &has); err != nil {
		return nil, err
	}
	if err := checkSteps(&has, steps); err != nil {
		return nil, err
	}
	for _, m := range steps[min(len(has.Steps), len(steps)):] {
		for part := range strings.SplitSeq(m.Script, ";\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			if err := t.Run(ctx, db.Stmt{SQL: part}); err != nil {
				return nil, fmt.Errorf("%s: %w", m.Name, err)
			}
		}
		record := db.Stmt{SQL: `INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at)
			VALUES ($1, $2, $3, $4, $5)`,
			Args: []any{m.Version, m.Name, m.Sum, m.Lowest, time.Now().UnixMilli()}}
		if err := t.Run(ctx, record); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		done = append(done, m.Name)
	}
	return done, nil
}
