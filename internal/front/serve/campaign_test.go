package serve

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
)

// A campaign that is still being loaded after its start has not started, whatever its countdown says.
func TestCountdownOfALateLoad(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	s.fake.mu.Lock()
	s.fake.window.State = store.StateLoading
	s.fake.mu.Unlock()
	r := s.call(t, "GET", "/v1/campaigns/rain", "", header("Authorization", ""))
	require.Equal(t, []any{"not_started", float64(0)}, []any{r.Body["status"], r.Body["starts_in_ms"]})
}
