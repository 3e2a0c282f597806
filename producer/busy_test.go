package producer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// A long script of another program blocks Redis, which answers BUSY to all other clients (F9). A grab then fails as an
// outage, and nothing happens. A retry after the end of the script is granted once.
func TestRedisBusyWithAScript(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"busy-reply-threshold": "5"}}), 1)
	b.load(t, spec("rain", 10))
	p := b.producer(t, func(c *producer.Config) { c.CallTimeout = hopeless })
	_, err := p.Grab(t.Context(), grab("u0", "r0"))
	require.NoError(t, err)
	other := b.server.Client(t)
	killed := make(chan error, 1)
	go func() { killed <- other.Eval(t.Context(), "while true do end", nil).Err() }()
	testkit.Eventually(t, 30*time.Second, func() bool {
		return redis.HasErrorPrefix(b.server.Client(t).Ping(t.Context()).Err(), "BUSY")
	}, "Redis is busy")
	testkit.Eventually(t, 20*time.Second, func() bool { // a try that runs into CallTimeout does not see BUSY
		_, err = p.Grab(t.Context(), grab("u1", "r1"))
		require.True(t, hongbao.IsOutage(err), "%v", err)
		return strings.Contains(err.Error(), "BUSY")
	}, "the error says why")
	require.NoError(t, b.server.Client(t).ScriptKill(t.Context()).Err())
	require.Error(t, <-killed)
	for range 2 {
		a, err := p.Grab(t.Context(), grab("u1", "r1"))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
	}
	require.Len(t, b.grants(t), 2)
}
