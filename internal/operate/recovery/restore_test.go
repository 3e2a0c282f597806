package recovery_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/operate/restore"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// wins lets n new users grab through the process, and returns their receipts by user.
func (p *process) wins(t *testing.T, n int) map[string]hongbao.Receipt {
	t.Helper()
	users := make([]string, n)
	for i := range users {
		p.w.user++
		users[i] = fmt.Sprintf("u%d/r", p.w.user)
	}
	won := map[string]hongbao.Receipt{}
	for i, a := range p.ask(t, users...) {
		user, _, _ := strings.Cut(users[i], "/")
		won[user] = a.Receipts[0]
	}
	return won
}

// ask lets the users grab through the process, and requires that all are granted. It retries while the process still
// sees the shard as frozen.
func (p *process) ask(t *testing.T, users ...string) (answers []hongbao.Answer) {
	t.Helper()
	testkit.Eventually(t, 10*time.Second, func() (open bool) {
		var err error
		answers, err = p.w.over(p.rdb).Shard(0).Place(id).Grab(t.Context(), storetest.Call(id, users...), nil)
		if hongbao.IsOutage(err) { // the client has not yet noticed that the server is up again
			return false
		}
		require.NoError(t, err)
		return answers[0].Outcome != hongbao.OutcomeFrozen
	}, "the shard is open")
	for i, a := range answers {
		require.Equal(t, hongbao.OutcomeGranted, a.Outcome, users[i])
	}
	return answers
}

// patient returns a recoverer with the Gather of a real worker.
func (w *world) patient(change ...func(*recovery.Config)) *recovery.Recoverer {
	return w.recoverer(func(c *recovery.Config) {
		c.Gather, c.Settle = 5*time.Second, 200*time.Millisecond
		for _, f := range change {
			f(c)
		}
	})
}

// restores calls OpenFrozen until the shard is open, and requires that the users still have their receipts.
func (w *world) restores(t *testing.T, r *recovery.Recoverer, won ...map[string]hongbao.Receipt) {
	t.Helper()
	w.openedBy(t, r, 0)
	w.keeps(t, won...)
}

// keeps repeats the users' grabs with their request ids, and requires the same receipts.
func (w *world) keeps(t *testing.T, won ...map[string]hongbao.Receipt) {
	t.Helper()
	if w.asker == nil {
		w.asker = w.process(t)
		w.asker.watch(t)
	}
	for _, all := range won {
		for user, r := range all {
			has := w.asker.ask(t, user+"/r")[0].Receipts[0]
			require.Equal(t, []any{r.Packet, r.Amount, r.Seq}, []any{has.Packet, has.Amount, has.Seq}, user)
		}
	}
}

// settles settles all grants in the stream, and returns how many grants the ledger has.
func (w *world) settles(t *testing.T) int64 {
	t.Helper()
	w.settle(t)
	c, found, err := w.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	return c.Grants
}

// Redis loses its last grants, and all processes that reported them to users are alive. All grants are restored, and
// the shard opens without an alarm.
func TestLostGrantsAreRestored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, q := w.process(t), w.process(t)
	p.watch(t)
	q.watch(t)
	early := p.wins(t, 60)
	old := w.older(t)
	late, more := p.wins(t, 40), q.wins(t, 30)
	w.restart(t, old)
	w.restores(t, w.patient(), early, late, more)
	require.EqualValues(t, 130, w.settles(t))
	require.Len(t, q.wins(t, 20), 20, "new users are granted after the restore")
	require.EqualValues(t, 150, w.settles(t))
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	done := w.logs.FilterMessageSnippet("was restored").All()
	require.Len(t, done, 1)
	require.Contains(t, fmt.Sprint(done[0].ContextMap()["restored"]), "70")
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, fences, 1)
	require.Equal(t, model.RestoreCounts{Witnesses: 70, First: 61, Last: 130}, counts(t, fences[0].Note))
	list, err := w.rec.Restored(t.Context())
	require.NoError(t, err)
	list[0].Took, list[0].Next = model.OpeningSteps{}, 0
	require.Equal(t, []model.Restored{{Epoch: 2, At: fences[0].Opened, RestoreCounts: model.RestoreCounts{Witnesses: 70,
		First: 61,
		Last:  130}}}, list)
	closed, err := w.shard().Place(id).Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.EqualValues(t, 150, closed.Close.Granted)
	require.EqualValues(t, 850, closed.Close.Left)
}

// A recoverer dies while it waits for witnesses. The next one continues the attempt, and waits only for the rest of the
// time.
func TestRecovererGoesOnWithTheWait(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	early := p.wins(t, 10)
	old := w.older(t)
	late := p.wins(t, 10)
	w.restart(t, old)
	waits := func(c *recovery.Config) { c.Settle = 4 * time.Second }
	ctx, kill := context.WithCancel(t.Context())
	killed := make(chan error, 1)
	go func() { killed <- w.patient(waits).OpenFrozen(ctx, 0) }()
	testkit.Eventually(t, 20*time.Second, func() bool {
		before, err := w.shard().Before(t.Context(), restore.Overlap)
		return err == nil && before.Attempt.Epoch > 0 && before.Asked > 2*time.Second
	}, "it has waited for two seconds")
	kill()
	require.Error(t, <-killed)
	w.restores(t, w.patient(waits), early, late)
	list, err := w.rec.Restored(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Less(t, list[0].Took.Witnesses, int64(3500))
}

// Redis loses an opening, and grants before and after it. The seqs that this opening skipped are not counted as lost
// events.
func TestSkippedSeqsAreNoLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	won := []map[string]hongbao.Receipt{p.wins(t, 10)}
	old := w.older(t)
	for range 2 {
		won = append(won, p.wins(t, 5))
		w.restart(t, old)
		w.restores(t, w.patient(), won...)
	}
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	did := counts(t, fences[0].Note)
	require.Equal(t, []int64{10, 0}, []int64{int64(did.Ledger + did.Topic + did.Witnesses), did.Unknown})
	require.Greater(t, did.Last, int64(store.ChunkEvents), "the second restore has grants of both epochs")
}

// counts decodes the note of an opening. It requires that the note has the time that the recoverer waited for
// witnesses.
func counts(t *testing.T, note string) (c model.RestoreCounts) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(note), &c))
	require.GreaterOrEqual(t, c.Took.Witnesses, int64(200))
	require.Greater(t, c.Next, c.Last)
	c.Took, c.Next = model.OpeningSteps{}, 0
	return c
}

// The process that reported the lost grants does not watch, so it sends no evidence. The grants are restored from the
// ledger and the topic, and the done bits mark what the topic has.
func TestGrantsOfTheLedgerAndTheTopicAreRestored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.wins(t, 10)
	old := w.older(t)
	won := p.wins(t, 30)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	lost := entries[1].Grants
	require.NoError(t, errors.Join(w.settler(t).Handle(t.Context(), testkit.Batch(lost[:20]))...))
	w.topic.grants = lost[15:]
	w.restart(t, old)
	idle := w.process(t) // no recoverer waits for p, which has no registration as a witness
	idle.watch(t)
	require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Witnesses()).Err())
	w.restores(t, w.patient(), won)
	require.EqualValues(t, 40, w.settles(t))
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, model.RestoreCounts{Ledger: 20, Topic: 10, First: 11, Last: 40}, counts(t, fences[0].Note))
	for _, g := range lost[15:] { // the topic has these grants
		done, err := w.rdb.GetBit(t.Context(), w.shard().Keys.Done("kafka", 0), g.Seq).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, done)
	}
	done, err := w.rdb.BitCount(t.Context(), w.shard().Keys.Done("kafka", 0), nil).Result()
	require.NoError(t, err)
	require.EqualValues(t, 15, done)
}

// Redis loses the dealt packets of a top-up together with grants. The grants are restored, and the packets have to be
// dealt again.
func TestTopUpIsLostWithGrants(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	won := p.wins(t, 20)
	w.toppedUp(t)
	w.restart(t, old)
	w.restores(t, w.patient(), won)
	open, err := w.ledger.OpenTopUps(t.Context())
	require.NoError(t, err)
	require.Len(t, open, 1)
}

// The grants of one process were reported to no user, as far as any living process knows. They count as never made:
// their packets are dealt again, and their seqs are skipped.
func TestPacketsThatNobodyWasToldOfAreDealtAgain(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	first := p.wins(t, 5)
	unreported := w.process(t) // its answers were lost, and it has no registration as a witness
	var dealt []int64
	for _, r := range unreported.wins(t, 7) {
		dealt = append(dealt, r.Packet)
	}
	second := p.wins(t, 5)
	w.restart(t, old)
	w.restores(t, w.patient(), first, second)
	fences, err := w.ledger.Fences(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, model.RestoreCounts{Witnesses: 10, Unknown: 7, First: 11, Last: 27}, counts(t, fences[0].Note))
	var again []int64
	for _, r := range p.wins(t, 7) {
		again = append(again, r.Packet)
	}
	require.ElementsMatch(t, dealt, again)
	require.EqualValues(t, 27, w.settles(t))
	skipped, err := w.shard().Skipped(t.Context())
	require.NoError(t, err)
	require.Equal(t, stream.SeqRange{First: 16, Last: 22}, skipped[0])
	require.EqualValues(t, 28, skipped[1].First)
}

// A process that answered users does not report. The shard stays frozen for a person's decision, because Margin is 0.
func TestSilentWitnessLeavesTheLossToAPerson(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.process(t), w.process(t)
	p.watch(t)
	p.wins(t, 10)
	silent.wins(t, 1)
	old := w.older(t)
	p.wins(t, 5)
	silent.wins(t, 5)
	w.restart(t, old)
	w.rec = w.recoverer(func(c *recovery.Config) { c.Gather = time.Second })
	w.staysFrozen(t)
	require.Contains(t, fmt.Sprint(w.logs.FilterMessageSnippet("went back").All()[0].ContextMap()), "is silent")
}

// The evidence contradicts Redis or the ledger. The shard stays frozen for a person's decision.
func TestContradictionsAreForAPerson(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world, lost []hongbao.Grant)
		why    string
	}{
		"another user has the packet": {func(w *world, lost []hongbao.Grant) {
			w.topic.grants = lost[:1]
			w.topic.grants[0].User = "another"
		}, "contradict"},
		"another seq": {func(w *world, lost []hongbao.Grant) {
			w.topic.grants = lost[:1]
			w.topic.grants[0].Seq = 40
		}, "two sources disagree"},
		"two grants of one packet": {func(w *world, lost []hongbao.Grant) {
			lost[0].Packet, lost[0].Seq, lost[0].RequestID, lost[0].User = lost[1].Packet, 77, "x", "x"
			w.topic.grants = lost[:1]
		}, "contradict"},
		"a campaign that is gone": {func(w *world, lost []hongbao.Grant) {
			lost[0].Campaign = "gone"
			w.topic.grants = lost[:1]
		}, "does not have"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p := w.process(t)
			p.watch(t)
			p.wins(t, 10)
			old := w.older(t)
			p.wins(t, 5)
			entries, err := w.shard().Entries(t.Context(), "-", "+")
			require.NoError(t, err)
			c.change(w, entries[1].Grants)
			w.restart(t, old)
			w.rec = w.patient()
			t.Cleanup(func() {
				if t.Failed() {
					for _, l := range w.logs.All() {
						t.Log(l.Message, l.ContextMap())
					}
					t.Log(w.rdb.HGetAll(context.Background(), w.shard().Keys.Witnesses()).Val(), w.rdb.HGetAll(context.Background(), w.shard().Keys.Meta()).Val())
				}
			})
			w.staysFrozen(t)
			require.Contains(t, fmt.Sprint(w.logs.FilterMessageSnippet("went back").All()[0].ContextMap()), c.why)
		})
	}
}

// A worker slept, and settles lost grants after the ledger was fenced. The ledger rejects them, because their packets
// are dealt again.
func TestSleepingSettlerIsFenced(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, unreported := w.process(t), w.process(t)
	p.watch(t)
	p.wins(t, 10)
	old := w.older(t)
	unreported.wins(t, 5)
	entries, err := w.shard().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	lost := entries[1].Grants
	w.restart(t, old)
	w.restores(t, w.patient())
	for _, err := range w.settler(t).Handle(t.Context(), testkit.Batch(lost)) {
		require.ErrorIs(t, err, ledger.ErrFenced)
	}
	require.Len(t, p.wins(t, 5), 5, "the packets of the lost grants are dealt again")
	require.EqualValues(t, 15, w.settles(t))
}

// breaks is a Redis hook that fails the command with number at and all later ones, as if the process had died.
type breaks struct {
	at int64
	n  atomic.Int64
}

var errBroken = errors.New("the test cut the connection")

func (b *breaks) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *breaks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.n.Add(1) >= b.at {
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}

func (b *breaks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if b.n.Add(1) >= b.at {
			for _, cmd := range cmds {
				cmd.SetErr(errBroken)
			}
			return errBroken
		}
		return next(ctx, cmds)
	}
}

// finishes marks all events as finished. Otherwise the seqs that each opening skips would count as a backlog.
func (w *world) finishes(t *testing.T) {
	t.Helper()
	meta := w.shard().Keys.Meta()
	require.NoError(t, w.rdb.HSet(t.Context(), meta, "finished", w.rdb.HGet(t.Context(), meta, "seq").Val()).Err())
}

// A recoverer dies at each of its commands in turn. Another one continues each time, and all reported grants are
// restored.
func TestRecovererDiesAtEachStep(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	died := 0
	for at := int64(1); ; at++ {
		w.finishes(t)
		p.wins(t, 2)
		old := w.older(t)
		won := []map[string]hongbao.Receipt{p.wins(t, 2)}
		w.process(t).wins(t, 1) // Redis loses this process's registration as a witness, too
		won = append(won, p.wins(t, 2))
		w.restart(t, old)
		client := w.server.Client(t)
		hook := &breaks{at: at}
		client.AddHook(hook)
		dying := w.patient(func(c *recovery.Config) { c.Store = w.over(client); c.Settle = 30 * time.Millisecond })
		err := dying.OpenFrozen(t.Context(), 0)
		require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
		w.restores(t, w.patient(func(c *recovery.Config) { c.Settle = 30 * time.Millisecond }), won...)
		if err == nil && hook.n.Load() < at {
			break
		}
		died++
	}
	t.Logf("the recoverer died at %d commands", died)
	require.Greater(t, died, 15)
}

// diesAfter lets recoverers die at later and later commands until wanted returns true.
func (w *world) diesAfter(t *testing.T, wanted func() bool) {
	t.Helper()
	for at := int64(1); !wanted(); at++ {
		require.Less(t, at, int64(100))
		client := w.server.Client(t)
		client.AddHook(&breaks{at: at})
		r := w.patient(func(c *recovery.Config) { c.Store, c.Settle = w.over(client), 30*time.Millisecond })
		_ = r.OpenFrozen(t.Context(), 0)
		require.NoError(t, w.rdb.Del(t.Context(), w.shard().Keys.Lock("recover")).Err()) // as if the lease had expired
	}
}

// A second attempt uses the time of the last write before the freeze, not that of the first attempt's writes. So a
// witness that died between the two attempts still has to report.
func TestSecondAttemptKeepsTheTimeOfTheLastWrite(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.process(t)
	p.watch(t)
	won := []map[string]hongbao.Receipt{p.wins(t, 5)}
	old := w.older(t)
	won = append(won, p.wins(t, 5))
	w.restart(t, old)
	attempt := func() store.Attempt {
		a, err := w.shard().Attempt(t.Context())
		require.NoError(t, err)
		return a
	}
	w.diesAfter(t, func() bool {
		return attempt().Epoch > 0 && w.rdb.HGet(t.Context(), w.shard().Keys.Meta(), "seq").Val() == "10"
	})
	first := attempt()
	before, err := w.shard().Before(t.Context(), time.Second)
	require.NoError(t, err)
	require.Greater(t, before.Wrote.UnixMilli(), first.Wrote, "the attempt has written since")
	w.restart(t, "")
	w.diesAfter(t, func() bool { return attempt().Epoch > first.Epoch })
	require.Equal(t, first.Wrote, attempt().Wrote)
	require.Equal(t, first.Floor, attempt().Floor)
	w.restores(t, w.patient(), won...)
}
