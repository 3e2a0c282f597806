package ledger

import (
	"regexp"
	"strconv"
	"sync"
)

var mysqlDialect = dialect{
	queries:    loadQueries("mysql"),
	migrations: "migrations/mysql",
	pack:       packJSON,
	orNothing:  ` ON DUPLICATE KEY UPDATE campaign = VALUES(campaign)`,
	share:      ` LOCK IN SHARE MODE`,
	version:    `VERSION()`,
	semiSync: [2]string{
		`SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled')`,
		`SHOW GLOBAL STATUS WHERE Variable_name IN ('Rpl_semi_sync_master_status', 'Rpl_semi_sync_source_status')`},
	// One more connection is for an administrator.
	connections: `@@max_connections`,
	now:         `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000`,
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
