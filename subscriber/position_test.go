package subscriber

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// positionRow creates the table of an earlier build with one row, of shard 0.
func (d *database) positionRow(t *testing.T, name string, seen []byte) {
	t.Helper()
	bytes := map[string]string{sqLite: "BLOB", postgreSQL: "BYTEA"}[d.dialect]
	for _, statement := range []string{
		`CREATE TABLE hongbao_position (name TEXT NOT NULL, source TEXT NOT NULL, shard INTEGER NOT NULL,
			turns BIGINT NOT NULL, seen ` + bytes + ` NOT NULL, PRIMARY KEY (name, source, shard))`,
		`INSERT INTO hongbao_position VALUES ('` + name + `', '/hongbao/d1', 0, 7, '')`,
	} {
		_, err := d.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	d.setPosition(t, seen)
}

func (d *database) setPosition(t *testing.T, seen []byte) {
	t.Helper()
	_, err := d.ExecContext(t.Context(), `UPDATE hongbao_position SET seen = $1`, seen)
	require.NoError(t, err)
}

// An earlier build stored shards and seqs. After an upgrade, the group may read its events again: they have no second
// effect. All other events have theirs. The earlier build wrote the bytes of the position: the floor 10, and the runs
// 12-14 and 20-320.
func TestSQLDropsTheEventsOfAnEarlierBuild(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		db.positionRow(t, "g", []byte{1, 10, 2, 1, 2, 5, 0xac, 2})
		s := db.sink(t, nil)
		require.Equal(t, Report{Next: 8, Repeated: 8}, push(t, s, events(0, 1, 10, 12, 13, 14, 20, 200, 320)...))
		require.Equal(t, Report{Next: 7, Done: 5, Repeated: 2}, push(t, s, events(0, 11, 14, 15, 19, 320, 321, 9000)...))
		abroad := event(0, 12)
		abroad.Source = "/hongbao/d2"
		require.Equal(t, Report{Next: 2, Done: 2}, push(t, s, append(events(1, 12), abroad)...))
		require.Equal(t, Report{Next: 2, Repeated: 2}, push(t, db.sink(t, nil), events(0, 11, 12)...), "after a restart")

		db.setPosition(t, []byte{1, 0, 1, 0, 99}) // 1-100: a process of the earlier build ended late
		require.Equal(t, Report{Next: 2, Done: 1, Repeated: 1}, push(t, s, events(0, 16, 200)...))

		_, err := db.ExecContext(t.Context(), `DELETE FROM hongbao_position`)
		require.NoError(t, err)
		require.Equal(t, Report{Next: 2, Done: 1, Repeated: 1}, push(t, s, events(0, 13, 15)...), "the operator deleted it")
	})
}

func TestSQLIgnoresPositionsOfOthers(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		db.positionRow(t, "other", []byte{1, 10, 0})
		require.Equal(t, Report{Next: 1, Done: 1}, push(t, db.sink(t, nil), event(0, 5)))
	})
}

func TestSQLUnreadablePosition(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		db.positionRow(t, "g", []byte{})
		s := db.sink(t, nil)
		for want, seen := range map[string][]byte{
			"end too early":     {1, 10, 2, 1, 2},
			"version is 2":      {2, 10, 0},
			"1 bytes follow":    {1, 10, 0, 0},
			"out of bounds":     {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0},
			"number is out of":  {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0, 0}, // a run after the last seq
			"restore the row f": {0xff},
		} {
			db.setPosition(t, seen)
			_, err := s.Push(t.Context(), events(0, 1))
			require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
			require.ErrorContains(t, err, want)
		}
		effects, _ := db.count(t)
		require.Zero(t, effects)
		db.setPosition(t, []byte{})
		require.Equal(t, Report{Next: 1, Done: 1}, push(t, s, event(0, 1)), "an empty position")
	})
}
