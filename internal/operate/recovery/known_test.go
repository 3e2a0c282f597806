package recovery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

const burst = "burst"

// fundBurst funds and loads a campaign with more packets than the seqs of a chunk.
func (w *world) fundBurst(t *testing.T) {
	t.Helper()
	spec := loaded.Rain(burst, 160_000, 1_600_000)
	seed := campaign.NewSeed()
	_, err := w.ledger.CreateCampaign(t.Context(), ledger.Campaign{Spec: spec, Canonical: campaign.Canonical(spec),
		Seed: seed, Hash: campaign.Commit(spec, seed)})
	require.NoError(t, err)
	w.load(t, burst)
}

// saw freezes the shard and reports that a process has seen this seq.
func (w *world) saw(t *testing.T, seq int64) {
	t.Helper()
	z, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.True(t, z.Frozen)
	w.sawIn(t, z.Epoch, seq)
}

// sawIn is saw for an event of another epoch than Redis has.
func (w *world) sawIn(t *testing.T, epoch, seq int64) {
	t.Helper()
	seen := store.Sight{Epoch: epoch, Seq: seq}
	require.NoError(t, w.rdb.HSet(t.Context(), w.shard().Keys.Meta(), "seen", seen.String()).Err())
}

func (w *world) seq(t *testing.T) int64 {
	t.Helper()
	seq, err := w.rdb.HGet(t.Context(), w.shard().Keys.Meta(), "seq").Int64()
	require.NoError(t, err)
	return seq
}

func (w *world) withheldOf(t *testing.T, id string) int {
	t.Helper()
	list, err := w.shard().Place(id).Withheld(t.Context())
	require.NoError(t, err)
	return len(list)
}

// stops lets a recoverer that withholds packets stop before the shard is open, at its first call of the ledger after
// the restore.
func (w *world) stops(t *testing.T) {
	t.Helper()
	stopped := &changed{Ledger: w.ledger, deployment: func() error { return errBroken }}
	require.ErrorIs(t, w.guarded(over(stopped)).OpenFrozen(t.Context(), 0), errBroken)
}

func over(l recovery.Ledger) func(*recovery.Config) {
	return func(c *recovery.Config) { c.Ledger = aged{l} }
}

// changed is a ledger that calls functions before some of its methods.
type changed struct {
	recovery.Ledger

	deployment func() error
	note       func()
	accept     func()
}

func (c *changed) Deployment(ctx context.Context) (ledger.Deployment, error) {
	if c.deployment != nil {
		if err := c.deployment(); err != nil {
			return ledger.Deployment{}, err
		}
	}
	return c.Ledger.Deployment(ctx)
}

func (c *changed) AcceptLoss(ctx context.Context, from int64, token string, decision model.AcceptedLoss) error {
	if c.accept != nil {
		c.accept()
	}
	return c.Ledger.AcceptLoss(ctx, from, token, decision)
}

func (c *changed) NoteOpening(ctx context.Context, shard int, epoch int64, note string) error {
	if c.note != nil && strings.Contains(note, "next_seq") { // the shard opens next
		c.note()
	}
	return c.Ledger.NoteOpening(ctx, shard, epoch, note)
}

// A process that saw a high seq is silent, and Redis has lost no opening. Each unknown event may have granted a packet,
// however many they are.
func TestEachEventOfALongGapWithholdsAPacket(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	w.pair(t)
	w.restart(t, "")
	w.saw(t, w.seq(t)+75_000)
	w.restores(t, w.guarded())
	require.GreaterOrEqual(t, w.withheldOf(t, burst), 75_000)
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
}

// Redis loses an opening that had lost nothing, and all events after it. The seqs that the opening skipped withhold no
// packets, and each unknown event after it withholds one, however many they are.
func TestLongGapAfterALostOpening(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	_, silent := w.pair(t)
	old := w.older(t)
	w.restart(t, "")
	w.restores(t, w.guarded(small))
	next := w.seq(t) + 1
	for _, r := range silent.wins(t, 1) {
		require.Equal(t, next, r.Seq)
	}
	w.restart(t, old)
	w.saw(t, 0)
	w.sawIn(t, 2, next+75_000)
	w.restores(t, w.guarded(small))
	require.Greater(t, w.withheldOf(t, burst), 75_000)
	require.Less(t, w.withheldOf(t, burst), 75_000+100)
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	list, err := w.rec.Restored(t.Context())
	require.NoError(t, err)
	for i := range list[1:] {
		require.Zero(t, list[1+i].First, "the first opening restored nothing")
	}
}

// An opening that lost nothing notes only its next seq.
func TestNoteOfAnOpeningThatLostNothing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 1)
	w.restart(t, "")
	w.opens(t)
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, fences, 1)
	var note model.RestoreCounts
	require.NoError(t, json.Unmarshal([]byte(fences[0].Note), &note))
	require.Equal(t, model.RestoreCounts{Next: w.seq(t) + 1}, note)
}

// The ledger has no note of an opening, as after an accepted loss. Redis loses this opening and the events after it,
// and a process reports grants of its epoch. The seqs that the opening skipped withhold no packets, and the unknown
// events of its epoch do.
func TestLostOpeningWithoutANote(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	p, silent := w.pair(t)
	old := w.older(t)
	w.restart(t, "")
	w.restores(t, w.guarded())
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, w.ledger.NoteOpening(t.Context(), 0, fences[0].Epoch, ""))
	unreported, won := silent.wins(t, 3), p.wins(t, 5)
	w.restart(t, old)
	w.restores(t, w.guarded(), won)
	require.Subset(t, w.withheld(t), packetsOf(unreported))
	require.Less(t, w.withheldOf(t, burst), 100)
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
}

// Redis restarts again after an attempt has withheld packets, and before the shard is open. No opening was lost, so the
// next attempt opens the shard. It withholds the same packets, and no others.
func TestRestartDuringAGuardedRestore(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.fundBurst(t)
	p, silent := w.pair(t)
	old := w.older(t)
	won, unreported := p.wins(t, 5), silent.wins(t, 5)
	w.restart(t, old)
	w.saw(t, w.seq(t)+75_000)
	w.stops(t)
	withheld := w.withheldOf(t, burst)
	require.GreaterOrEqual(t, withheld, 75_000)
	w.restart(t, "")
	w.restores(t, w.guarded(), won)
	require.Equal(t, withheld, w.withheldOf(t, burst))
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	w.wakes(t, silent, unreported)
	w.adds(t)
}

// A process reports a higher seq after an attempt has withheld packets, and before the shard is open. The recoverer
// also withholds packets for the events up to that seq.
func TestLossGrowsAfterPacketsWereWithheld(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, w *world){
		"in one attempt":  func(*testing.T, *world) {},
		"in two attempts": func(t *testing.T, w *world) { t.Helper(); w.restart(t, "") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.pair(t)
			w.restart(t, "")
			first := w.seq(t)
			w.saw(t, first+40)
			w.stops(t)
			withheld := w.withheldOf(t, id)
			require.GreaterOrEqual(t, withheld, 40)
			again(t, w)
			w.saw(t, first+140)
			w.restores(t, w.guarded())
			require.Equal(t, withheld+100, w.withheldOf(t, id))
			w.adds(t)
		})
	}
}

// A process reports a higher seq while the recoverer judges. The shard does not open before the recoverer has judged
// that seq.
func TestLossGrowsDuringTheJudgement(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.pair(t)
	w.restart(t, "")
	first := w.seq(t)
	w.saw(t, first+40)
	grows := &changed{Ledger: w.ledger, note: sync.OnceFunc(func() { w.saw(t, first+140) })}
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(w.guarded(over(grows)).OpenFrozen(t.Context(), 0)))
	w.restores(t, w.guarded())
	require.GreaterOrEqual(t, w.withheldOf(t, id), 140)
}

// onCall calls do before the first command for which when is true.
type onCall struct {
	redis.Hook

	when func() bool
	do   func()
	done bool
}

func (o *onCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !o.done && o.when() {
			o.done = true
			o.do()
		}
		return next(ctx, cmd)
	}
}

func (o *onCall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *onCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Redis loses the grants again, right after a recoverer has put them back. The shard does not open without them.
func TestLossAfterGrantsWerePutBack(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	won := p.wins(t, 5)
	w.restart(t, old)
	client := w.server.Client(t)
	hook := &onCall{when: func() bool { return w.seq(t) == 15 }, do: func() { w.restart(t, old) }}
	client.AddHook(hook)
	_ = w.patient(func(c *recovery.Config) { c.Store = w.over(client) }).OpenFrozen(t.Context(), 0)
	require.True(t, hook.done, "the grants were put back")
	require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
	w.restores(t, w.patient(), won)
	require.EqualValues(t, 15, w.settles(t), fmt.Sprint(w.logs.All()))
}

// The state in Redis loses the grants again, right after a recoverer has put them back, and the server is still the
// same. The shard does not open without them.
func TestRestoredSeqIsLost(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	p.wins(t, 5)
	w.restart(t, old)
	client := w.server.Client(t)
	hook := &onCall{when: func() bool { return w.seq(t) == 15 },
		do: func() { require.NoError(t, w.rdb.HSet(t.Context(), w.shard().Keys.Meta(), "seq", 10).Err()) }}
	client.AddHook(hook)
	err := w.patient(func(c *recovery.Config) { c.Store = w.over(client) }).OpenFrozen(t.Context(), 0)
	require.True(t, hook.done, "the grants were put back")
	require.ErrorIs(t, err, store.ErrAttemptOver)
	z, err := w.shard().Freeze(t.Context())
	require.NoError(t, err)
	require.True(t, z.Frozen)
}

// A person requeued dead letters of sink kafka, and the topic has their grants. Redis loses the done bits of the
// requeue, and has the letters again. After the opening another requeue does not publish the grants again.
func TestLostRequeueIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	w.topic.grants = entries[0].Grants[:4] // only seqs 1 to 4 were requeued
	w.restart(t, old)
	w.restores(t, w.patient())
	requeue, err := w.store.Claims(store.ClaimsConfig{Sink: "kafka", Done: deadletter.RequeueSink("kafka"), Owner: "me",
		Lease: time.Minute, TakeLive: true, Trimmed: true})
	require.NoError(t, err)
	answer, err := requeue.Claim(t.Context(), stream.Opening{Shard: 0}, "c",
		[]stream.SeqRange{{First: 1, Last: 10}}, "batch")
	require.NoError(t, err)
	require.Equal(t, []stream.SeqRange{{First: 1, Last: 4}}, answer.Done)
	answer, err = requeue.Claim(t.Context(), stream.Opening{Shard: 0}, "c",
		[]stream.SeqRange{{First: 5, Last: 10}}, "batch")
	require.NoError(t, err)
	require.True(t, answer.Granted(), "the other letters are still delivered")
}

// A person opens a shard without the ledger, and Redis has lost the packets of a top-up. A caller that found the packets
// before the loss records them as dealt while a worker records the opening. The packets are dealt again.
func TestTopUpIsRecordedWithAnOpening(t *testing.T) {
	t.Parallel()
	w := setup(t)
	old := w.older(t)
	w.ordersMore(t)
	epochs, err := w.ledger.Epochs(t.Context())
	require.NoError(t, err)
	w.restart(t, old)
	w.opensBlind(t, 0, "the database burns")
	late := &changed{Ledger: w.ledger, accept: func() {
		require.NoError(t, w.ledger.TopUpDealt(t.Context(), id, 2, epochs))
	}}
	require.NoError(t, w.recoverer(over(late)).KeepOpening(t.Context(), 0))
	open, err := w.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Len(t, open, 1)
}
