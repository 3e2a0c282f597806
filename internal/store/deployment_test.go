package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestFoundRefusesAnotherDeployment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	before := b.dump(t)
	require.ErrorContains(t, b.store.Initialize(t.Context(), store.InitializeCall{Deployment: "other"}), `deployment is "test"`)
	more, err := store.New(store.Config{Redis: b.rdb, Space: hongbao.Space{Prefix: b.store.Space().Prefix, Shards: 2}})
	require.NoError(t, err)
	same := more.Shard(0).Keys.Meta() == b.k.Keys.Meta()
	require.True(t, same, "the hash tag of shard 0 does not depend on the number of shards")
	require.ErrorContains(t, more.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}), `shards is "1"`)
	require.Equal(t, before, b.dump(t))
}

// A deployment is initialized, then again with a different number of shards. Initialize returns an error. The names of
// the shards' keys depend on the number of shards, so all campaigns would seem to be missing and would be loaded again.
func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	rdb := testkit.Redis(t).Client(t)
	for _, from := range []int{1, 2, 4, 16, 64} {
		for _, to := range []int{1, 2, 3, 4, 8, 16, 32, 64} {
			if from == to {
				continue
			}
			prefix := testkit.Prefix(t)
			first, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: prefix, Shards: from}})
			require.NoError(t, err)
			second, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: prefix, Shards: to}})
			require.NoError(t, err)
			require.NoError(t, first.Initialize(t.Context(), store.InitializeCall{Deployment: "d"}))
			require.ErrorContains(t, second.Initialize(t.Context(), store.InitializeCall{Deployment: "d"}),
				"belongs to something else", "%d, then %d shards", from, to)
		}
	}
}

// Redis has no deployment, an incomplete one, or one with other settings. Open returns an error of class Broken and
// writes nothing.
func TestOpenWritesNothing(t *testing.T) {
	t.Parallel()
	rdb, prefix := testkit.Redis(t).Client(t), testkit.Prefix(t)
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: prefix, Shards: 3}, Deployment: "prod"})
	require.NoError(t, err)
	b := &bundle{rdb: rdb, store: st, k: st.Shard(1)}
	refused := func(part string) {
		t.Helper()
		before := b.dump(t)
		_, _, err := st.Open(t.Context())
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, part)
		require.Equal(t, before, b.dump(t))
	}
	refused("run `hongbao recover`")
	require.NoError(t, st.Initialize(t.Context(),
		store.InitializeCall{Deployment: "prod", Founding: "abc", Epochs: []int64{1, 5, 1}}))
	before := b.dump(t)
	m, _, err := st.Open(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Owner{Deployment: "prod", Founding: "abc"}, m)
	require.Equal(t, before, b.dump(t))

	meta, err := rdb.HGetAll(t.Context(), b.k.Keys.Meta()).Result()
	require.NoError(t, err)
	info, err := rdb.InfoMap(t.Context(), "server", "replication").Result()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"deployment": "prod", "shards": "3", "shard": "1", "founding": "abc", "epoch": "5",
		"seq": "0", "finished": "0",
		"opened": info["Server"]["run_id"], "history": info["Replication"]["master_replid"]}, meta)

	change := func(key, field, value string) (back func()) {
		was, err := rdb.HGet(t.Context(), key, field).Result()
		require.NoError(t, err)
		require.NoError(t, rdb.HSet(t.Context(), key, field, value).Err())
		return func() { require.NoError(t, rdb.HSet(t.Context(), key, field, was).Err()) }
	}
	for _, c := range []struct{ key, field, value, part string }{
		{st.Deployment(), "deployment", "staging", `its deployment is "staging"`},
		{st.Deployment(), "shards", "4", `its shards is "4"`},
		{st.Deployment(), "shards", "four", `its shards is "four"`},
		{st.Deployment(), "schema", "1", "the keys of a build before the first release, which no release reads"},
		{st.Deployment(), "lowest", "3", "upgrade this program"},
		{b.k.Keys.Meta(), "founding", "xyz", `its founding is "xyz"`},
		{b.k.Keys.Meta(), "epoch", "x", "not a number"},
	} {
		back := change(c.key, c.field, c.value)
		refused(c.part)
		back()
	}
	back := change(st.Deployment(), "schema", "7")
	_, _, err = st.Open(t.Context())
	require.NoError(t, err, "an older build may use a newer layout unless its field lowest forbids it")
	back()
	require.NoError(t, rdb.Del(t.Context(), b.k.Keys.Meta()).Err())
	refused("Redis has lost shard 1")
	require.NoError(t, rdb.Del(t.Context(), st.Deployment()).Err())
	refused("`hongbao recover`")
}
