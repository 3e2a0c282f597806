package ledger

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

//go:embed migrations
var migrationFiles embed.FS

// migration is one step of the schema. The first one is the baseline, which creates all tables. Until the first release
// a change of the tables edits the baseline and raises its number, because no number is used again: those below it
// belong to builds that were never released. A released step must keep its checksum, which existing databases store.
type migration struct {
	version int64
	name    string
	script  string
	sum     string
	// index, if not empty, is the name and the columns of an index that the step adds. If the database already has
	// tables, an indexer creates the index before the step, while others write.
	index string
	// lowest is the lowest schema version whose builds can work with this step; once the step has run, older builds are
	// refused. The script's first line sets it.
	lowest int64
}

func loadMigrations(files fs.FS, folder string) ([]migration, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	steps := make([]migration, len(entries))
	for i, e := range entries {
		script, err := fs.ReadFile(files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the migrations: %w", err)
		}
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if want := newest(steps[:i]) + 1; err != nil || i > 0 && version != want {
			return nil, fmt.Errorf("migration %s: want the number %04d at its beginning", e.Name(), want)
		}
		sum := sha256.Sum256(script)
		steps[i] = migration{version: version, name: e.Name(), script: string(script), sum: hex.EncodeToString(sum[:])}
		if _, err := fmt.Sscanf(steps[i].script, "-- lowest: %d\n", &steps[i].lowest); err != nil {
			return nil, fmt.Errorf("migration %s: want \"-- lowest: VERSION\" as its first line: %w", e.Name(), err)
		}
		steps[i].readDirectives()
	}
	return steps, nil
}

// newest returns the version of the schema after these steps.
func newest(steps []migration) int64 {
	if len(steps) == 0 {
		return 0
	}
	return steps[len(steps)-1].version
}

// readDirectives reads the optional settings in the head of a script. A script that was rewritten without changing its
// result names its released checksum, because databases and older builds compare it.
func (m *migration) readDirectives() {
	for line := range strings.Lines(m.script) {
		if sum, ok := strings.CutPrefix(line, "-- sum: "); ok {
			m.sum = strings.TrimSpace(sum)
		} else if index, ok := strings.CutPrefix(line, "-- index: "); ok {
			m.index = strings.TrimSpace(index)
		}
	}
}

// indexer is a store that can create an index while others write to the table. It can't do so in a transaction. A
// repeated call changes nothing.
type indexer interface {
	index(ctx context.Context, index string) error
}

// granter is a store whose other users need rights on the tables. A repeated call changes nothing.
type granter interface {
	grant(ctx context.Context) error
}

// makeIndexes creates the indexes of the missing steps, on a database that already has tables.
func (l *Ledger) makeIndexes(ctx context.Context, missing []migration) error {
	store, ok := l.store.(indexer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	for _, m := range missing {
		if m.index == "" {
			continue
		}
		if err := store.index(ctx, m.index); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// migrator is a store that can't change the schema in a transaction, so it has its own way to run each step once.
type migrator interface {
	migrate(ctx context.Context, steps []migration) (done []string, err error)
}

// schema is the record of the steps that a database has.
type schema struct {
	steps []migration // without their scripts
	// done is the number of finished steps. Only MySQL can have unfinished steps, since it can't change the schema in a
	// transaction.
	done int64
}

// readSchema returns the steps that the database has; none if it has no tables yet.
func (l *Ledger) readSchema(ctx context.Context) (has schema, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		has = schema{}
		tables := 0
		if err := t.query(ctx, l.dialect.hasSchema, nil, func(s scan) error { return s(&tables) }); err != nil ||
			tables == 0 {
			return err
		}
		return has.read(ctx, t)
	})
	return has, err
}

func (h *schema) read(ctx context.Context, t txn) error {
	return t.query(ctx, `SELECT version, name, sum, lowest, applied_at FROM hongbao_schema ORDER BY version`, nil,
		func(s scan) error {
			var m migration
			var at int64
			err := s(&m.version, &m.name, &m.sum, &m.lowest, &at)
			if h.steps = append(h.steps, m); at != 0 {
				h.done++
			}
			return err
		})
}

// version returns the version of the last finished step; 0 if none is finished.
func (h *schema) version() int64 { return newest(h.steps[:h.done]) }

// check compares the database's steps with the build's. It accepts a newer schema if the lowest versions of the
// additional steps allow this build. It refuses the tables of a build that was never released.
func (h *schema) check(steps []migration) error {
	for i, has := range h.steps {
		if has.version < steps[0].version {
			last := h.steps[len(h.steps)-1]
			return hongbao.Errorf(hongbao.ClassBroken, "%w: they have schema version %d (%s), and releases begin with version "+
				"%d. Nothing was changed. Let ledger.dsn name an empty database or a new file, or delete these tables if nobody "+
				"needs them", ErrUnreleased, last.version, last.name, steps[0].version)
		}
		if i >= len(steps) && has.lowest > newest(steps) {
			return hongbao.Errorf(hongbao.ClassBroken, "the schema has version %d (%s), this build knows up to %d: upgrade "+
				"this program", has.version, has.name, newest(steps))
		}
		if i < len(steps) && (has.version != steps[i].version || has.sum != steps[i].sum) {
			return hongbao.Errorf(hongbao.ClassBroken, "the schema's version %d (%s) is not this build's %s: "+
				"the database belongs to another build, use the one that created it", has.version, has.name, steps[i].name)
		}
	}
	return nil
}

// ErrNewerSchema says that the schema was updated while this program runs, and that this build can't work with it, so
// the program can't write to the ledger any more. Errors that wrap it are outages, so no attempt is counted.
var ErrNewerSchema = errors.New("the ledger's schema is newer than this build can work with, so it writes nothing: " +
	"upgrade this program")

// ErrUnreleased says that a build which was never released made the tables. Errors that wrap it are Broken.
var ErrUnreleased = errors.New("the tables are those of a build before the first release, which no release reads")

// ErrOldSchema says that the database lacks steps that this build needs. Errors that wrap it are Broken.
var ErrOldSchema = errors.New("the schema is older than this build")

// checkSchema refuses a database whose tables this build can't work with, and returns this build's version.
func (l *Ledger) checkSchema(ctx context.Context) (version int64, err error) {
	steps, err := loadMigrations(migrationFiles, l.dialect.migrations)
	if err != nil {
		return 0, err
	}
	has, err := l.readSchema(ctx)
	if err == nil {
		err = has.check(steps)
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("check the schema: %w", err)
	case len(has.steps) == 0:
		return 0, hongbao.Errorf(hongbao.ClassBroken, "%w: the database has no tables of Hongbao; point ledger.dsn to the "+
			"right one, or create them with `hongbao init`", ErrNotInitialized)
	case has.done < int64(len(steps)):
		return 0, hongbao.Errorf(hongbao.ClassBroken, "%w: it has version %d, this build needs version %d: `hongbao init` "+
			"brings it up to date", ErrOldSchema, has.version(), newest(steps))
	}
	return newest(steps), nil
}

// migrate brings the schema up to date, and returns the names of the steps that it ran.
func (l *Ledger) migrate(ctx context.Context) ([]string, error) {
	steps, err := loadMigrations(migrationFiles, l.dialect.migrations)
	if err != nil {
		return nil, err
	}
	return l.apply(ctx, steps)
}

// apply runs the steps that the database lacks, and gives other users their rights. If a newer build has changed the
// schema, that build's `hongbao init` has given the rights that its tables need.
func (l *Ledger) apply(ctx context.Context, steps []migration) (done []string, err error) {
	has, err := l.readSchema(ctx)
	if err == nil {
		err = has.check(steps)
	}
	if err == nil && has.done < int64(len(steps)) {
		done, err = l.complete(ctx, steps, has.done)
	}
	if store, ok := l.store.(granter); err == nil && ok && len(has.steps) <= len(steps) {
		err = store.grant(ctx)
	}
	return done, err
}

// complete runs the steps after the first has. Unless the store is a migrator, all run in one transaction that locks
// out other migrations.
func (l *Ledger) complete(ctx context.Context, steps []migration, has int64) (done []string, err error) {
	if m, ok := l.store.(migrator); ok {
		tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
		return m.migrate(tctx, steps)
	}
	if has > 0 {
		if err := l.makeIndexes(ctx, steps[has:]); err != nil {
			return nil, err
		}
	}
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		done, err = l.missing(ctx, t, steps)
		return nil, err
	})
	return done, err
}

// missing runs and records the steps that the database lacks. It refuses a database whose steps are not a prefix of the
// build's.
func (l *Ledger) missing(ctx context.Context, t txn, steps []migration) (done []string, err error) {
	for _, lock := range l.dialect.lock {
		if err := t.run(ctx, stmt{sql: lock}); err != nil {
			return nil, err
		}
	}
	if err := t.run(ctx, stmt{sql: `CREATE TABLE IF NOT EXISTS hongbao_schema (
		version bigint PRIMARY KEY, name text NOT NULL, sum text NOT NULL, lowest bigint NOT NULL,
		applied_at bigint NOT NULL)`}); err != nil {
		return nil, err
	}
	var has schema
	if err := has.read(ctx, t); err != nil {
		return nil, err
	}
	if err := has.check(steps); err != nil {
		return nil, err
	}
	for _, m := range steps[min(len(has.steps), len(steps)):] {
		for part := range strings.SplitSeq(m.script, ";\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			if err := t.run(ctx, stmt{sql: part}); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		record := stmt{sql: `INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES ($1, $2, $3, $4, $5)`,
			args: []any{m.version, m.name, m.sum, m.lowest, time.Now().UnixMilli()}}
		if err := t.run(ctx, record); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		done = append(done, m.name)
	}
	return done, nil
}
