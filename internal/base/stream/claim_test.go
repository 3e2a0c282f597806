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
