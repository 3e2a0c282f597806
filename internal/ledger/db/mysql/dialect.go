package mysql

import (
	"context"
	"embed"
	"regexp"
	"strconv"
	"sync"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed statements.sql
var statements string

//go:embed migrations
var migrations embed.FS

var dialect = db.Dialect{
	Name:       Name,
	Queries:    db.LoadQueries(statements),
	Migrations: db.MustLoadSteps(migrations, "migrations"),
	Share:      ` LOCK IN SHARE MODE`,
	Parts:      db.PartsByID,
	Now:        `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
}

// semiSync has the queries for the switches and for the states of semi-synchronous replication. Their rows are a name
// and ON or OFF.
var semiSync = [2]string{
	`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')`,
	`SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')`}

// Asynchronous reports whether semi-synchronous replication is configured, and the server has fallen back from it.
func (Database) Asynchronous(ctx context.Context, t db.Txn) (bool, error) {
	on := [2]bool{}
	for i, ask := range semiSync {
		err := t.Query(ctx, ask, nil, func(s db.Scan) error {
			var name, value string
			err := s(&name, &value)
			on[i] = on[i] || value == "ON"
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return on[0] && !on[1], nil
}

// statement is a statement with ? instead of $1, $2, ..., because the driver has no numbered parameters. Its n-th
// ? takes the argument with the index order[n].
type statement struct {
	text  string
	order []int
}

func (s *statement) args(args []any) []any {
	list := make([]any, len(s.order))
	for i, n := range s.order {
		list[i] = args[n]
	}
	return list
}

var (
	placeholder   = regexp.MustCompile(`\$(\d+)`)
	numberedTexts sync.Map // *statement by numbered text; bounded by the statements of this package
)

func numbered(sql string) *statement {
	if known, _ := numberedTexts.Load(sql); known != nil {
		if s, ok := known.(*statement); ok {
			return s
		}
	}
	s := &statement{}
	s.text = placeholder.ReplaceAllStringFunc(sql, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // digits only
		s.order = append(s.order, n-1)
		return "?"
	})
	numberedTexts.Store(sql, s)
	return s
}
