package db

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable(t *testing.T) {
	t.Parallel()
	table := Table{[]string{"a", "b"}, []int64{1, 2}, []int32{3, 4}}
	args := []any{table, "owner", int64(7)}
	packed, err := AsJSON(args)
	require.NoError(t, err)
	require.Equal(t, []any{`[["a",1,3],["b",2,4]]`, "owner", int64(7)}, packed)
	require.Equal(t, []any{table[0], table[1], table[2], "owner", int64(7)}, AsColumns(args))
	require.Equal(t, 2, table.Rows())
	require.Len(t, table, 3, "the arguments are not changed")
	for _, plain := range [][]any{nil, {"a", int64(1)}} {
		packed, err := AsJSON(plain)
		require.NoError(t, err)
		require.Equal(t, plain, packed)
		require.Equal(t, plain, AsColumns(plain))
	}
}

func TestLoadQueries(t *testing.T) {
	t.Parallel()
	text := Standard
	for name := range (&Queries{}).byName() {
		if name != "insert_grants_again" && !strings.Contains(Standard, "-- name: "+name+"\n") {
			text += "\n-- name: " + name + "\n-- a comment\nSELECT '" + name + "';\n"
		}
	}
	require.PanicsWithValue(t, "statement insert_grants_again is missing", func() { LoadQueries(text) })
	text += "\n-- name: insert_grants_again\n-- after: insert_grants\nLIMIT 1;\n"
	q := LoadQueries(text)
	require.Equal(t, `SELECT 'insert_grants'`, q.InsertGrants)
	require.Equal(t, "SELECT 'insert_grants'\nLIMIT 1", q.InsertGrantsAgain)
	require.PanicsWithValue(t, "statement has_schema is unknown or appears twice",
		func() { LoadQueries(text + "\n-- name: has_schema\nSELECT 1;\n") })
	require.PanicsWithValue(t, "statement x is unknown or appears twice",
		func() { LoadQueries("-- name: x\nSELECT 1;\n") })
}
