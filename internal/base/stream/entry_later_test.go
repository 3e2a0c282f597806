package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// A later release may add fields to an entry. This build ignores them, so that it can run beside that release.
func TestFurtherFieldsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{
		{"3", "grant rain 7 1 1700000000123 CNY\n3 500 u1 r1 -"},
		{"2", "epoch - 7 2 1700000000123\n9 8"},
		{"1", "close rain 7 1 1700000000123\n1 500 0 0"},
	} {
		want, err := stream.ParseEntry(5, "9-1", values)
		require.NoError(t, err)
		got, err := stream.ParseEntry(5, "9-1", append(values, "later", "x"))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
