package settlement

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
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

// migration is one step of the schema. Steps are never edited once released: their sum is compared.
type migration struct {
	version int64
	name    string
	script  string
	sum     string
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
		if err != nil || version != int64(i)+1 {
			return nil, fmt.Errorf("migration %s: want the number %04d at its beginning", e.Name(), i+1)
		}
		sum := sha256.Sum256(script)
		steps[i] = migration{version: version, name: e.Name(), script: string(script), sum: hex.EncodeToString(sum[:])}
	}
	return steps, nil
}

// migrator is a store that can't change the schema in a transaction, and has its own way to do it only once.
type migrator interface {
	migrate(ctx context.Context, steps []migration) error
}

// migrate brings the schema up to date.
func (l *Ledger) migrate(ctx context.Context) error {
	steps, err := loadMigrations(migrationFiles, l.dialect.migrations)
	if err != nil {
		return err
	}
	return l.apply(ctx, steps)
}

// apply runs the steps that the database does not have: in one transaction, which only one process at a time can hold,
// where the database can.
func (l *Ledger) apply(ctx context.Context, steps []migration) error {
	var err error
	if m, ok := l.store.(migrator); ok {
		tctx, cancel := context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
		err = m.migrate(tctx, steps)
	} else {
		err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) { return l.missing(ctx, t, steps) })
	}
	if err != nil {
		return fmt.Errorf("migrate the schema: %w", err)
	}
	return nil
}

// missing gives the statements of the steps that the database does not have, and refuses one that is not its past.
func (l *Ledger) missing(ctx context.Context, t txn, steps []migration) ([]stmt, error) {
	if l.dialect.lock != "" {
		if err := t.run(ctx, stmt{sql: l.dialect.lock}); err != nil {
			return nil, err
		}
	}
	if err := t.run(ctx, stmt{sql: `CREATE TABLE IF NOT EXISTS hongbao_schema (
		version bigint PRIMARY KEY, name text NOT NULL, sum text NOT NULL, applied_at bigint NOT NULL)`}); err != nil {
		return nil, err
	}
	applied := int64(0)
	err := t.query(ctx, `SELECT version, name, sum FROM hongbao_schema ORDER BY version`, nil, func(s scan) error {
		var has migration
		if err := s(&has.version, &has.name, &has.sum); err != nil {
			return err
		}
		applied++
		return checkApplied(steps, applied, has)
	})
	if err != nil {
		return nil, err
	}
	for _, m := range steps[applied:] {
		for part := range strings.SplitSeq(m.script, ";\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			if err := t.run(ctx, stmt{sql: part}); err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
		}
		record := stmt{sql: `INSERT INTO hongbao_schema (version, name, sum, applied_at) VALUES ($1, $2, $3, $4)`,
			args: []any{m.version, m.name, m.sum, time.Now().UnixMilli()}}
		if err := t.run(ctx, record); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil, nil
}

// checkApplied compares the n-th applied migration with the build's.
func checkApplied(steps []migration, n int64, has migration) error {
	if n > int64(len(steps)) {
		return hongbao.Errorf(hongbao.Broken, "the schema has version %d (%s), this build knows up to %d: upgrade this program",
			has.version, has.name, len(steps))
	}
	if want := steps[n-1]; has.version != want.version || has.sum != want.sum {
		return hongbao.Errorf(hongbao.Broken, "the schema's version %d (%s) is not this build's %s: "+
			"the database belongs to another build, use the one that made it", has.version, has.name, want.name)
	}
	return nil
}
