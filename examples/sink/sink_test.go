package sink_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/examples/sink"
	"github.com/hongbao-project/hongbao/sink/sinktest"
)

// This sink passes the suite. The suite cannot break single requests of a database in the process, so the cases that
// need the hook Lose are skipped.
func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Subject {
		d := &database{file: filepath.Join(t.TempDir(), "points.db")}
		d.open(t)
		db, err := sql.Open("sqlite", "file:"+d.file+"?_pragma=busy_timeout(10000)")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		d.db = db
		return sinktest.Subject{Open: d.open, Effects: d.effects, Poison: poison, Down: d.down}
	})
}

// database is the target: the file, and a connection of its own to it.
type database struct {
	file string
	db   *sql.DB
	lock *sql.Conn // locks the file against writes, while the target is down
}

// open opens the sink as another process would.
func (d *database) open(t testing.TB) hongbao.Handler {
	t.Helper()
	s, err := sink.Open(t.Context(), d.file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// effects counts what users have, and not the rows of booked grants: a grant that was booked once may have given its
// points twice. In this suite each user has one grant.
func (d *database) effects(t testing.TB, grants []hongbao.Grant) []int {
	t.Helper()
	counts := make([]int, len(grants))
	for i, g := range grants {
		var n int
		require.NoError(t, d.db.QueryRowContext(t.Context(), "SELECT coalesce(sum(n), 0) FROM points WHERE user_id = ?",
			g.User).Scan(&n))
		counts[i] = n / int(max(g.Amount, 1))
	}
	return counts
}

// poison makes a grant that the sink refuses: points need an amount.
func poison(_ testing.TB, g hongbao.Grant) hongbao.Grant {
	g.Amount = 0
	return g
}

// down locks the file, as another program could.
func (d *database) down(t testing.TB, down bool) {
	t.Helper()
	ctx := context.Background()
	if !down {
		_, err := d.lock.ExecContext(ctx, "ROLLBACK")
		require.NoError(t, err)
		require.NoError(t, d.lock.Close())
		return
	}
	var err error
	d.lock, err = d.db.Conn(ctx)
	require.NoError(t, err)
	_, err = d.lock.ExecContext(ctx, "BEGIN IMMEDIATE")
	require.NoError(t, err)
}
