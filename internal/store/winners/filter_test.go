package winners_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Filters of 1 to 100,000 winners contain every winner. At most one in 128 other users is a false positive, twice the
// expected rate.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 10, 1000, 100_000} {
		users := make([]string, n)
		for i := range users {
			users[i] = fmt.Sprint("u", i)
		}
		f, err := winners.New("h", slices.Concat(users, users[:1]))
		require.NoError(t, err)
		for _, u := range users {
			require.True(t, f.Has(u), "%s of %d", u, n)
		}
		wrong := 0
		for i := range 100_000 {
			if f.Has(fmt.Sprint("l", i)) {
				wrong++
			}
		}
		require.Less(t, wrong, 100_000/128, "of %d", n)
	}
	_, err := winners.New("h", nil)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

// A filter is requested while places have packets left, and is not built. When all packets are granted it is built,
// and has every winner.
func TestBuild(t *testing.T) {
	t.Parallel()
	b := setup(t, 3, 9000)
	ctx, revision, builder := t.Context(), b.revision(t), b.builder(t, b.rdb)
	var users []string
	for place := range b.places {
		require.ErrorIs(t, builder.Build(ctx, "rain", revision), store.ErrNotFinal)
		require.NoError(t, b.store.Campaign("rain").WantFilter(ctx, revision))
		require.NoError(t, builder.BuildRequested(ctx))
		wanted, err := b.store.WantedFilters(ctx)
		require.NoError(t, err)
		require.Empty(t, wanted, "each attempt removes the request")
		f, err := b.fetch(ctx, revision)
		require.NoError(t, err)
		require.Nil(t, f)
		users = append(users, b.drain(t, place)...)
	}
	require.Len(t, users, 9000)
	require.NoError(t, b.store.Campaign("rain").WantFilter(ctx, revision))
	require.NoError(t, b.store.Campaign("gone").WantFilter(ctx, "h"))
	require.NoError(t, builder.BuildRequested(ctx))
	f, err := b.fetch(ctx, revision)
	require.NoError(t, err)
	for _, u := range users {
		require.True(t, f.Has(u), u)
	}
	older, err := b.fetch(ctx, revision+".2")
	require.NoError(t, err)
	require.Nil(t, older, "the stored filter is of an older generation")
	_, err = b.fetch(ctx, "another")
	require.ErrorContains(t, err, "it is of plan "+revision)
}

// A stored filter is truncated, has a flipped bit, or is inconsistent. Fetch rejects it, and the next Build replaces
// it.
func TestDamagedFilter(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, 100_000)
	ctx, revision, builder := t.Context(), b.revision(t), b.builder(t, b.rdb)
	b.drainWide(t)
	key := b.places[0].Keys.Filter("rain")
	require.NoError(t, builder.Build(ctx, "rain", revision))
	good := b.rdb.HGetAll(ctx, key).Val()
	head := strings.Split(good["head"], " ")
	require.Len(t, head, 5)
	require.Greater(t, len(good), 3, "several parts")
	flipped := []byte(good["1"])
	flipped[100] ^= 4
	for name, c := range map[string]struct{ field, text string }{
		"a flipped bit":  {"1", string(flipped)},
		"cut short":      {"1", good["1"][:100]},
		"no head's text": {"head", "nonsense"},
		"a newer form":   {"head", "2" + good["head"][1:]},
		"fewer bytes":    {"head", strings.Join([]string{head[0], head[1], head[2], "60000", head[4]}, " ")},
		"many bytes":     {"head", strings.Join([]string{head[0], head[1], head[2], "99999999", head[4]}, " ")},
		"below zero":     {"head", strings.Join([]string{head[0], head[1], head[2], "-1", head[4]}, " ")},
		"more winners":   {"head", strings.Join([]string{head[0], head[1], "1" + head[2], head[3], head[4]}, " ")},
	} {
		require.NoError(t, b.rdb.HSet(ctx, key, c.field, c.text).Err())
		f, err := b.fetch(ctx, revision)
		require.Nil(t, f, name)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, key, name)
		require.NoError(t, builder.Build(ctx, "rain", revision), name)
		f, err = b.fetch(ctx, revision)
		require.NoError(t, err, name)
		require.NotNil(t, f, name)
	}
	require.NoError(t, b.rdb.HDel(ctx, key, "1").Err())
	_, err := b.fetch(ctx, revision)
	require.ErrorContains(t, err, "part 1 is missing")
}

// drainWide grants all packets of the first place, with many grabs per call.
func (b *bundle) drainWide(t *testing.T) {
	t.Helper()
	call := &store.GrabCall{MaxBacklog: 1e9}
	for i := 0; ; i += store.MaxGrabs {
		call.Grabs = nil
		for u := range store.MaxGrabs {
			call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: "rain", User: fmt.Sprint("u", i+u), RequestID: "r"})
		}
		answers, err := b.places[0].Grab(t.Context(), call, nil)
		require.NoError(t, err)
		if answers[store.MaxGrabs-1].Outcome == hongbao.OutcomeSoldOut {
			return
		}
	}
}

// killer cancels a context at the n-th call that stores a part, as if the worker died there.
type killer struct {
	left atomic.Int64
	kill context.CancelFunc
}

func (k *killer) DialHook(next redis.DialHook) redis.DialHook { return next }
func (k *killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (k *killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && contains(cmd, "filter") && k.left.Add(-1) < 0 {
			k.kill()
			cmd.SetErr(context.Canceled)
			return context.Canceled
		}
		return next(ctx, cmd)
	}
}

func contains(cmd redis.Cmder, what string) bool {
	for _, arg := range cmd.Args() {
		if text, ok := arg.(string); ok && strings.HasSuffix(text, what) {
			return true
		}
	}
	return false
}

// A worker is killed at each step of storing a filter. Readers get no filter then, and the request stays. The next
// worker builds the filter.
func TestBuilderKilled(t *testing.T) {
	t.Parallel()
	b := setup(t, 1, 100_000)
	b.drainWide(t)
	revision := b.revision(t)
	for step := range 4 {
		require.NoError(t, b.rdb.Del(t.Context(), b.places[0].Keys.Filter("rain")).Err())
		require.NoError(t, b.store.Campaign("rain").WantFilter(t.Context(), revision))
		ctx, kill := context.WithCancel(t.Context())
		k := &killer{kill: kill}
		k.left.Store(int64(step))
		rdb := testkit.Redis(t).Client(t)
		rdb.AddHook(k)
		err := b.builder(t, rdb).BuildRequested(ctx)
		if step == 3 { // the filter has two parts and a head, so nothing was killed
			require.NoError(t, err)
			kill()
			break
		}
		require.ErrorIs(t, err, context.Canceled, "step %d", step)
		f, err := b.fetch(t.Context(), revision)
		require.NoError(t, err, strconv.Itoa(step))
		require.Nil(t, f)
		require.NoError(t, b.builder(t, b.rdb).BuildRequested(t.Context()))
		f, err = b.fetch(t.Context(), revision)
		require.NoError(t, err)
		require.NotNil(t, f)
	}
}
