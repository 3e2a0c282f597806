package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Every long read and every load slows down while Redis answers slowly.
func TestLongWorkRestsWhileRedisIsBusy(t *testing.T) {
	t.Parallel()
	server := testkit.Redis(t)
	b := bundleOf(storetest.InitializedOn(t, server.Client(t), 1))
	b.load(t, spec("rain", 20_000))
	for i := range 4 {
		fields := make([]any, 0, 1000)
		for j := range 500 {
			fields = append(fields, fmt.Sprintf("u%d-%d", i, j), "-")
		}
		require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Receipts("rain"), fields...).Err())
		require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Codes("rain"), fields...).Err())
	}
	b.grab(t, "rain", "u1/r1")

	slow, err := proxy.Start(server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, slow.Close()) })
	over := server.Client(t, func(o *redis.Options) { o.Addr = slow.Addr })
	const trip = 10 * time.Millisecond // the rest after each page is four times what it took longer than the shortest
	k := b.store.Over(over).Shard(0)

	for name, work := range longWorks(t.Context(), k) {
		slow.Delay(0)
		_, err := k.Range(t.Context(), "-", "+", 1) // a short page
		require.NoError(t, err)
		before := slow.Fired().Delayed
		slow.Delay(trip)
		begun := time.Now()
		require.NoError(t, work.do(), name)
		took, delayed := time.Since(begun), slow.Fired().Delayed-before
		require.GreaterOrEqual(t, delayed, work.pages, "%s: the answers were slow", name)
		require.GreaterOrEqual(t, took, time.Duration(work.pages)*trip+time.Duration(work.pages-1)*2*trip, name)
	}
}

// longWork is each kind of work that takes turns, with how many pages it has.
type longWork struct {
	pages int
	do    func() error
}

func longWorks(ctx context.Context, k *store.Shard) map[string]longWork {
	place, letters := k.Place("rain"), k.Group("balance")
	thrice := func(do func() error) func() error {
		return func() error { return errors.Join(do(), do(), do()) }
	}
	none := func(string, string) error { return nil }
	return map[string]longWork{
		"receipts": {8, func() error { return place.EachReceiptsText(ctx, none) }},
		"codes":    {8, func() error { return place.EachCode(ctx, none) }},
		"stock":    {4, func() error { return place.EachLeft(ctx, 1, func(string) error { return nil }) }},
		"claims": {3, thrice(func() error {
			return letters.EachClaim(ctx, func(store.OpenClaim, error) error { return nil })
		})},
		"entries": {3, thrice(func() error {
			_, err := k.Range(ctx, "-", "+", 1)
			return err
		})},
		"letters": {3, thrice(func() error {
			_, err := letters.Letters(ctx, "-", "+", 1)
			return err
		})},
		"resolved letters": {3, thrice(func() error {
			_, err := letters.ResolvedLetters(ctx, "-", "+", 1)
			return err
		})},
		"load": {3, thrice(func() error {
			_, err := k.LoadChunk(ctx, &store.Chunk{Campaign: "rain", Hash: "another", Amounts: []hongbao.Amount{1}})
			return err
		})},
		"codes of a load": {3, thrice(func() error {
			_, err := k.PutCodes(ctx, &store.CodesChunk{Campaign: "rain", Hash: "another", First: 1})
			return err
		})},
	}
}
