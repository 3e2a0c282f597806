package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// What can't be read leaves the rest of the state as it is. A Redis that tells nothing in time does not answer.
func TestStateKeepsWhatCame(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	a := onRedis(t, server, hongbao.DurabilityFast, 1)
	require.NoError(t, a.redis.HSet(t.Context(), a.space.Shard(0).Audit(), "started", "yesterday").Err())
	s, err := a.state(t.Context(), []string{"rain"})
	require.NoError(t, err)
	require.Nil(t, s.Audit)
	require.Len(t, s.Servers, 1)
	require.Len(t, s.Shards, a.space.Len())
	require.EqualValues(t, 10, s.Campaigns[0].Left)
	for _, sink := range s.Sinks {
		require.Len(t, sink.Shards, a.space.Len())
	}
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	s, err = a.state(late, []string{"rain"})
	require.Error(t, err)
	require.Empty(t, s.Servers)
}
