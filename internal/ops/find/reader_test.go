package find

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A receipt is not on the replica yet, so a failover could lose it. Reading it fails until the replica has it.
func TestOwnReceiptsAreDurable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: server})
	a := apptest.OnRedis(t, server, hongbao.DurabilityReplica, 1)
	r := NewReader(a)
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := a.Redis().Do(t.Context(), "WAIT", 1, 100).Int()
		return err == nil && n == 1
	}, "the replica is there")
	require.NoError(t, replica.Stop())
	apptest.Grants(t, a, "u1")
	_, err := r.Receipts(t.Context(), "rain", "u1")
	require.ErrorIs(t, err, store.ErrNotDurable)
	none, err := r.Receipts(t.Context(), "rain", "u2")
	require.NoError(t, err, "a user without receipts does not wait")
	require.Empty(t, none.Receipts)
	require.NoError(t, replica.Cont())
	testkit.EventuallyOK(t, 20*time.Second, func() error {
		got, err := r.Receipts(t.Context(), "rain", "u1")
		if err == nil {
			require.Len(t, got.Receipts, 1)
			require.Equal(t, "CNY", got.Currency)
		}
		return err
	}, "the replica continues")
}

// The only replica hangs, and many users read their receipts of a campaign of class replica. They do not use up the
// connections to Redis: a grab of another campaign is decided at once. Once the replica continues, all can read.
func TestReadersLeaveConnectionsToGrabs(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: server})
	a := apptest.OnRedis(t, server, hongbao.DurabilityReplica, 1)
	a.Config.Producer.DurabilityTimeout = time.Second
	apptest.Loads(t, a, "other", hongbao.DurabilityFast, 1)
	testkit.Eventually(t, 20*time.Second, func() bool {
		n, err := a.Redis().Do(t.Context(), "WAIT", 1, 100).Int()
		return err == nil && n == 1
	}, "the replica is there")
	const users = 49
	for i := range users {
		apptest.Grants(t, a, fmt.Sprint("u", i))
	}
	require.NoError(t, replica.Stop())
	apptest.Grants(t, a, "last")
	r := NewReader(a)
	var hung, read atomic.Int64
	stop, readers := make(chan struct{}), sync.WaitGroup{}
	for i := range users {
		readers.Go(func() {
			for reading := true; reading; {
				switch _, err := r.Receipts(t.Context(), "rain", fmt.Sprint("u", i)); {
				case errors.Is(err, store.ErrNotDurable):
					hung.Add(1)
				case err == nil:
					read.Add(1)
					reading = false
				}
				select {
				case <-stop:
					reading = false
				default:
				}
			}
		})
	}
	defer func() { close(stop); readers.Wait() }()
	testkit.Eventually(t, 30*time.Second, func() bool { return hung.Load() >= users }, "each user waits for the replica")
	quick := 0
	for i := range 10 {
		start := time.Now()
		answers, err := a.Store().Home("other").Grab(t.Context(), storetest.Call("other", fmt.Sprint("u", i)), nil)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
		if time.Since(start) < a.Config.Producer.DurabilityTimeout/2 {
			quick++
		}
	}
	require.GreaterOrEqual(t, quick, 7, "no grab waits for a reader's connection; the machine may be busy")
	require.Zero(t, read.Load())
	require.NoError(t, replica.Cont())
	testkit.Eventually(t, 30*time.Second, func() bool { return read.Load() == users }, "all users read their receipts")
}

// In class fsync a receipt is readable once it is on disk. If the server can't report that, reading fails.
func TestOwnReceiptsAreOnDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": "always"}}),
		hongbao.DurabilityFsync, 1)
	apptest.Grants(t, a, "u1")
	got, err := NewReader(a).Receipts(t.Context(), "rain", "u1")
	require.NoError(t, err)
	require.Len(t, got.Receipts, 1)
	servers, err := store.Inspect(t.Context(), a.Redis())
	require.NoError(t, err)
	if !servers[0].NeedsWaitAOF() {
		require.NoError(t, a.Redis().ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		_, err = NewReader(a).Receipts(t.Context(), "rain", "u1")
		require.ErrorContains(t, err, "set appendfsync always")
	}
}

// Another process granted a packet and died before its answer. The user reads the receipt from this process. If Redis
// then loses the grant, this process is the only one that knows the user saw it.
func TestOwnReceiptsAreEvidence(t *testing.T) {
	t.Parallel()
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	a := apptest.OnRedis(t, server, hongbao.DurabilityFast, 2)
	places := a.Store().Places("rain", 2)
	for _, k := range places {
		apptest.GrantsOn(t, a, a.Store().Over(server.Client(t)).Shard(k.Index()), "u1")
	}
	got, err := NewReader(a).Receipts(t.Context(), "rain", "u1")
	require.NoError(t, err)
	require.Len(t, got.Receipts, 2)
	go func() { _ = (&store.Watch{Store: a.Store()}).Run(t.Context()) }()
	for i, k := range places {
		require.NoError(t, a.Redis().HSet(t.Context(), k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
		require.NoError(t, k.Begin(t.Context(), &store.Frozen{Seq: 1, Epoch: 1}, store.Attempt{Epoch: 2, Token: "t", History: "h"}))
		var e store.Evidence
		testkit.Eventually(t, 20*time.Second, func() bool {
			e, err = k.Evidence(t.Context())
			return err == nil && len(e.Grants) > 0
		}, "this process testifies")
		g := e.Grants[0]
		require.Equal(t, []any{"rain", "u1", "CNY", got.Receipts[i].Packet, got.Receipts[i].Seq},
			[]any{g.Campaign, g.User, g.Currency, g.Packet, g.Seq})
	}
}

// A shard is frozen, restarted unnoticed, or has lost its data. Reads about a campaign then return frozen, never a
// final answer.
func TestReadsOfAFrozenShard(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	apptest.Grants(t, a, "u1")
	r, k := NewReader(a), a.Store().Home("rain")
	state := func() string {
		w, err := r.Window(t.Context(), "rain")
		require.NoError(t, err)
		return w.State
	}
	frozen := func(id string) {
		t.Helper()
		_, err := r.Receipts(t.Context(), id, "u1")
		require.ErrorIs(t, err, store.ErrFrozen)
	}
	require.Equal(t, "open", state())
	_, err := r.Window(t.Context(), "none")
	require.ErrorIs(t, err, store.ErrNotInRedis)
	require.NotErrorIs(t, err, store.ErrFrozen)

	require.NoError(t, a.Redis().HSet(t.Context(), k.Keys.Meta(), "frozen", 1).Err())
	require.Equal(t, "frozen", state())
	frozen("rain")
	frozen("none")
	require.NoError(t, a.Redis().HDel(t.Context(), k.Keys.Meta(), "frozen").Err())
	opened := a.Redis().HGet(t.Context(), k.Keys.Meta(), "opened").Val()
	require.NoError(t, a.Redis().HSet(t.Context(), k.Keys.Meta(), "opened", "another run").Err())
	require.Equal(t, "frozen", state(), "Redis was restarted, and no call has noticed that yet")
	frozen("rain")
	require.NoError(t, a.Redis().HSet(t.Context(), k.Keys.Meta(), "opened", opened).Err())
	require.Equal(t, "open", state())

	require.NoError(t, a.Redis().Del(t.Context(), k.Keys.Campaign("rain"), k.Keys.Meta()).Err())
	_, err = r.Window(t.Context(), "rain")
	require.ErrorIs(t, err, store.ErrFrozen, "the shard's mark is lost, so more may be lost")
	frozen("rain")
	require.NoError(t, a.Redis().FlushAll(t.Context()).Err())
	_, err = r.Window(t.Context(), "rain")
	require.ErrorIs(t, err, store.ErrFrozen)
	frozen("rain")
}

// Redis has lost a campaign. Reading receipts returns ErrLost, not that the campaign is unknown.
func TestReceiptsOfALostCampaign(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	require.NoError(t, a.Redis().HSet(t.Context(), a.Store().Home("rain").Keys.Campaign("rain"), "state", "frozen").Err())
	_, err := NewReader(a).Receipts(t.Context(), "rain", "u1")
	require.ErrorIs(t, err, store.ErrLost)
}

// A user has receipts on both shards of a campaign. Both are returned, and an error is returned if one shard can't be
// read.
func TestOwnReceiptsOverShards(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 2)
	r, places := NewReader(a), a.Store().Places("rain", 2)
	for _, k := range places {
		apptest.GrantsOn(t, a, k.Shard, "u1")
	}
	got, err := r.Receipts(t.Context(), "rain", "u1")
	require.NoError(t, err)
	require.Len(t, got.Receipts, 2)
	receipts, err := Of(a).Receipts(t.Context(), "rain", "u1")
	require.NoError(t, err)
	require.Len(t, receipts.Receipts, 2)
	opened := a.Redis().HGet(t.Context(), places[1].Keys.Meta(), "opened").Val()
	require.NoError(t, a.Redis().HSet(t.Context(), places[1].Keys.Meta(), "opened", "another run").Err())
	_, err = r.Receipts(t.Context(), "rain", "u1")
	require.ErrorIs(t, err, store.ErrFrozen)
	require.NoError(t, a.Redis().HSet(t.Context(), places[1].Keys.Meta(), "opened", opened).Err())
	require.NoError(t, a.Redis().Del(t.Context(), places[1].Keys.Campaign("rain")).Err())
	_, err = r.Receipts(t.Context(), "rain", "u1")
	require.ErrorIs(t, err, store.ErrNotInRedis)
	require.NoError(t, a.Redis().Del(t.Context(), places[1].Keys.Meta()).Err())
	_, err = r.Receipts(t.Context(), "rain", "u1")
	require.ErrorIs(t, err, store.ErrFrozen, "the shard has lost its marks")
}
