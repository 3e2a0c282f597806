package recovery_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/campaigns"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/recovery"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// world is a deployment of one shard on a Redis of its own, with a campaign of 1,000 packets that the ledger has
// funded.
type world struct {
	server *testkit.RedisServer
	rdb    *redis.Client
	space  *shards.Layout
	ledger *ledger.Ledger
	rec    *recovery.Recoverer
	logs   *observer.ObservedLogs
	dir    string
	topic  topic
	user   int
}

// topic knows events up to its number.
type topic struct{ highest int64 }

func (t *topic) HighestSeq(context.Context, int, time.Time) (int64, error) { return t.highest, nil }

const id = "rain"

func setup(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	w := &world{dir: t.TempDir()}
	w.server = testkit.NewRedis(t, testkit.RedisOptions{Dir: w.dir, Args: map[string]string{"appendfsync": "always"}})
	w.rdb = w.server.Client(t)
	var err error
	w.space, err = shards.NewLayout(hongbao.Space{Prefix: "hb", Shards: 1})
	require.NoError(t, err)
	ctx := t.Context()
	cfg := ledger.Config{
		Driver: ledger.SQLite, DSN: filepath.Join(t.TempDir(), "ledger.db"), Conns: 4, ConnectTimeout: 5 * time.Second,
		LockTimeout: 5 * time.Second, Timeout: 30 * time.Second, Retries: 5,
	}
	_, err = ledger.Migrate(ctx, cfg)
	require.NoError(t, err)
	w.ledger, err = ledger.Open(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.ledger.Close()) })
	has, err := w.ledger.Found(ctx, ledger.Deployment{ID: "test", KeyPrefix: "hb", Shards: 1})
	require.NoError(t, err)
	require.NoError(t, shards.Found(ctx, w.rdb, w.space, shards.FoundCall{Deployment: "test", Founding: has.Founding}))
	token, err := shards.ServerToken(ctx, w.rdb, w.space.Shard(0))
	require.NoError(t, err)
	require.NoError(t, w.ledger.SetShard(ctx, 0, 0, ledger.ShardState{Epoch: 1, Token: token}))
	w.fund(t, id, 0)
	core, logs := observer.New(zap.InfoLevel)
	w.logs = logs
	w.rec = recovery.New(recovery.Config{
		Redis: w.rdb, Space: w.space, Ledger: w.ledger, Topic: &w.topic, Sinks: []string{"balance", "kafka"}, Owner: "test",
		Log:    zap.New(core),
		Gather: 300 * time.Millisecond,
	})
	return w
}

func (w *world) fund(t *testing.T, id string, opensIn time.Duration) {
	t.Helper()
	now := time.Now().Truncate(time.Millisecond)
	spec := campaign.Complete(hongbao.Campaign{
		ID: id, Name: id, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 10_000, Packets: 1000,
		Split: hongbao.Split{Mode: hongbao.SplitEven}, From: now.Add(opensIn - time.Minute), To: now.Add(opensIn + time.Hour),
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: hongbao.DurabilityFast,
	})
	seed := campaign.NewSeed()
	_, err := w.ledger.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Canonical: campaign.Canonical(spec),
		Seed: seed, Hash: campaign.Commit(spec, seed)})
	require.NoError(t, err)
	w.load(t, id)
}

// load brings a campaign of the ledger into Redis.
func (w *world) load(t *testing.T, id string) {
	t.Helper()
	c, found, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	plan, err := campaign.NewPlan(c.Spec, c.Seed)
	require.NoError(t, err)
	store, err := campaigns.New(campaigns.Config{Redis: w.rdb, Space: w.space.Space, Chunk: 1000})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context(), c.Spec, plan, c.Hash, nil))
}

func (w *world) shard() *shards.Shard { return shards.Of(w.rdb, w.space.Shard(0)) }

// grab has n new users grab, by a client that has seen nothing or by the one of this process.
func (w *world) grab(t *testing.T, rdb redis.UniversalClient, n int) []hongbao.Answer {
	t.Helper()
	return w.grabIn(t, rdb, id, n)
}

func (w *world) grabIn(t *testing.T, rdb redis.UniversalClient, id string, n int) []hongbao.Answer {
	t.Helper()
	call := &shards.GrabCall{Campaign: id, MaxBacklog: 1e6}
	for range n {
		w.user++
		call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: id, User: fmt.Sprintf("u%d", w.user), RequestID: "r"})
	}
	answers, err := shards.Of(rdb, w.space.Shard(0)).Grab(t.Context(), call, nil)
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
		Source: func(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, error) {
			c, _, err := w.ledger.Campaign(ctx, id)
			return c.Spec, c.Seed, err
		}})
	require.NoError(t, err)
	settler, err := ledger.NewSettler(ledger.SettlerConfig{
		Ledger: w.ledger, Plan: plans, Log: zap.NewNop(), OnQuarantine: func(ledger.Quarantined) error { return nil },
	})
	require.NoError(t, err)
	return settler
}

// settle pays all grants of the stream.
func (w *world) settle(t *testing.T) {
	t.Helper()
	settler := w.settler(t)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	for _, e := range entries {
		if e.Kind == stream.EntryGrant {
			for _, err := range settler.Handle(t.Context(), e.Grants) {
				require.NoError(t, err)
			}
		}
	}
}

// restart kills Redis and starts it again, from another folder's files if that is named.
func (w *world) restart(t *testing.T, files string) {
	t.Helper()
	require.NoError(t, w.server.Kill())
	if files != "" {
		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "appendonlydir")))
		require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", files, filepath.Join(w.dir, "appendonlydir")).Run())
	}
	require.NoError(t, w.server.Restart())
}

// older keeps a copy of the append-only file as it is now.
func (w *world) older(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "older")
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", filepath.Join(w.dir, "appendonlydir"), to).Run())
	return to
}

// opens looks after the shard until it is open.
func (w *world) opens(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		require.NoError(t, w.rec.Tend(t.Context(), 0))
		_, err := w.shard().OpenHead(t.Context())
		return err == nil
	}, "the shard is open")
}

// staysFrozen looks after the shard until the alarm comes.
func (w *world) staysFrozen(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() bool {
		require.NoError(t, w.rec.Tend(t.Context(), 0))
		return w.logs.FilterMessageSnippet("run `hongbao recover`").Len() > 0
	}, "the alarm comes")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)))
}

// A Redis that was killed and has lost nothing is open again without a person; grabs are undecided meanwhile, and no
// seq comes twice.
func TestRestartWithoutLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 100}, outcomes(w.grab(t, w.rdb, 100)))
	w.settle(t)
	w.topic.highest = 100
	w.restart(t, "")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)), "the fault fired")
	w.opens(t)
	answers := w.grab(t, w.rdb, 10)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(answers))
	require.EqualValues(t, shards.ChunkEvents, answers[0].Receipts[0].Seq)
	head, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, head.Epoch)
	state, err := w.ledger.Shard(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, state.Epoch)
	skipped, err := w.shard().Skipped(t.Context())
	require.NoError(t, err)
	require.Equal(t, []stream.SeqRange{{First: 101, Last: shards.ChunkEvents - 1}}, skipped)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Equal(t, stream.EntryEpoch, entries[1].Kind)
	require.EqualValues(t, shards.ChunkEvents-1, entries[1].Last())
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	w.settle(t)
	highest, err := w.ledger.HighestSeq(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, shards.ChunkEvents+9, highest)
}

// A Redis that came back from an older file stays frozen, whoever it is that knows of what it lost: the ledger, the
// topic, or a caller.
func TestRestartFromAnOlderFile(t *testing.T) {
	t.Parallel()
	for name, knows := range map[string]func(t *testing.T, w *world){
		"the ledger knows": func(t *testing.T, w *world) { w.settle(t) },
		"the topic knows":  func(_ *testing.T, w *world) { w.topic.highest = 150 },
		"a caller knows":   func(*testing.T, *world) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			fresh := w.server.Client(t) // a process that knows nothing
			w.grab(t, w.rdb, 100)
			old := w.older(t)
			grabs := w.rdb
			if name != "a caller knows" {
				grabs = fresh
			}
			require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 50}, outcomes(w.grab(t, grabs, 50)))
			knows(t, w)
			w.restart(t, old)
			w.staysFrozen(t)
			verdicts, err := w.rec.Look(t.Context())
			require.NoError(t, err)
			v := verdicts[0]
			require.True(t, v.Lost())
			require.EqualValues(t, 100, v.Redis)
			require.EqualValues(t, 150, v.Known())
			require.Len(t, v.Campaigns, 1)
			require.False(t, v.Campaigns[0].Missing)

			require.NoError(t, w.rec.Accept(t.Context(), v, "ann", "the disk is gone"))
			head, err := w.shard().OpenHead(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2*shards.ChunkEvents-1, head.Seq, "one chunk past the boundary behind everything known")
			require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)),
				"the campaign stays frozen")
			store, err := campaigns.New(campaigns.Config{Redis: w.rdb, Space: w.space.Space, Chunk: 1000})
			require.NoError(t, err)
			require.ErrorIs(t, store.Resume(t.Context(), id), shards.ErrLost)
			require.Error(t, w.rec.Accept(t.Context(), v, "ann", "the disk is gone"), "it is open")
		})
	}
}

// A Redis that lost everything answers frozen, is not founded anew, and keeps a stub of the campaign once a person
// accepted the loss.
func TestFlushAll(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fund(t, "later", time.Hour)
	w.grab(t, w.rdb, 100)
	w.settle(t)
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 5}, outcomes(w.grab(t, w.rdb, 5)))
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 5}, outcomes(w.grab(t, w.server.Client(t), 5)),
		"a new process")
	require.ErrorIs(t, func() error { _, err := w.shard().CreateGroup(t.Context(), "balance"); return err }(),
		shards.ErrFrozen)
	w.staysFrozen(t)
	verdicts, err := w.rec.Look(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -1, verdicts[0].Redis)
	require.EqualValues(t, 100, verdicts[0].Known())
	require.Len(t, verdicts[0].Campaigns, 1)
	require.Equal(t, []string{"later"}, verdicts[0].Unloaded, "nobody was granted anything there: it can be loaded again")
	require.NoError(t, w.rec.Accept(t.Context(), verdicts[0], "ann", "the disk is gone"))
	_, err = shards.Open(t.Context(), w.rdb, w.space, "test")
	require.NoError(t, err)
	words, err := w.rec.Accepted(t.Context())
	require.NoError(t, err)
	require.Len(t, words, 1)
	require.Equal(t, ledger.AcceptedLoss{Epoch: 2, By: "ann", Why: "the disk is gone", Lost: verdicts[0].String(),
		At: words[0].At}, words[0])
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)),
		"never unknown_campaign")
	head, err := w.shard().OpenHead(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*shards.ChunkEvents-1, head.Seq)
	require.EqualValues(t, 2, head.Epoch)
	w.load(t, "later")
}

// A campaign that was loaded after the file was written, and of which nothing is settled yet: whoever knows of the
// events that are gone, it is in doubt. Its users are not told that there never was such a campaign.
func TestCampaignThatNobodySettledIsLost(t *testing.T) {
	t.Parallel()
	w := setup(t)
	old := w.older(t)
	w.fund(t, "late", 0)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 5}, outcomes(w.grabIn(t, w.rdb, "late", 5)))
	w.restart(t, old)
	w.staysFrozen(t)
	verdicts, err := w.rec.Look(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.Accept(t.Context(), verdicts[0], "ann", "the disk is gone"))
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grabIn(t, w.rdb, "late", 2)))
}

// A person's word waits for a worker that looks at the shard, and is not lost. It is refused if that one does not come
// to an end.
func TestAcceptWaitsForAWorker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	verdicts, err := w.rec.Look(t.Context())
	require.NoError(t, err)
	worker := &shards.LockCall{Name: "recover", Token: "a worker", Lease: time.Minute}
	taken, _, err := w.shard().TakeLock(t.Context(), worker)
	require.NoError(t, err)
	require.True(t, taken)
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, w.rec.Accept(impatient, verdicts[0], "ann", "the disk is gone"))
	accepted := make(chan error, 1)
	go func() { accepted <- w.rec.Accept(t.Context(), verdicts[0], "ann", "the disk is gone") }()
	_, err = w.shard().ReleaseLock(t.Context(), worker)
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err)
}

// What was in hand when the shard froze changes nothing once it is open again: it belongs to another epoch.
func TestBatchOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	ctx := shards.WithEpoch(t.Context(), 1)
	w.restart(t, "")
	_, err := w.shard().Ack(ctx, "balance", []stream.SeqRange{{First: 1, Last: 100}}, nil)
	require.ErrorIs(t, err, shards.ErrFrozen, "the fault fired")
	w.opens(t)
	_, err = w.shard().Ack(ctx, "balance", []stream.SeqRange{{First: 1, Last: 100}}, nil)
	require.ErrorIs(t, err, shards.ErrStale)
	_, err = w.shard().Claim(ctx, &shards.ClaimCall{Sink: "kafka", ID: "c", Owner: "w", Lease: time.Minute,
		Events: []stream.SeqRange{{First: 1, Last: 9}}})
	require.ErrorIs(t, err, shards.ErrStale)
	done, err := w.shard().Done(t.Context(), "balance", stream.SeqRange{First: 1, Last: 100})
	require.NoError(t, err)
	require.False(t, done.Has(1))
}

// Bits above the shard's seq are never set: they would have new grants skipped. A caller who knows of such events
// freezes the shard.
func TestNoBitAboveTheSeq(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	other := shards.Of(w.server.Client(t), w.space.Shard(0))
	_, err := other.Ack(t.Context(), "balance", []stream.SeqRange{{First: 11, Last: 11}}, nil)
	require.ErrorIs(t, err, shards.ErrFrozen)
	require.Zero(t, w.rdb.Exists(t.Context(), w.space.Shard(0).Done("balance", 0)).Val())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)))
}

// A shard is opened for the history of writes that was looked at: one that began between look and opening freezes it
// again.
func TestOpenedForTheHistoryThatWasLookedAt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.restart(t, "")
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	found.History = "the one before"
	opened, err := w.shard().Reopen(t.Context(), w.space, &shards.Reopening{
		Was: found, Mark: shards.Mark{Deployment: "test"}, Epoch: 2, Last: shards.ChunkEvents - 1,
	})
	require.NoError(t, err)
	require.True(t, opened)
	require.Equal(t, "the one before", w.rdb.HGet(t.Context(), w.space.Shard(0).Meta(), "history").Val())
}

// Somebody who tells of a lost event at the last moment, after the look, is heard: the shard does not open.
func TestSeenAtTheLastMoment(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.restart(t, "")
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.True(t, found.Frozen)
	late := shards.Of(w.server.Client(t), w.space.Shard(0))
	_, err = late.Ack(t.Context(), "balance", []stream.SeqRange{{First: 11, Last: 11}}, nil)
	require.ErrorIs(t, err, shards.ErrFrozen)
	again := &shards.Reopening{Was: found, Mark: shards.Mark{Deployment: "test"}, Epoch: 2, Last: shards.ChunkEvents - 1,
		Known: 10}
	opened, err := w.shard().Reopen(t.Context(), w.space, again)
	require.NoError(t, err)
	require.False(t, opened)
	again.Was, err = w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 11, again.Was.Seen)
	opened, err = w.shard().Reopen(t.Context(), w.space, again)
	require.NoError(t, err)
	require.True(t, opened)
}

// A planned failover: the replica has everything, is promoted, and opens by itself. A first replica that attaches
// freezes nothing.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: w.server})
	testkit.Eventually(t, 20*time.Second, func() bool {
		return w.rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, "the replica has all")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, w.rdb, 10)),
		"a first replica is no reason to freeze")
	require.EqualValues(t, 1, w.rdb.Wait(t.Context(), 1, 10*time.Second).Val())
	require.NoError(t, w.server.Kill())
	w.rdb = replica.Client(t)
	require.NoError(t, w.rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())
	w.rec = recovery.New(recovery.Config{
		Redis: w.rdb, Space: w.space, Ledger: w.ledger, Topic: &w.topic, Sinks: []string{"balance", "kafka"}, Owner: "test",
		Log:    zap.NewNop(),
		Gather: 300 * time.Millisecond,
	})
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)), "the fault fired")
	w.opens(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, w.rdb, 10)))
}
