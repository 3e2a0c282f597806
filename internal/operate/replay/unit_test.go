package replay

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

type discard struct{}

func (discard) Handle(context.Context, hongbao.Batch) []error { return nil }

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Options: delivery.Options{Rate: math.NaN(), Patience: -1}})
	for _, name := range []string{"Store", "Handler", "Name", "Target", "DoneSink", "BatchGrants", "Rate",
		"Parallel", "Patience"} {
		require.ErrorContains(t, err, name)
	}
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 2}})
	require.NoError(t, err)
	r, err := New(Config{Store: st, Name: "x", Target: "t", DoneSink: "d", Parallel: 1,
		Options: delivery.Options{Handler: discard{}, BatchGrants: 1}})
	require.NoError(t, err)
	nine := 9
	now := time.Now()
	_, err = r.Run(t.Context(), Options{Dead: "no:sink", Filter: Filter{
		Shard: &nine, Seqs: stream.SeqRange{First: 5, Last: 4}, Campaign: "a b", User: "a b", From: now, To: now,
	}})
	for _, name := range []string{"no:sink", "shard 9", "seqs 5 to 4", "campaign", "user", "want from before to"} {
		require.ErrorContains(t, err, name)
	}
	_, err = r.Run(t.Context(), Options{Filter: Filter{Seqs: stream.SeqRange{First: 1, Last: 2}}})
	require.ErrorContains(t, err, "give the shard too")
}
