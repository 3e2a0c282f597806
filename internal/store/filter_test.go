package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// emptied loads campaign rain and grants all its packets.
func emptied(t *testing.T, b *bundle) {
	b.load(t, spec("rain", 3))
	b.grab(t, "rain", "u1", "u2", "u3")
}

func (b *bundle) revision(ctx context.Context) string {
	return b.rdb.HGet(ctx, b.k.Keys.Campaign("rain"), "revision").Val() // empty if the key has another type
}

func filterPart(revision, name, text string) *store.FilterPart {
	return &store.FilterPart{Revision: revision, By: "w1", Name: name, Text: []byte(text)}
}

// Winners returns every user who has packets and nobody else, over several calls of the script.
func TestWinners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const packets = 5000
	b.load(t, spec("rain", packets))
	want := map[string]bool{}
	for i := range packets / store.MaxGrabs {
		var users []string
		for k := range store.MaxGrabs {
			users = append(users, fmt.Sprint("u", i*store.MaxGrabs+k))
			want[users[k]] = true
		}
		b.grab(t, "rain", users...)
	}
	for i := len(want); i < packets; i++ {
		b.grab(t, "rain", fmt.Sprint("u", i))
		want[fmt.Sprint("u", i)] = true
	}
	k := b.k
	n, err := k.Place("rain").CountWinners(t.Context(), b.revision(t.Context()))
	require.NoError(t, err)
	require.EqualValues(t, packets, n)
	got := map[string]bool{}
	require.NoError(t, k.Place("rain").Winners(t.Context(), b.revision(t.Context()), func(user string) { got[user] = true }))
	require.Equal(t, want, got)
}

// Winners are final only if the campaign is open and has the requested revision, and no generation has a packet
// left.
func TestWinnersAreNotFinal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		change func(b *bundle) error
		why    string
	}{
		"missing": {func(b *bundle) error { return b.rdb.Del(t.Context(), b.k.Keys.Campaign("rain")).Err() }, "missing"},
		"paused": {func(b *bundle) error {
			return b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "paused").Err()
		}, "paused"},
		"another plan": {func(b *bundle) error {
			return b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "revision", "another").Err()
		}, "revision"},
		"packets": {func(b *bundle) error { return b.rdb.RPush(t.Context(), b.k.Keys.Stock("rain"), "9 1").Err() }, "packets"},
		"announced": {func(b *bundle) error {
			return b.k.Announce(t.Context(), announcement(b, 5, 50))
		}, "revision"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, b.rdb)
			emptied(t, b)
			revision, k := b.revision(t.Context()), b.k
			require.NoError(t, c.change(b))
			_, err := k.Place("rain").CountWinners(t.Context(), revision)
			require.ErrorIs(t, err, store.ErrNotFinal)
			require.ErrorContains(t, err, "("+c.why+")")
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
			err = k.Place("rain").Winners(t.Context(), revision, func(string) { t.Error("a user is named") })
			require.ErrorIs(t, err, store.ErrNotFinal)
		})
	}
}

// Winners are not final while an older generation has packets left or a generation is not dealt yet.
func TestWinnersOfGenerations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	emptied(t, b)
	k, ctx := b.k, t.Context()
	require.NoError(t, k.Announce(ctx, announcement(b, 4, 40)))
	second := b.revision(ctx)
	_, err := k.Place("rain").CountWinners(ctx, second)
	require.ErrorContains(t, err, "(dealing)")
	require.NoError(t, b.rdb.HSet(ctx, b.k.Keys.Campaign("rain"), "dealt", 2).Err())
	n, err := k.Place("rain").CountWinners(ctx, second)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.NoError(t, b.rdb.RPush(ctx, b.k.Keys.Stock("rain"), "9 1").Err())
	_, err = k.Place("rain").CountWinners(ctx, second)
	require.ErrorContains(t, err, "(packets)")
	for _, revision := range []string{"h.x", "h.1", "h.65"} {
		_, err = k.Place("rain").CountWinners(ctx, revision)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), revision)
	}
}

// Two callers build a filter. Only the caller that put part 0 last may continue. A filter for an old revision is
// refused.
func TestPutFilter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	emptied(t, b)
	k, ctx := b.k, t.Context()
	revision := b.revision(ctx)
	put := func(by, name, text string) error {
		p := filterPart(revision, name, text)
		p.By = by
		return k.Place("rain").PutFilter(ctx, p)
	}
	require.ErrorIs(t, put("w1", "1", "b"), store.ErrOvertaken, "no one has begun")
	require.NoError(t, put("w1", "0", "a"))
	require.NoError(t, put("w1", "1", "b"))
	require.NoError(t, put("w1", store.FilterHead, "h"))
	head, found, err := k.Place("rain").FilterPart(ctx, store.FilterHead)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "h", head)
	require.NoError(t, put("w2", "0", "c"))
	_, found, err = k.Place("rain").FilterPart(ctx, store.FilterHead)
	require.NoError(t, err)
	require.False(t, found, "the older filter is gone")
	require.ErrorIs(t, put("w1", store.FilterHead, "h"), store.ErrOvertaken)
	require.NoError(t, put("w2", store.FilterHead, "h2"))
	require.NoError(t, b.rdb.HSet(ctx, b.k.Keys.Campaign("rain"), "revision", "another").Err())
	require.ErrorIs(t, put("w2", store.FilterHead, "h3"), store.ErrNotFinal)
	require.NoError(t, b.rdb.HSet(ctx, b.k.Keys.Campaign("rain"), "revision", revision, "state", "closed").Err())
	require.ErrorIs(t, put("w2", "0", "c"), store.ErrNotFinal)
}

// Redis has a campaign's filter but has lost its other keys. The campaign can't be loaded again beside the leftover
// key.
func TestFilterIsALeftover(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Filter("rain"), "by", "w1").Err())
	require.ErrorContains(t, begin(t.Context(), b), "HBLEFTOVER")
}

func TestWantedFilters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, id := range []string{"rain", "snow"} {
		require.NoError(t, b.store.Campaign(id).WantFilter(ctx, "of "+id))
	}
	wanted, err := b.store.WantedFilters(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"rain", "snow"}, slices.Sorted(maps.Keys(wanted)))
	require.Equal(t, "of snow", wanted["snow"])
	require.NoError(t, b.store.Campaign("rain").UnwantFilter(ctx))
	wanted, err = b.store.WantedFilters(ctx)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"snow": "of snow"}, wanted)
}
