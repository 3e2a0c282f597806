package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// MakeIndex creates an index by CREATE INDEX CONCURRENTLY, so that workers can write meanwhile. A killed attempt leaves
// an invalid index, which is dropped first.
func (p *store) MakeIndex(ctx context.Context, index string) error {
	name, _, _ := strings.Cut(index, " ")
	err := p.locked(ctx, func(conn *pgx.Conn) error {
		invalid := false
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_index
			WHERE indexrelid = to_regclass($1) AND NOT indisvalid)`, name).Scan(&invalid)
		sql := []string{"SET lock_timeout = 0", "CREATE INDEX CONCURRENTLY IF NOT EXISTS " + index}
		if invalid {
			sql = []string{sql[0], "DROP INDEX CONCURRENTLY " + name, sql[1]}
		}
		for _, s := range sql {
			if err == nil {
				_, err = conn.Exec(ctx, s)
			}
		}
		return err
	})
	if err != nil {
		return classify(fmt.Errorf("create index %s: %w", name, err), false)
	}
	return nil
}

// locked runs a function that can't run in the transaction of the migrations. The connection has their lock.
//
// It polls for the lock instead of waiting for it. CREATE INDEX CONCURRENTLY waits for every older statement, so it
// would deadlock with another process that waits for the lock.
func (p *store) locked(ctx context.Context, do func(conn *pgx.Conn) error) error {
	pooled, err := p.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("get a connection to PostgreSQL: %w", err)
	}
	conn := pooled.Hijack() // closing it also ends its settings and its lock
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = retry.Poll(ctx, 50*time.Millisecond, func() (locked bool, err error) {
		err = conn.QueryRow(ctx, `SELECT pg_try_advisory_lock(7166473318640)`).Scan(&locked)
		return locked, err
	})
	if err != nil {
		return err
	}
	return do(conn)
}

// Grant gives the roles of deploy/rights/postgres.sql their rights on the tables. It does nothing in a database in which
// that file has not run, and if the user does not own the tables.
func (p *store) Grant(ctx context.Context) error {
	err := p.locked(ctx, func(conn *pgx.Conn) error {
		var mine bool
		err := conn.QueryRow(ctx, `SELECT COUNT(*) = 3 AND pg_has_role((SELECT relowner FROM pg_class
				WHERE oid = to_regclass('campaign')), 'USAGE')
			FROM pg_namespace AS n, aclexplode(n.nspacl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
			WHERE n.nspname = 'public' AND to_regclass('campaign') = to_regclass('public.campaign')
				AND a.privilege_type = 'USAGE' AND r.rolname IN ('hongbao_serve', 'hongbao_work', 'hongbao_control')`).Scan(&mine)
		if err == nil && mine {
			_, err = conn.Exec(ctx, db.Rights) // one implicit transaction
		}
		return err
	})
	if err != nil {
		return classify(fmt.Errorf("grant the roles of deploy/rights/postgres.sql their rights: %w", err), false)
	}
	return nil
}
