package store_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Entries omits an unreadable entry between two readable ones. An entry in the format of a newer build is an error.
func TestEntriesLeavesOutWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(values ...any) {
		require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Keys.Events(), Values: values}).Err())
	}
	grant := func(seq int) []any {
		return testkit.Entry("grant", "rain", seq, 1, 1_700_000_000_000, "1 100 u1 - -")
	}
	add(grant(1)...)
	add("poison", "1e9")
	add(grant(2)...)
	entries, err := b.k.Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.EqualValues(t, 2, entries[1].Seq)
	add("4", grant(3)[1])
	_, err = b.k.Entries(t.Context(), "-", "+")
	require.ErrorIs(t, err, stream.ErrNewerEntry)
}
