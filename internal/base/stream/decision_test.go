package stream_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// The length of a reason counts characters, so a Chinese one may be as long as an English one.
func TestReason(t *testing.T) {
	t.Parallel()
	for why, problem := range map[string]string{
		"a repair": "", strings.Repeat("对", stream.MaxWhy): "", strings.Repeat("x", stream.MaxWhy): "",
		"": "is required", " \t": "is required", strings.Repeat("对", stream.MaxWhy+1): "has 501 characters",
		"two\nlines": "has control characters", "\xff": "has control characters",
	} {
		err := stream.Decision{By: "ann", Why: why}.Check()
		if problem == "" {
			require.NoError(t, err, why)
			continue
		}
		require.ErrorContains(t, err, "the reason "+problem, "%q", why)
	}
	require.ErrorContains(t, stream.Decision{By: "no id", Why: "x"}.Check(), `who decides, "no id"`)
}
