package postgres

import (
	"embed"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

//go:embed statements.sql
var statements string

//go:embed migrations
var migrations embed.FS

var dialect = db.Dialect{
	Name:       Name,
	Queries:    db.LoadQueries(db.Standard, statements),
	Migrations: db.MustLoadSteps(migrations, "migrations"),
	// The wait for another migration has no time limit.
	Lock: []string{`SET LOCAL lock_timeout = 0`, `SELECT pg_advisory_xact_lock(7166473318640)`,
		`RESET lock_timeout`},
	Pack:      func(columns ...any) ([]any, error) { return columns, nil },
	Copies:    true,
	OrNothing: ` ON CONFLICT (campaign, packet) DO NOTHING`,
	Share:     ` FOR SHARE`,
	Blocks:    `SELECT pg_relation_size('account') / CAST(current_setting('block_size') AS bigint)`,
	Version:   `current_setting('server_version')`,
	// The time when the server received the statement. A worker's own clock starts earlier, before it sends the
	// statement.
	Now: `CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)`,
	Connections: `CAST(current_setting('max_connections') AS bigint)
		- CAST(current_setting('superuser_reserved_connections') AS bigint)
		- COALESCE(CAST(current_setting('reserved_connections', true) AS bigint), 0)`,
	Denied: `SELECT r.name || ' on ' || string_agg(t.name, ', ' ORDER BY t.name)
		FROM unnest($1::text[]) AS t (name), unnest(ARRAY['SELECT', 'INSERT']) AS r (name)
		WHERE NOT has_table_privilege(to_regclass(t.name), r.name)
			AND (r.name = 'SELECT' OR t.name <> 'deployment') GROUP BY r.name ORDER BY r.name`,
}
