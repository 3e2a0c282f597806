package recovery_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis was killed and has lost nothing. Grabs get the outcome frozen until the shard opens without a person. No seq is
// used twice.
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
	require.EqualValues(t, store.ChunkEvents, answers[0].Receipts[0].Seq)
	head, err := w.shard().Head(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, head.Epoch)
	state, err := w.ledger.Shard(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, state.Epoch)
	skipped, err := w.shard().Skipped(t.Context())
	require.NoError(t, err)
	require.Equal(t, []stream.SeqRange{{First: 101, Last: store.ChunkEvents - 1}}, skipped)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.Equal(t, stream.EntryEpoch, entries[1].Kind)
	require.EqualValues(t, store.ChunkEvents-1, entries[1].Last())
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	w.settle(t)
	highest, err := w.ledger.HighestSeq(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, store.ChunkEvents+9, highest)
}

// Redis restarted from an older file, and the ledger, the topic or a caller knows of the lost events. The shard stays
// frozen until a person accepts the loss, and the campaign stays frozen after that.
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
			fresh := w.server.Client(t) // a process that remembers nothing from before
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
			reports, err := w.rec.Reports(t.Context())
			require.NoError(t, err)
			v := reports[0]
			require.True(t, v.Lost())
			require.EqualValues(t, 100, v.Redis)
			require.EqualValues(t, 150, v.Known())
			require.Len(t, v.Campaigns, 1)
			require.False(t, v.Campaigns[0].Missing)

			require.NoError(t, w.rec.Accept(t.Context(), v, by("ann", "the disk is gone")))
			head, err := w.shard().OpenHead(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2*store.ChunkEvents-1, head.Seq, "one chunk past the next boundary")
			require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)),
				"the campaign stays frozen")
			require.ErrorIs(t, testkit.ErrOf(w.store.Campaign(id).Resume(t.Context(), by("ann", "test"))), store.ErrLost)
			require.Error(t, w.rec.Accept(t.Context(), v, by("ann", "the disk is gone")), "the shard is open")
		})
	}
}

// Redis has lost everything. Grabs get the outcome frozen, and the deployment is not initialized again. After a person
// has accepted the loss, Redis has a stub of the campaign.
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
	require.ErrorIs(t, func() error { _, err := w.shard().Group("balance").Create(t.Context()); return err }(),
		store.ErrFrozen)
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, -1, reports[0].Redis)
	require.EqualValues(t, 100, reports[0].Known())
	require.Len(t, reports[0].Campaigns, 1)
	require.Equal(t, []string{"later"}, reports[0].Unloaded, "a campaign that has granted nothing can be loaded again")
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")))
	_, _, err = w.store.Open(t.Context())
	require.NoError(t, err)
	words, err := w.rec.Accepted(t.Context())
	require.NoError(t, err)
	require.Len(t, words, 1)
	require.Equal(t, model.AcceptedLoss{Epoch: 2, Decision: by("ann", "the disk is gone"), Lost: reports[0].String(),
		At: words[0].At}, words[0])
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grab(t, w.rdb, 2)),
		"the outcome is not unknown_campaign")
	head, err := w.shard().OpenHead(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*store.ChunkEvents-1, head.Seq)
	require.EqualValues(t, 2, head.Epoch)
	w.load(t, "later")
}

// Redis restarted from a file that lacks a campaign, and no grant of the campaign is settled. A caller knows of the
// lost events, so the campaign is in doubt. Its users get the outcome frozen, not unknown_campaign.
func TestCampaignThatNobodySettledIsLost(t *testing.T) {
	t.Parallel()
	w := setup(t)
	old := w.older(t)
	w.fund(t, "late", 0)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 5}, outcomes(w.grabIn(t, w.rdb, "late", 5)))
	w.restart(t, old)
	w.staysFrozen(t)
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")))
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 2}, outcomes(w.grabIn(t, w.rdb, "late", 2)))
}

// A worker is checking the shard. Accept waits for it, and fails if the worker does not finish in time.
func TestAcceptWaitsForAWorker(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.settle(t)
	require.NoError(t, w.rdb.FlushAll(t.Context()).Err())
	reports, err := w.rec.Reports(t.Context())
	require.NoError(t, err)
	worker := &store.LockCall{Name: "recover", Token: "a worker", Lease: time.Minute}
	taken, _, err := w.shard().TakeLock(t.Context(), worker)
	require.NoError(t, err)
	require.True(t, taken)
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, w.rec.Accept(impatient, reports[0], by("ann", "the disk is gone")))
	accepted := make(chan error, 1)
	go func() { accepted <- w.rec.Accept(t.Context(), reports[0], by("ann", "the disk is gone")) }()
	_, err = w.shard().ReleaseLock(t.Context(), worker)
	require.NoError(t, err)
	require.NoError(t, <-accepted)
	_, err = w.shard().OpenHead(t.Context())
	require.NoError(t, err)
}

// A batch began before the freeze. Its scripts change nothing after the opening, because they name the earlier epoch.
func TestBatchOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 100)
	old := w.shard().At(1)
	w.restart(t, "")
	_, err := old.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 100}), nil)
	require.ErrorIs(t, err, store.ErrFrozen, "the fault fired")
	w.opens(t)
	_, err = old.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 100}), nil)
	require.ErrorIs(t, err, store.ErrStale)
	_, err = old.Claim(t.Context(), &store.ClaimCall{Sink: "kafka", ID: "c", Owner: "w", Lease: time.Minute,
		Events: []stream.SeqRange{{First: 1, Last: 9}}})
	require.ErrorIs(t, err, store.ErrStale)
	done, err := w.shard().Group("balance").Done(t.Context(), stream.SeqRange{First: 1, Last: 100})
	require.NoError(t, err)
	require.False(t, done.Has(1))
}

// No script sets a done bit above the shard's seq, since that would skip a later grant. A call with such an event
// freezes the shard instead.
func TestNoBitAboveTheSeq(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	other := w.over(w.server.Client(t)).Shard(0)
	_, err := other.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 11, Last: 11}), nil)
	require.ErrorIs(t, err, store.ErrFrozen)
	require.Zero(t, w.rdb.Exists(t.Context(), w.store.Shard(0).Keys.Done("balance", 0)).Val())
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)))
}

// A shard opens for the write history that the check has found. Another history may have begun since; the next check
// then freezes the shard again.
func TestOpenedForTheHistoryThatWasLookedAt(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.restart(t, "")
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	found.History = "the one before"
	opened, err := w.shard().Reopen(t.Context(), &store.Reopening{
		Was: found, Mark: store.Owner{Deployment: "test"}, Epoch: 2, Last: store.ChunkEvents - 1,
	})
	require.NoError(t, err)
	require.True(t, opened)
	require.Equal(t, "the one before", w.rdb.HGet(t.Context(), w.store.Shard(0).Keys.Meta(), "history").Val())
}

// A caller reports a lost event after the check and before the opening. The shard does not open until the next check
// includes the event.
func TestSeenAtTheLastMoment(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	w.restart(t, "")
	found, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.True(t, found.Frozen)
	late := w.over(w.server.Client(t)).Shard(0)
	_, err = late.Group("balance").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 11, Last: 11}), nil)
	require.ErrorIs(t, err, store.ErrFrozen)
	again := &store.Reopening{Was: found, Mark: store.Owner{Deployment: "test"}, Epoch: 2, Last: store.ChunkEvents - 1,
		Known: 10}
	opened, err := w.shard().Reopen(t.Context(), again)
	require.NoError(t, err)
	require.False(t, opened)
	again.Was, err = w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Sight{Epoch: 1, Seq: 11}, again.Was.Seen)
	opened, err = w.shard().Reopen(t.Context(), again)
	require.NoError(t, err)
	require.True(t, opened)
}

// In a planned failover the promoted replica has all data, and the shard opens without a person. The first replica that
// attaches freezes nothing.
func TestPlannedFailover(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	replica := testkit.NewRedis(t, testkit.RedisOptions{ReplicaOf: w.server})
	testkit.Eventually(t, 20*time.Second, func() bool {
		return w.rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	}, "the replica has all data")
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, w.rdb, 10)),
		"the first replica freezes nothing")
	require.EqualValues(t, 1, w.rdb.Wait(t.Context(), 1, 10*time.Second).Val())
	require.NoError(t, w.server.Kill())
	w.rdb = replica.Client(t)
	w.store = w.over(w.rdb)
	require.NoError(t, w.rdb.ReplicaOf(t.Context(), "NO", "ONE").Err())
	w.rec = w.recoverer(func(*recovery.Config) {})
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeFrozen: 1}, outcomes(w.grab(t, w.rdb, 1)), "the fault fired")
	w.opens(t)
	require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 10}, outcomes(w.grab(t, w.rdb, 10)))
}

// A sink's pause and rate limit exist on other shards only. When this shard opens, it gets the pause and the newest
// limit.
func TestPausesOfOtherShardsComeBack(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 3)
	ctx, seven, eight := t.Context(), 7, 8
	other := w.store.Shard(1)
	_, _, err := other.Group("balance").Pause(ctx, by("ann", "the bank is closed"))
	require.NoError(t, err)
	_, _, err = w.shard().Group("kafka").Limit(ctx, &seven, by("bob", "before"))
	require.NoError(t, err)
	first, err := w.shard().Group("kafka").Control(ctx)
	require.NoError(t, err)
	testkit.Eventually(t, 20*time.Second, func() bool {
		return w.rdb.Time(ctx).Val().After(first.LimitAt.Add(time.Millisecond))
	}, "the clock of Redis has passed the first limit")
	_, _, err = w.store.Shard(2).Group("kafka").Limit(ctx, &eight, by("ann", "slowly"))
	require.NoError(t, err)
	w.restart(t, "")
	w.opens(t)
	c, err := w.shard().Group("balance").Control(ctx)
	require.NoError(t, err)
	require.True(t, c.Paused)
	require.Equal(t, "ann", c.By)
	require.Equal(t, "the bank is closed", c.Why)
	require.Nil(t, c.Rate)
	c, err = w.shard().Group("kafka").Control(ctx)
	require.NoError(t, err)
	require.False(t, c.Paused)
	require.Equal(t, 8, *c.Rate)
	require.Equal(t, "ann", c.Limited.By)
}

// ordersMore adds packets to the campaign in the ledger.
func (w *world) ordersMore(t *testing.T) {
	t.Helper()
	_, err := w.ledger.TopUp(t.Context(), ledger.TopUp{
		Campaign: id, ID: "more", Expect: 10_000, Generation: 2, Packets: 5, Total: 50,
		Split: hongbao.Split{Mode: hongbao.SplitEven}, Seed: campaign.NewSeed(), Hash: "h", Decision: by("ann", "w"),
	})
	require.NoError(t, err)
}

// toppedUp adds packets to the campaign in the ledger, and marks them as dealt in the ledger and in Redis.
func (w *world) toppedUp(t *testing.T) {
	t.Helper()
	w.ordersMore(t)
	epochs, err := w.ledger.Epochs(t.Context())
	require.NoError(t, err)
	require.NoError(t, w.ledger.TopUpDealt(t.Context(), id, 2, epochs))
	require.NoError(t, w.rdb.HSet(t.Context(), w.store.Shard(0).Keys.Campaign(id), "generation", 2, "dealt", 2).Err())
}

// Redis loses the dealt packets of a top-up, but no event. The shard opens without a person, and the ledger marks the
// top-up as not dealt.
func TestDealtTopUpIsLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		w := setup(t)
		files := w.older(t)
		w.toppedUp(t)
		if !lost {
			files = ""
		}
		w.restart(t, files)
		w.opens(t)
		open, err := w.ledger.OpenTopUps(t.Context())
		require.NoError(t, err)
		require.Equal(t, lost, len(open) == 1)
	}
}

// A campaign's sums are missing, so they do not match its stock. The shard still opens: only states and seqs count as
// evidence of a loss.
func TestOpensWithADamagedStock(t *testing.T) {
	t.Parallel()
	w := setup(t)
	require.NoError(t, w.rdb.Del(t.Context(), w.store.Shard(0).Keys.LoadedTotals(id, 1)).Err())
	w.restart(t, "")
	w.opens(t)
}
