package postgres

import (
	"context"
	"embed"
	"fmt"

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
	Share: ` FOR SHARE`,
	// The time when the server received the statement. A worker's own clock starts earlier, before it sends the
	// statement.
	Now:   `CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)`,
	Parts: blocks,
}

// blockRange is the number of blocks whose accounts one query reads.
const blockRange = 32_768

// blocks is Dialect.Parts by ranges of blocks, because an order by key jumps between the blocks.
func blocks(ctx context.Context, t db.Txn, fn func(where string, args ...any) error) error {
	var all int64
	err := t.Query(ctx, `SELECT pg_relation_size('account') / CAST(current_setting('block_size') AS bigint)`, nil,
		func(s db.Scan) error { return s(&all) })
	for from := int64(0); err == nil && from < all; from += blockRange {
		err = fn(`ctid >= CAST(CAST($1 AS text) AS tid) AND ctid < CAST(CAST($2 AS text) AS tid)`,
			fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", from+blockRange))
	}
	return err
}

// Denied returns the rights that the user lacks on tables.
func (Database) Denied(ctx context.Context, t db.Txn, tables []string) (denied []string, err error) {
	err = t.Query(ctx, `SELECT r.name || ' on ' || string_agg(t.name, ', ' ORDER BY t.name)
		FROM unnest($1::text[]) AS t (name), unnest(ARRAY['SELECT', 'INSERT']) AS r (name)
		WHERE NOT has_table_privilege(to_regclass(t.name), r.name)
			AND (r.name = 'SELECT' OR t.name <> 'deployment') GROUP BY r.name ORDER BY r.name`, []any{tables},
		func(s db.Scan) error {
			var right string
			err := s(&right)
			denied = append(denied, right)
			return err
		})
	return denied, err
}
