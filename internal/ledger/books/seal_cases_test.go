package books

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// testSealIsolated seals a campaign whose seqs are all isolated, because other campaigns share its shard. They take more
// bytes than the server accepts in one statement.
func testSealIsolated(t *testing.T, f *fixture) {
	const isolated = 6_000_000
	f.Create(t, "rain", 10)
	seqs := make([]stream.SeqRange, isolated)
	for i := range seqs {
		seqs[i] = stream.SeqRange{First: int64(i)*2 + 1, Last: int64(i)*2 + 1}
	}
	s := &seal{seqs: map[int][]stream.SeqRange{3: seqs, 5: {{First: 7, Last: 9}}}}
	for range 2 {
		require.NoError(t, s.store(t.Context(), f.Tables(), "rain"))
	}
	got, err := f.books.SealedSeqs(t.Context(), "rain")
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.True(t, slices.Equal(seqs, got[3]))
	require.Equal(t, s.seqs[5], got[5])
	f.Tamper(t, db.Stmt{SQL: `DELETE FROM seal`})
	got, err = f.books.SealedSeqs(t.Context(), "rain")
	require.NoError(t, err)
	require.Empty(t, got, "a removed seal leaves nothing")
	require.NoError(t, s.store(t.Context(), f.Tables(), "rain"))
}
