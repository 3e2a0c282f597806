package store_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A server is demoted and promoted again, so it has lost a claim but still runs the scripts. The script grants the
// lost claim's events again, and hands over a claim that may have ended. In both cases Claim returns ErrFrozen, so no
// caller acts on the answer.
func TestClaimOnAServerThatWasPromotedAgain(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	b := setupOn(t, server.Client(t))
	storetest.FarAlong(t, b.store)
	w1, w2 := b.claims(t, "w1"), b.claims(t, "w1")
	claim := func(c *store.Claims, id string, first int64) (stream.ClaimAnswer, error) {
		return c.Claim(t.Context(), stream.Opening{Shard: 0}, id, []stream.SeqRange{{First: first, Last: first + 9}}, "batch")
	}
	_, err := claim(w1, "kept", 1)
	require.NoError(t, err)
	other := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: server})
	testkit.Eventually(t, 20*time.Second, func() bool {
		return b.rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, "the other server has all")
	require.NoError(t, other.Client(t).ReplicaOf(t.Context(), "NO", "ONE").Err())
	_, err = claim(w1, "lost", 11)
	require.NoError(t, err)

	host, port, err := net.SplitHostPort(other.Addr)
	require.NoError(t, err)
	require.NoError(t, b.rdb.ReplicaOf(t.Context(), host, port).Err())
	testkit.Eventually(t, 20*time.Second, func() bool {
		return b.rdb.InfoMap(t.Context(), "replication").Val()["Replication"]["master_link_status"] == "up"
	}, "it follows the other server")
	require.NoError(t, b.rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())

	for id, first := range map[string]int64{"granted": 11, "taken over": 1} {
		_, err = claim(w2, fmt.Sprint("c", first), first)
		require.ErrorIs(t, err, store.ErrFrozen, id)
		require.True(t, hongbao.IsOutage(err))
	}
	open, err := b.k.Group("kafka").OpenClaims(t.Context())
	require.NoError(t, err)
	var ids []string
	for i := range open {
		ids = append(ids, open[i].ID)
	}
	require.ElementsMatch(t, []string{"kept", "c11"}, ids, "the script's changes remain")
}
