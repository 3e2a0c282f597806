package ledger

import (
	_ "embed"
	"regexp"
	"strconv"
	"sync"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed sql/mysql.sql
var mysqlSQL string

var mysqlDialect = db.Dialect{
	Queries:    db.LoadQueries(mysqlSQL),
	Migrations: db.MustLoadSteps(migrationFiles, "migrations/mysql"),
	Pack:       db.PackJSON,
	OrNothing:  ` ON DUPLICATE KEY UPDATE campaign = VALUES(campaign)`,
	Share:      ` LOCK IN SHARE MODE`,
	Version:    `VERSION()`,
	SemiSync: [2]string{
		`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')`,
		`SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')`},
	// One more connection is for an administrator.
	Connections: `@@max_connections`,
	Now:         `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
}

// mysqlStatement is a statement with ? instead of $1, $2, ..., because the driver has no numbered parameters. Its n-th
// ? takes the argument with the index order[n].
type mysqlStatement struct {
	text  string
	order []int
}

func (s *mysqlStatement) args(args []any) []any {
	list := make([]any, len(s.order))
	for i, n := range s.order {
		list[i] = args[n]
	}
	return list
}

var (
	mysqlPlaceholder = regexp.MustCompile(`\$(\d+)`)
	mysqlStatements  sync.Map // *mysqlStatement by numbered text; bounded by the statements of this package
)

func mysqlNumbered(sql string) *mysqlStatement {
	if known, _ := mysqlStatements.Load(sql); known != nil {
		if s, ok := known.(*mysqlStatement); ok {
			return s
		}
	}
	s := &mysqlStatement{}
	s.text = mysqlPlaceholder.ReplaceAllStringFunc(sql, func(p string) string {
		n, _ := strconv.Atoi(p[1:]) // digits only
		s.order = append(s.order, n-1)
		return "?"
	})
	mysqlStatements.Store(sql, s)
	return s
}
