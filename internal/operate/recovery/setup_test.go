package recovery_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func by(who, why string) stream.Decision { return stream.Decision{By: who, Why: why} }

// world is a deployment on its own Redis server, with one shard and a campaign of 1,000 packets that the ledger has
// funded.
type world struct {
	server *testkit.RedisServer
	rdb    *redis.Client
	store  *store.Store
	ledger *ledger.Ledger
	rec    *recovery.Recoverer
	logs   *observer.ObservedLogs
	log    *zap.Logger
	dir    string
	topic  topic
	user   int
	asker  *process
	owed   []stream.Owed // what sink balance owes, by shard
	// watching has the processes that watch the shard.
	watching []*process

	mu     sync.Mutex
	stores map[redis.UniversalClient]*store.Store // see over
}

// over returns the store of the process that has this client. A process keeps what it has seen.
func (w *world) over(rdb redis.UniversalClient) *store.Store {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch has := w.stores[rdb]; {
	case has != nil:
		return has
	case w.store.Redis() == rdb:
		return w.store
	}
	if w.stores == nil {
		w.stores = map[redis.UniversalClient]*store.Store{}
	}
	w.stores[rdb] = w.store.Over(rdb)
	return w.stores[rdb]
}

// topic is a topic with the given grants. If highest is set, it only has an event with that seq.
type topic struct {
	highest int64
	grants  []hongbao.Grant
}

func (t *topic) FenceSince(last time.Time) time.Time { return last.Add(-time.Minute) }

func (t *topic) Fence(context.Context, stream.TopicFence) (stream.Fenced, error) {
	if t.highest > 0 {
		return stream.Fenced{Grants: []hongbao.Grant{{Campaign: "elsewhere", Seq: t.highest, Packet: 1, User: "u"}}}, nil
	}
	return stream.Fenced{Grants: t.grants}, nil
}

func (t *topic) HighestSeq(context.Context, int, time.Time) (int64, error) { return t.highest, nil }

const id = "rain"

func setup(t *testing.T) *world {
	t.Helper()
	return setupOf(t, 1)
}

// setupOf returns a world with n shards. The helpers use shard 0.
func setupOf(t *testing.T, n int) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), owed: make([]stream.Owed, n)}
	w.server = testkit.NewRedis(t, testkit.RedisOptions{Dir: w.dir, Args: map[string]string{"appendfsync": "always"}})
	w.rdb = w.server.Client(t)
	var err error
	w.store, err = store.New(store.Config{Redis: w.rdb, Space: hongbao.Space{Prefix: "hb", Shards: n}, Deployment: "test"})
	require.NoError(t, err)
	ctx := t.Context()
	cfg := ledger.Config{Database: sqlite.Database{Path: filepath.Join(t.TempDir(), "ledger.db")}, Retries: 5,
		Limits: db.Limits{Conns: 4, ConnectTimeout: 5 * time.Second, LockTimeout: 5 * time.Second,
			Timeout: 30 * time.Second}}
	_, err = ledger.Migrate(ctx, cfg)
	require.NoError(t, err)
	w.ledger, err = ledger.Open(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.ledger.Close()) })
	has, err := w.ledger.Initialize(ctx, ledger.Deployment{ID: "test", KeyPrefix: "hb", Shards: n})
	require.NoError(t, err)
	require.NoError(t, w.store.Initialize(ctx, store.InitializeCall{Deployment: "test", Founding: has.Founding}))
	token, err := storetest.Token(ctx, w.store.Shard(0))
	require.NoError(t, err)
	require.NoError(t, w.ledger.SetShard(ctx, 0, 0, ledger.ShardState{Epoch: 1, Token: token}))
	w.fund(t, id, 0)
	core, logs := observer.New(zap.InfoLevel)
	w.logs = logs
	w.log = zap.New(core)
	w.rec = w.recoverer(func(*recovery.Config) {})
	return w
}

// aged is a ledger whose campaigns were created an hour ago. So margins count exactly what the shard granted.
type aged struct{ recovery.Ledger }

func (l aged) EachCampaign(ctx context.Context, after string) iter.Seq2[*ledger.StoredCampaign, error] {
	return func(yield func(*ledger.StoredCampaign, error) bool) {
		for c, err := range l.Ledger.EachCampaign(ctx, after) {
			if c != nil {
				c.Created = c.Created.Add(-time.Hour)
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// recoverer returns a recoverer of the world. change may change its configuration.
func (w *world) recoverer(change func(*recovery.Config)) *recovery.Recoverer {
	cfg := recovery.Config{
		Store: w.store, Ledger: aged{w.ledger}, Journal: access.Of(w.ledger.Tables()), Topic: &w.topic, TopicSink: "kafka", Sinks: []string{"balance", "kafka"},
		Log: w.log, Gather: 300 * time.Millisecond,
	}
	change(&cfg)
	return recovery.New(cfg)
}

func (w *world) fund(t *testing.T, id string, opensIn time.Duration) {
	t.Helper()
	w.fundOver(t, id, opensIn, 1)
}

// fundOver funds a campaign on this number of shards, and loads it.
func (w *world) fundOver(t *testing.T, id string, opensIn time.Duration, places int) {
	t.Helper()
	w.order(t, id, opensIn, places)
	w.load(t, id)
}

// order funds a campaign on this number of shards without loading it.
func (w *world) order(t *testing.T, id string, opensIn time.Duration, places int) {
	t.Helper()
	spec := loaded.Rain(id, 1000, 10_000)
	spec.To, spec.Shards = spec.To.Add(opensIn), places
	spec.From = spec.To.Add(-61 * time.Minute)
	seed := campaign.NewSeed()
	_, err := w.ledger.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Canonical: campaign.Canonical(spec),
		Seed: seed, Hash: campaign.Commit(spec, seed)})
	require.NoError(t, err)
}

func (w *world) load(t *testing.T, id string) {
	t.Helper()
	c, found, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	_, err = loaded.Seeded(t.Context(), w.store, c.Spec, c.Seed)
	require.NoError(t, err)
}

func (w *world) idAt(shard int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("wide-%d", i); w.store.Home(id).Index() == shard {
			return id
		}
	}
}

func (w *world) loses(t *testing.T, k *store.Shard) {
	t.Helper()
	gone, err := w.rdb.Keys(t.Context(), strings.TrimSuffix(k.Keys.Meta(), "meta")+"*").Result()
	require.NoError(t, err)
	require.NoError(t, w.rdb.Del(t.Context(), gone...).Err())
}

func (w *world) shard() *store.Shard { return w.store.Shard(0) }

func (w *world) grab(t *testing.T, rdb redis.UniversalClient, n int) []hongbao.Answer {
	t.Helper()
	return w.grabIn(t, rdb, id, n)
}

func (w *world) grabIn(t *testing.T, rdb redis.UniversalClient, id string, n int) []hongbao.Answer {
	t.Helper()
	users := make([]string, n)
	for i := range users {
		w.user++
		users[i] = fmt.Sprintf("u%d/r", w.user)
	}
	answers, err := w.over(rdb).Shard(0).Place(id).Grab(t.Context(), storetest.Call(id, users...), nil)
	require.NoError(t, err)
	return answers
}

func outcomes(answers []hongbao.Answer) map[hongbao.Outcome]int {
	n := map[hongbao.Outcome]int{}
	for _, a := range answers {
		n[a.Outcome]++
	}
	return n
}

func (w *world) settler(t *testing.T) *ledger.Settler {
	t.Helper()
	plans, err := campaign.NewPlans(campaign.PlansConfig{MaxPackets: hongbao.MaxPackets,
		Source: w.ledger.Plan})
	require.NoError(t, err)
	settler, err := ledger.NewSettler(ledger.SettlerConfig{
		Ledger: w.ledger, Plan: plans, Log: zap.NewNop(), OnQuarantine: func(model.Quarantined) error { return nil },
	})
	require.NoError(t, err)
	return settler
}

func (w *world) settle(t *testing.T) {
	t.Helper()
	settler := w.settler(t)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	for _, e := range entries {
		if e.Kind == stream.EntryGrant {
			for _, err := range settler.Handle(t.Context(), testkit.Batch(e.Grants)) {
				require.NoError(t, err)
			}
		}
	}
}

// restart kills Redis and starts it again. If files is not empty, Redis starts from a copy of that folder. For up to a
// second a client still sees the server as down, so restart waits for this test's client, and until each process that
// watches the shard has looked.
func (w *world) restart(t *testing.T, files string) {
	t.Helper()
	require.NoError(t, w.server.Kill())
	if files != "" {
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "appendonlydir")))
		require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", files, filepath.Join(w.dir, "appendonlydir")).Run())
	}
	require.NoError(t, w.server.Restart())
	testkit.EventuallyOK(t, 20*time.Second, func() error { return w.rdb.Ping(t.Context()).Err() }, "Redis answers")
	for _, p := range w.watching {
		w.looks(t, p)
	}
}

// older copies the append-only file as it is now, and returns the folder of the copy.
func (w *world) older(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "older")
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(w.dir, "appendonlydir"), to).Run())
	return to
}

func (w *world) opens(t *testing.T) {
	t.Helper()
	w.openedBy(t, w.rec, 0)
}

// openedBy calls OpenFrozen until the shard is open.
func (w *world) openedBy(t *testing.T, r *recovery.Recoverer, shard int) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		err := r.OpenFrozen(t.Context(), shard)
		if hongbao.ClassOf(err) == hongbao.ClassTransient { // a process has reported while the recoverer judged
			return false
		}
		require.NoError(t, err)
		_, err = w.store.Shard(shard).OpenHead(t.Context())
		return err == nil
	}, "shard %d is open", shard)
}

// staysFrozen calls OpenFrozen until the recoverer raises an alarm, and requires that the shard is still frozen.
func (w *world) staysFrozen(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		if err := w.rec.OpenFrozen(t.Context(), 0); hongbao.ClassOf(err) != hongbao.ClassTransient {
			require.NoError(t, err)
		}
		return w.logs.FilterMessageSnippet("run `hongbao recover`").Len() > 0
	}, "the recoverer raises an alarm")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)))
}
