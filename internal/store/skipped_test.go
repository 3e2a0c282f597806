package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// The field skipped has the ranges that openings have skipped; a star marks an accepted loss. A field that no opening
// wrote, such as an empty range, is an error: a restore must not take an accepted loss for an open one.
func TestSkippedRanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	set := func(text string) {
		require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "skipped", text).Err())
	}
	set("2-5@2,9-12@3*")
	all, err := b.k.Skipped(t.Context())
	require.NoError(t, err)
	require.Equal(t, []stream.SeqRange{{First: 2, Last: 5}, {First: 9, Last: 12}}, all)
	for _, text := range []string{"9-12@2*,65536-65535@3", "9@2", "x-12@2*", "9-12@2**,", "9-12", "9-12@",
		"9-12@2@3", "9-12*@2"} {
		set(text)
		_, err = b.k.Skipped(t.Context())
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), text)
		require.ErrorContains(t, err, "someone changed it by hand")
	}
}
