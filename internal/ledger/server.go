package ledger

import (
	"context"
	"regexp"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
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
	// Asynchronous says that semi-synchronous replication is configured, and that the server has fallen back to
	// asynchronous: a failover may lose what it confirms.
	Asynchronous bool
}

// Server asks the database for its version and its clock, and for the rights that the user lacks.
func (l *Ledger) Server(ctx context.Context) (s Server, err error) {
	var now int64
	err = l.tables.Read(ctx, func(ctx context.Context, t db.Txn) error {
		return t.Query(ctx, l.tables.Dialect.AskServer, nil,
			func(row db.Scan) error { return row(&s.Version, &now, &s.Connections) })
	})
	s.Clock = time.UnixMilli(now)
	if err == nil {
		s.Asynchronous, err = l.asynchronous(ctx)
	}
	checks, ok := l.config.Database.(db.RightsChecker)
	if err != nil || !ok {
		return s, err
	}
	s.Denied, err = tables.Snapshot(ctx, l.tables, "ask what the user may do with the tables",
		func(ctx context.Context, t db.Txn) ([]string, error) { return checks.Denied(ctx, t, l.tableNames()) })
	return s, err
}

// asynchronous reports whether the server has fallen back to asynchronous replication. PostgreSQL never does.
func (l *Ledger) asynchronous(ctx context.Context) (bool, error) {
	server, ok := l.config.Database.(db.FallsBack)
	if !ok {
		return false, nil
	}
	return tables.Snapshot(ctx, l.tables, "ask for the state of semi-synchronous replication", server.Asynchronous)
}

// alarmAsynchronous logs the alarm that the server has fallen back to asynchronous replication, at most once a minute.
func (l *Ledger) alarmAsynchronous(ctx context.Context) {
	log := l.log.Load()
	if log == nil {
		return
	}
	if alone, err := l.asynchronous(ctx); err == nil && alone && l.newer.due("asynchronous") {
		log.Error("ALARM: the ledger's server has fallen back to asynchronous replication: no replica confirms in time, so "+
			"a failover loses what is paid now; repair the replica", zap.String("code", "ledger_asynchronous"))
	}
}

var createTable = regexp.MustCompile(`(?m)^CREATE TABLE (\w+)`)

// tableNames returns the names of the tables that the migrations create.
func (l *Ledger) tableNames() (names []string) {
	for _, step := range l.tables.Dialect.Migrations {
		for _, m := range createTable.FindAllStringSubmatch(step.Script, -1) {
			names = append(names, m[1])
		}
	}
	return names
}
