package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Serve refuses a configuration whose write timeout is shorter than a producer's call may take.
func TestServeWantsTimeForItsAnswers(t *testing.T) {
	t.Parallel()
	cfg, err := configs.Load("", []string{"HONGBAO_PRODUCER_CALL_TIMEOUT=30s"}, nil)
	require.NoError(t, err)
	err = Serve(t.Context(), cfg, Serving{})
	require.ErrorContains(t, err, "add up to 33s, want less than serve.write_timeout")
	var usage app.UsageError
	require.ErrorAs(t, err, &usage)
}
