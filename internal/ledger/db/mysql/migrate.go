package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// Migrate brings the schema up to date. MySQL commits each DDL statement by itself, so Migrate stores its progress in
// the step's row: it sets begun = n before statement n, and applied_at once all statements are done. After a crash the
// next process runs statement n again. If the statement had already run, its error says that the object exists, and is
// ignored.
func (m *store) Migrate(ctx context.Context, steps []db.Step, check func(has *db.Schema) error) (done []string,
	err error) {
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return nil, classify(fmt.Errorf("get a connection to MySQL: %w", err), false)
	}
	defer conn.Close()
	// Closing the connection releases the lock, so the connection is always discarded.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	if err := m.lockSchema(ctx, conn); err != nil {
		return nil, err
	}
	return migration{ctx: ctx, conn: conn}.run(steps, check)
}

// lockSchema waits until no other worker migrates this database. Lock names are server-wide and must be short, so the
// name contains a hash of the database's name.
func (m *store) lockSchema(ctx context.Context, conn *sql.Conn) error {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, `SELECT GET_LOCK(CONCAT('hongbao:', LEFT(SHA2(DATABASE(), 256), 40)), ?)`,
		int64(m.timeout/time.Second)+1).Scan(&got)
	if err != nil {
		return classify(fmt.Errorf("wait for the other workers' migration: %w", err), false)
	}
	if got.Int64 != 1 {
		return hongbao.Outagef(hongbao.ClassTransient, "MySQL: another worker migrates the schema for longer than %v",
			m.timeout)
	}
	return nil
}

type migration struct {
	ctx  context.Context
	conn *sql.Conn
}

func (m migration) exec(text string, args ...any) error {
	if _, err := m.conn.ExecContext(m.ctx, text, args...); err != nil {
		return classify(fmt.Errorf("%.60s...: %w", text, err), false)
	}
	return nil
}

func (m migration) run(steps []db.Step, check func(has *db.Schema) error) (done []string, err error) {
	if err := m.exec(`CREATE TABLE IF NOT EXISTS hongbao_schema (version bigint PRIMARY KEY, name varchar(255) NOT NULL,
		sum varchar(255) NOT NULL, lowest bigint NOT NULL, applied_at bigint NOT NULL, begun integer NOT NULL DEFAULT 0)
		ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`); err != nil {
		return nil, err
	}
	has, begun, err := m.applied()
	if err == nil {
		err = check(&has)
	}
	if err != nil {
		return nil, err
	}
	for _, step := range steps[min(has.Done, int64(len(steps))):] {
		if err := m.apply(step, begun); err != nil {
			return nil, fmt.Errorf("%s: %w", step.Name, err)
		}
		begun, done = -1, append(done, step.Name)
	}
	return done, nil
}

// applied returns the steps that the database has. begun is the last statement that the unfinished step has begun; -1
// if there is no unfinished step.
func (m migration) applied() (has db.Schema, begun int, err error) {
	rows, err := m.conn.QueryContext(m.ctx,
		`SELECT version, name, sum, lowest, applied_at, begun FROM hongbao_schema ORDER BY version`)
	if err != nil {
		return has, 0, classify(fmt.Errorf("read hongbao_schema: %w", err), false)
	}
	defer rows.Close()
	begun = -1
	for rows.Next() {
		var step db.Step
		var at int64
		var last int
		if err := rows.Scan(&step.Version, &step.Name, &step.Sum, &step.Lowest, &at, &last); err != nil {
			return has, 0, classify(fmt.Errorf("read hongbao_schema: %w", err), false)
		}
		has.Steps = append(has.Steps, step)
		if at == 0 {
			begun = last
		} else {
			has.Done++
		}
	}
	if err := rows.Err(); err != nil {
		return has, 0, classify(fmt.Errorf("read hongbao_schema: %w", err), false)
	}
	return has, begun, nil
}

// apply runs the statements of a step, starting with number begun (counted from 1). If begun is negative, it inserts
// the step's row first.
func (m migration) apply(step db.Step, begun int) error {
	if begun < 0 {
		if err := m.exec(`INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES (?, ?, ?, ?, 0)`,
			step.Version, step.Name, step.Sum, step.Lowest); err != nil {
			return err
		}
	}
	parts := slices.DeleteFunc(strings.Split(step.Script, ";\n"),
		func(p string) bool { return strings.TrimSpace(p) == "" })
	for i, part := range parts {
		n := i + 1
		if n < begun {
			continue
		}
		if err := m.progress(step, n); err != nil {
			return err
		}
		err := m.exec(part)
		if n == begun && isThere(err) {
			err = nil
		}
		var refused *mysql.MySQLError
		if errors.As(err, &refused) { // the statement did not run: the existing object is not ours
			return errors.Join(err, m.progress(step, i))
		}
		if err != nil {
			return err
		}
	}
	return m.exec(`UPDATE hongbao_schema SET applied_at = ? WHERE version = ?`, time.Now().UnixMilli(), step.Version)
}

func (m migration) progress(step db.Step, n int) error {
	return m.exec(`UPDATE hongbao_schema SET begun = ? WHERE version = ?`, n, step.Version)
}

// isThere reports whether a DDL statement failed because it had already run.
func isThere(err error) bool {
	var e *mysql.MySQLError
	// A table, column, index, foreign key or CHECK exists, or the object to drop does not.
	return errors.As(err, &e) && slices.Contains([]uint16{1050, 1060, 1061, 1826, 3822, 1051, 1091, 3821, 3940}, e.Number)
}
