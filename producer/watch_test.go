package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A producer without a logger still reports to Redis which events it has seen, even while it makes no calls.
func TestAProducerWithoutALoggerIsAWitness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	p := b.producer(t, nil)
	for _, user := range []string{"u0", "u1", "u2"} {
		_, err := p.Grab(t.Context(), grab(user, "r"))
		require.NoError(t, err)
	}
	require.NoError(t, b.admin.HSet(t.Context(), b.k.Keys.Meta(), "frozen", 1, "seq", 1).Err())
	testkit.Eventually(t, 10*time.Second, func() bool {
		return b.admin.HGet(t.Context(), b.k.Keys.Meta(), "seen").Val() == "1 3"
	}, "it reports event 3")
}
