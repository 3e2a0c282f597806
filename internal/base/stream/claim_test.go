package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

func TestClaimAnswerGranted(t *testing.T) {
	t.Parallel()
	require.True(t, (&stream.ClaimAnswer{Fence: 1}).Granted())
	require.False(t, (&stream.ClaimAnswer{LiveClaims: 1}).Granted())
	require.False(t, (&stream.ClaimAnswer{Open: make([]stream.Claim, 1)}).Granted())
	require.False(t, (&stream.ClaimAnswer{Done: []stream.SeqRange{{First: 1, Last: 2}}}).Granted())
	require.EqualValues(t, 2, stream.SeqRange{First: 1, Last: 2}.Len())
}

func TestAppendSeq(t *testing.T) {
	t.Parallel()
	var runs []stream.SeqRange
	for _, seq := range []int64{3, 4, 5, 7, 9, 10} {
		runs = stream.AppendSeq(runs, seq)
	}
	require.Equal(t, []stream.SeqRange{{First: 3, Last: 5}, {First: 7, Last: 7}, {First: 9, Last: 10}}, runs)
}
