package store_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// setupClaims initializes a deployment of four shards. Their seqs are high, so that events without entries can be
// claimed.
func setupClaims(t *testing.T) *bundle {
	t.Helper()
	return bundleOf(storetest.FarAlong(t, storetest.Initialized(t, 4)))
}

func (b *bundle) claims(t *testing.T, owner string) *store.Claims {
	t.Helper()
	c, err := b.store.Claims(store.ClaimsConfig{Sink: "kafka", Owner: owner, Lease: time.Minute})
	require.NoError(t, err)
	return c
}

// unreached returns a store whose Redis does not exist, for calls that must fail earlier.
func unreached(t *testing.T) *store.Store {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: "hb", Shards: 1}})
	require.NoError(t, err)
	return st
}

func TestNewNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := store.New(store.Config{})
	for _, part := range []string{"redis is required", "key prefix"} {
		require.ErrorContains(t, err, part)
	}
}

func TestClaimsNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := unreached(t).Claims(store.ClaimsConfig{Sink: "K", Owner: "a b", Lease: 25 * time.Hour})
	for _, part := range []string{"sink", "owner", "lease"} {
		require.ErrorContains(t, err, part)
	}
}

// Claims with invalid ids or events are refused without a call to Redis.
func TestClaimRefusesBadCalls(t *testing.T) {
	t.Parallel()
	c := (&bundle{store: unreached(t)}).claims(t, "w1")
	good := []stream.SeqRange{{First: 1, Last: 2}}
	for name, bad := range map[string]struct {
		id     string
		events []stream.SeqRange
	}{
		"no id": {"", good}, "id of the fence": {"#fence", good}, "id of two lines": {"a\nb", good}, "no events": {"c1", nil},
		"seq 0":     {"c1", []stream.SeqRange{{First: 0, Last: 1}}},
		"backwards": {"c1", []stream.SeqRange{{First: 2, Last: 1}}},
		"too many":  {"c1", []stream.SeqRange{{First: 1, Last: store.MaxEvents + 1}}},
		"long id":   {strings.Repeat("c", 200), good},
	} {
		_, err := c.Claim(t.Context(), stream.Opening{Shard: 0}, bad.id, bad.events, "")
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%s: %v", name, err)
	}
}

func TestClaimLife(t *testing.T) {
	t.Parallel()
	b := setupClaims(t)
	ctx := t.Context()
	w1, w2 := b.claims(t, "w1"), b.claims(t, "w2")
	events := []stream.SeqRange{{First: 1, Last: 10}}
	arrived := stream.OfCampaign("rain", events...)
	got, err := w1.Claim(ctx, stream.Opening{Shard: 2}, "c1", events, "batch")
	require.NoError(t, err)
	require.True(t, got.Granted())
	mine := stream.Claim{ID: "c1", Fence: got.Fence, Events: events, Payload: "batch"}

	other, err := w2.Claim(ctx, stream.Opening{Shard: 3}, "c2", events, "")
	require.NoError(t, err)
	require.True(t, other.Granted(), "equal seqs on different shards are different events")
	held, err := w2.Claim(ctx, stream.Opening{Shard: 2}, "c3", []stream.SeqRange{{First: 10, Last: 11}}, "")
	require.NoError(t, err)
	require.Equal(t, stream.ClaimAnswer{LiveClaims: 1}, held)

	taken, err := w1.Claim(ctx, stream.Opening{Shard: 2}, "c3", events[:1], "") // w1 takes over its own claim, with a higher fence
	require.NoError(t, err)
	require.Len(t, taken.Open, 1)
	require.ErrorIs(t, w1.Complete(ctx, stream.Opening{Shard: 2}, mine, arrived), stream.ErrFenced)
	require.ErrorIs(t, w1.Release(ctx, stream.Opening{Shard: 2}, mine), stream.ErrFenced)
	require.NoError(t, w1.Complete(ctx, stream.Opening{Shard: 2}, taken.Open[0], arrived))
	done, err := w2.Claim(ctx, stream.Opening{Shard: 2}, "c4", []stream.SeqRange{{First: 5, Last: 12}}, "")
	require.NoError(t, err)
	require.Equal(t, stream.ClaimAnswer{Done: []stream.SeqRange{{First: 5, Last: 10}}}, done)

	again, err := w2.Claim(ctx, stream.Opening{Shard: 2}, "c5", []stream.SeqRange{{First: 11, Last: 12}}, "")
	require.NoError(t, err)
	require.True(t, again.Granted())
	require.NoError(t, w2.Release(ctx, stream.Opening{Shard: 2}, stream.Claim{ID: "c5", Fence: again.Fence}))
	again, err = w1.Claim(ctx, stream.Opening{Shard: 2}, "c6", []stream.SeqRange{{First: 11, Last: 12}}, "")
	require.NoError(t, err)
	require.True(t, again.Granted(), "released events can be claimed again")
}

// Sixteen workers claim the same events concurrently. Each event is pushed once, under one valid fence.
func TestClaimsByMany(t *testing.T) {
	t.Parallel()
	b := setupClaims(t)
	var pushed [200]atomic.Int64
	var fenced atomic.Int64
	var wg sync.WaitGroup
	for w := range 16 {
		c := b.claims(t, fmt.Sprintf("w%d", w))
		wg.Go(func() {
			for first := int64(1); first < 200; first += 4 {
				r := []stream.SeqRange{{First: first, Last: first + 3}}
				a, err := c.Claim(t.Context(), stream.Opening{Shard: 1}, fmt.Sprintf("c%d-%d", w, first), r, "")
				if err != nil {
					t.Error(err)
					return
				}
				if !a.Granted() {
					fenced.Add(1)
					continue
				}
				for seq := first; seq < first+4 && seq < 200; seq++ {
					pushed[seq].Add(1)
				}
				if err := c.Complete(t.Context(), stream.Opening{Shard: 1},
					stream.Claim{ID: fmt.Sprintf("c%d-%d", w, first), Fence: a.Fence}, stream.OfCampaign("rain", r...)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for seq := 1; seq < 200; seq++ {
		require.EqualValues(t, 1, pushed[seq].Load(), "seq %d", seq)
	}
	require.EqualValues(t, 15*50, fenced.Load())
}

// A worker claims events that others have finished and trimmed, so their done bits are deleted. The answer says that
// they are done. A caller with a different Done, such as a requeue, gets the claim.
func TestClaimBehindTheStream(t *testing.T) {
	t.Parallel()
	b := setupClaims(t)
	claims := func(done string) *store.Claims {
		c, err := b.store.Claims(store.ClaimsConfig{Sink: "kafka", Done: done, Owner: "w1",
			Lease: time.Minute, Trimmed: true})
		require.NoError(t, err)
		return c
	}
	require.NoError(t, b.store.Shard(0).RaiseDoneFloor(t.Context(), 0, 1, nil))
	events := []stream.SeqRange{{First: 5, Last: 6}}
	a, err := claims("").Claim(t.Context(), stream.Opening{Shard: 0}, "c1", events, "")
	require.NoError(t, err)
	require.Equal(t, events, a.Done)
	a, err = claims("requeue").Claim(t.Context(), stream.Opening{Shard: 0}, "c2", events, "")
	require.NoError(t, err)
	require.True(t, a.Granted())
}
