package subscriber

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// A build before the first release stored shards and seqs of events in hongbao_position. NewSQL refuses rows of its Name,
// and creates no table. Rows of other subscribers don't matter.
func TestSQLRefusesPositions(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		bytes := map[string]string{sqLite: "BLOB", postgreSQL: "BYTEA"}[db.dialect]
		for _, statement := range []string{`DROP TABLE IF EXISTS hongbao_seen`,
			`CREATE TABLE hongbao_position (name TEXT NOT NULL, source TEXT NOT NULL, shard INTEGER NOT NULL,
				turns BIGINT NOT NULL, seen ` + bytes + ` NOT NULL, PRIMARY KEY (name, source, shard))`,
			`INSERT INTO hongbao_position VALUES ('g', '/hongbao/d1', 0, 7, ''), ('other', '/hongbao/d1', 0, 7, '')`,
		} {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		for range 2 {
			_, err := NewSQL(t.Context(), SQLConfig{DB: db.DB, Dialect: db.dialect, Name: "g", UnsafeAllow: fastServers,
				Timeout: 20 * time.Second, Effect: rows(nil)})
			require.ErrorContains(t, err, `hongbao_position has 1 rows of subscriber "g": a build before the first release`)
			require.ErrorContains(t, err, `DELETE FROM hongbao_position WHERE name = 'g'`)
			require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
			_, err = db.ExecContext(t.Context(), `SELECT 1 FROM hongbao_seen`)
			require.Error(t, err, "NewSQL has made a table")
		}
		_, err := db.ExecContext(t.Context(), `DELETE FROM hongbao_position WHERE name = 'g'`)
		require.NoError(t, err)
		require.Equal(t, Report{Next: 1, Done: 1}, push(t, db.sink(t, nil), event(0, 5)))
	})
}
