package ledger

import (
	"context"
	"regexp"
	"time"
)

// Server is what a database reports about itself.
type Server struct {
	Version string
	// Clock is the database's time. SQLite uses the clock of this machine.
	Clock time.Time
	// Connections is how many connections the server accepts from ordinary users; 0 on SQLite.
	Connections int64
	// Denied lists the rights that the user lacks, as in "DELETE on archive, grants". It is empty on databases other than
	// PostgreSQL.
	Denied []string
}

// Server asks the database for its version and its clock, and for the rights that the user lacks.
func (l *Ledger) Server(ctx context.Context) (s Server, err error) {
	var now int64
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		return t.query(ctx, `SELECT `+l.dialect.version+`, `+l.dialect.now+`, `+l.dialect.connections, nil,
			func(row scan) error { return row(&s.Version, &now, &s.Connections) })
	})
	s.Clock = time.UnixMilli(now)
	if err != nil || l.dialect.denied == "" {
		return s, err
	}
	tables, err := l.tables()
	if err != nil {
		return s, err
	}
	s.Denied, err = rowQuery[string]{"ask what the user may do with the tables", l.dialect.denied, []any{tables},
		func(row scan) (denied string, err error) {
			err = row(&denied)
			return denied, err
		}}.all(ctx, l)
	return s, err
}

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)

// tables returns the names of the tables that the migrations create.
func (l *Ledger) tables() (names []string, err error) {
	steps, err := loadMigrations(migrationFiles, l.dialect.migrations)
	for _, step := range steps {
		for _, m := range createTable.FindAllStringSubmatch(step.script, -1) {
			names = append(names, m[1])
		}
	}
	return names, err
}
