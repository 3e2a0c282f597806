// Package storetest initializes deployments for tests. It also opens frozen shards, in tests without a recoverer.
package storetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Open opens the frozen shards. Unlike a recoverer, it does not change seq and epoch, because tests compare them. But
// if a process has seen events that Redis lacks, Open skips seqs, as after an accepted loss.
func Open(ctx context.Context, st *store.Store) error {
	var errs []error
	for _, k := range st.Shards() {
		errs = append(errs, open(ctx, st.Redis(), k))
	}
	return errors.Join(errs...)
}

func open(ctx context.Context, rdb redis.UniversalClient, k *store.Shard) error {
	z, err := k.Freeze(ctx)
	if err != nil || !z.Frozen {
		return err
	}
	if z.Seen.After(z.At()) {
		known := max(z.Seq, z.Seen.Seq)
		_, err = k.Reopen(ctx, &store.Reopening{
			Was: z, Epoch: max(z.Epoch, z.Seen.Epoch) + 1, Known: known, Last: (known/store.ChunkEvents+1)*store.ChunkEvents - 1,
		})
		return err
	}
	_, err = rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, k.Keys.Meta(), "opened", z.Token, "history", z.History)
		p.HDel(ctx, k.Keys.Meta(), "frozen", "seen", "late", "replicas")
		return nil
	})
	return err
}

// KeepOpen opens frozen shards until the test ends. It retries while servers are down.
func KeepOpen(t testing.TB, st *store.Store) {
	t.Helper()
	done := make(chan struct{})
	tick := time.NewTicker(20 * time.Millisecond)
	go func() {
		defer close(done)
		for {
			select {
			case <-t.Context().Done():
				return
			case <-tick.C:
				_ = Open(t.Context(), st)
			}
		}
	}()
	t.Cleanup(func() { tick.Stop(); <-done })
}

// Token returns the run id of the server that has a shard.
func Token(ctx context.Context, k *store.Shard) (string, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return "", err
	}
	servers, err := store.Inspect(ctx, node)
	if err != nil {
		return "", err
	}
	return servers[0].RunID, nil
}

// Initialized initializes a deployment of n shards on the Redis that all tests of the process share.
func Initialized(t testing.TB, n int) *store.Store {
	t.Helper()
	return InitializedOn(t, testkit.Redis(t).Client(t), n)
}

// InitializedOn initializes a deployment of n shards on a given Redis.
func InitializedOn(t testing.TB, rdb redis.UniversalClient, n int) *store.Store {
	t.Helper()
	st, err := store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: testkit.Prefix(t), Shards: n}, Deployment: "test"})
	require.NoError(t, err)
	require.NoError(t, st.Initialize(t.Context(), store.InitializeCall{Deployment: "test"}))
	return st
}

// FarAlong sets a high seq on every shard, so that tests can use events without entries.
func FarAlong(t testing.TB, st *store.Store) *store.Store {
	t.Helper()
	for _, k := range st.Shards() {
		require.NoError(t, st.Redis().HSet(t.Context(), k.Keys.Meta(), "seq", 1<<40).Err())
	}
	return st
}

// Dump returns every key of the deployment, with its content in the format of DUMP.
func Dump(t testing.TB, st *store.Store) map[string]string {
	t.Helper()
	keys, err := st.Redis().Keys(t.Context(), st.Space().Prefix+":*").Result()
	require.NoError(t, err)
	out := map[string]string{}
	for _, key := range keys {
		out[key], err = st.Redis().Dump(t.Context(), key).Result()
		require.NoError(t, err)
	}
	return out
}

// Call returns a grab call without facts. A user is given as "u1", or as "u1/request" with a request id.
func Call(campaign string, users ...string) *store.GrabCall {
	c := &store.GrabCall{MaxBacklog: 1e6}
	for _, u := range users {
		user, request, _ := strings.Cut(u, "/")
		c.Grabs = append(c.Grabs, &hongbao.Grab{Campaign: campaign, User: user, RequestID: request})
	}
	return c
}

// Grab grabs for users on a shard in one call. Each user must be granted a packet.
func Grab(t testing.TB, k *store.Shard, campaign string, users ...string) []hongbao.Answer {
	t.Helper()
	answers, err := k.Place(campaign).Grab(t.Context(), Call(campaign, users...), nil)
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome, users[i])
	}
	return answers
}
