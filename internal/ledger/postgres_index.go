package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// index creates a step's index by CREATE INDEX CONCURRENTLY, so that workers can write meanwhile. A killed attempt
// leaves an invalid index, which is dropped first. If the index needs a new column, index adds that before.
//
// It polls for the lock of the migrations instead of waiting for it. CREATE INDEX CONCURRENTLY waits for every older
// statement, so it would deadlock with another process that waits for the lock.
func (p *postgres) index(ctx context.Context, m *migration) error {
	pooled, err := p.pool.Acquire(ctx)
	if err != nil {
		return postgresError(fmt.Errorf("get a connection to PostgreSQL: %w", err), false)
	}
	conn := pooled.Hijack() // closing it also ends its settings and its lock
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	name, _, _ := strings.Cut(m.index, " ")
	err = retry.Poll(ctx, 50*time.Millisecond, func() (locked bool, err error) {
		err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(7166473318640)`).Scan(&locked)
		return locked, err
	})
	invalid := false
	if err == nil {
		err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_index
			WHERE indexrelid = to_regclass($1) AND NOT indisvalid)`, name).Scan(&invalid)
	}
	var sql []string
	if m.column != "" {
		sql = append(sql, "ALTER TABLE "+m.column)
	}
	sql = append(sql, "SET lock_timeout = 0")
	if invalid {
		sql = append(sql, "DROP INDEX CONCURRENTLY "+name)
	}
	sql = append(sql, "CREATE INDEX CONCURRENTLY IF NOT EXISTS "+m.index)
	for _, s := range sql {
		if err == nil {
			_, err = conn.Exec(ctx, s)
		}
	}
	if err != nil {
		return postgresError(fmt.Errorf("create index %s: %w", name, err), false)
	}
	return nil
}
