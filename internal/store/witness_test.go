package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// attempt is an attempt on a shard that is as it was founded.
var attempt = store.Attempt{Epoch: 2, Floor: 0, Token: "t", History: "h"}

// freeze freezes the shard.
func (b *bundle) freeze(t *testing.T) {
	t.Helper()
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
}

// begin freezes the shard and begins an attempt.
func (b *bundle) begin(t *testing.T) {
	t.Helper()
	b.freeze(t)
	head, err := b.k.Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.k.Begin(t.Context(), &store.Frozen{Seq: head.Seq, Epoch: head.Epoch}, attempt))
}

// keep returns a function that restores all keys of the shard to their present content.
func (b *bundle) keep(t *testing.T) (back func()) {
	t.Helper()
	dumps := b.dump(t)
	return func() {
		for key := range b.dump(t) {
			require.NoError(t, b.rdb.Del(t.Context(), key).Err())
		}
		for key, dump := range dumps {
			require.NoError(t, b.rdb.Restore(t.Context(), key, 0, dump).Err())
		}
	}
}

// crowd lets users grab in three calls. One user gets two packets, one grab has a traceparent, and one is a repeat.
func (b *bundle) crowd(t *testing.T) {
	t.Helper()
	b.grab(t, "rain", "u1/r1", "u2/r2", "u3/r3")
	traced := call("rain", "u1/r4", "u4/r5")
	traced.Grabs[1].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced.Currency = "CNY"
	_, err := b.k.Grab(t.Context(), traced, nil)
	require.NoError(t, err)
	b.grab(t, "rain", "u2/r2", "u5/r6")
}

func twice(c hongbao.Campaign) hongbao.Campaign {
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}}
	return c
}

// Grants that users saw come back unchanged: receipts, stock and entries.
func TestGrantsComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, twice(spec("rain", 50)))
	b.grab(t, "rain", "u0/r0")
	back := b.keep(t)
	b.crowd(t)
	rows := func() (receipts map[string]string, stock []string, grants []hongbao.Grant) {
		receipts, err := b.rdb.HGetAll(t.Context(), b.k.Keys.Receipts("rain")).Result()
		require.NoError(t, err)
		stock, err = b.rdb.LRange(t.Context(), b.k.Keys.Stock("rain"), 0, -1).Result()
		require.NoError(t, err)
		messages, err := b.rdb.XRange(t.Context(), b.k.Keys.Events(), "-", "+").Result()
		require.NoError(t, err)
		for _, m := range messages {
			e, err := stream.ParseEntry(0, m.ID, []string{"3", m.Values["3"].(string)})
			require.NoError(t, err)
			for _, g := range e.Grants {
				g.EntryID, g.Epoch = "", 0
				grants = append(grants, g)
			}
		}
		return receipts, stock, grants
	}
	receipts, stock, grants := rows()
	require.Len(t, grants, 7)

	back()
	at := attempt
	at.Floor = 1
	b.freeze(t)
	require.NoError(t, b.k.Begin(t.Context(), &store.Frozen{Seq: 1, Epoch: 1}, at))
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	evidence := b.evidence(t)
	require.Len(t, evidence, 6)
	for _, g := range evidence { // the entries say when each grant was made
		require.NoError(t, b.k.Regrant(t.Context(), at, run(g)), "%+v", g)
	}
	again, stockAgain, grantsAgain := rows()
	require.Equal(t, receipts, again)
	require.Equal(t, stock, stockAgain)
	require.Equal(t, grants, grantsAgain)
	require.NoError(t, b.k.Regrant(t.Context(), at, run(evidence[0])), "a repeat")
	repeated, _, _ := rows()
	require.Equal(t, receipts, repeated)
	at.Epoch++
	require.ErrorIs(t, b.k.Regrant(t.Context(), at, run(evidence[0])), store.ErrAttemptOver)
}

// run returns a run of one grant of a campaign with one generation.
func run(g hongbao.Grant) store.Run { return store.Run{Grants: []hongbao.Grant{g}, Generations: 1} }

// evidence returns the grants that the shard's attempt was sent, each once, by seq.
func (b *bundle) evidence(t *testing.T) []hongbao.Grant {
	t.Helper()
	evidence, err := b.k.Evidence(t.Context())
	require.NoError(t, err)
	require.Zero(t, evidence.Broken)
	grants := evidence.Grants
	slices.SortFunc(grants, func(a, b hongbao.Grant) int { return int(a.Seq - b.Seq) })
	return slices.CompactFunc(grants, func(a, b hongbao.Grant) bool { return a.Seq == b.Seq })
}

// Packets that were reported to no user stay in the stock, before the others. The close still adds up what is left.
func TestPacketsOfNobodyStay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const packets = 3500 // four chunks
	b.load(t, spec("rain", packets))
	back := b.keep(t)
	users := make([]string, 100)
	for i := range 13 {
		for j := range users {
			users[j] = fmt.Sprintf("u%d-%d/r", i, j)
		}
		b.grab(t, "rain", users...)
	}
	back()
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	evidence := b.evidence(t)
	require.Len(t, evidence, 1300)
	var granted, lost int64
	var runs []store.Run
	for i := range evidence {
		g := &evidence[i]
		if i%7 < 2 || i == 998 {
			runs = append(runs, store.Run{Nobody: stream.SeqRange{First: g.Seq, Last: g.Seq}})
			lost++
			continue
		}
		if last := len(runs) - 1; len(runs[last].Grants) > 0 && g.Time.Equal(evidence[i-1].Time) {
			runs[last].Grants = append(runs[last].Grants, *g)
		} else {
			runs = append(runs, run(*g))
		}
		granted += int64(g.Amount)
	}
	require.NoError(t, b.k.Regrant(t.Context(), attempt, runs...))
	skipped, err := b.k.Skipped(t.Context())
	require.NoError(t, err)
	require.Len(t, skipped, int(lost))
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err())
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "epoch", attempt.Epoch).Err())
	for more := range 4 { // grabs continue with the packets that stayed
		for j := range users {
			users[j] = fmt.Sprintf("v%d-%d/r", more, j)
		}
		for _, a := range b.grab(t, "rain", users...) {
			granted += int64(a.Receipts[0].Amount)
		}
	}
	closed, err := b.k.Close(t.Context(), "rain", true, 0)
	require.NoError(t, err)
	require.Equal(t, 1300-lost+400, closed.Close.Granted)
	require.EqualValues(t, granted, closed.Close.GrantedAmount)
	require.EqualValues(t, packets*10-granted, closed.Close.LeftAmount)
}

// Regrant refuses a grant whose packet is not in the stock, and a grant of a closed campaign. Nothing changes.
func TestGrantThatCannotComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.begin(t)
	g := hongbao.Grant{Campaign: "rain", User: "u1", Seq: 1, Packet: 11, Amount: 1, Time: time.Now()}
	before := b.dump(t)
	err := b.k.Regrant(t.Context(), attempt, run(g))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "closed").Err())
	err = b.k.Regrant(t.Context(), attempt, run(g))
	require.ErrorContains(t, err, "state closed")
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "open").Err())
	require.Empty(t, differ(before, b.dump(t)))
	g.Seq = 3
	require.ErrorIs(t, b.k.Regrant(t.Context(), attempt, run(g)), store.ErrAttemptOver)
}

// Once a process has sent everything it knows, it reports no answer of an earlier epoch to a user. A primary that
// was left behind may have given that answer.
func TestAnswerAfterAllWasSent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	w, err := b.k.Witnesses(t.Context())
	require.NoError(t, err)
	require.Len(t, w, 1)
	require.Equal(t, attempt.Epoch, w[0].Sent)
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err()) // as on the old primary
	testkit.Eventually(t, 10*time.Second, func() bool {                          // a caller assumes for 0.1 s that the shard is frozen
		_, err = b.k.Grab(t.Context(), call("rain", "u2/r2"), nil)
		return err != nil
	}, "it is not returned")
	require.ErrorIs(t, err, store.ErrStale)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "epoch", attempt.Epoch).Err())
	require.Len(t, b.grab(t, "rain", "u2/r2")[0].Receipts, 1, "the opening")
}

// A process that was stopped for long writes its line before it answers. A process that finds the shard frozen does
// not answer.
func TestAnswerNeedsALine(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	line := func() string {
		lines, err := b.rdb.HVals(t.Context(), b.k.Keys.Witnesses()).Result()
		require.NoError(t, err)
		require.Len(t, lines, 1)
		return lines[0]
	}
	first := line()
	b.grab(t, "rain", "u2/r2")
	require.Equal(t, first, line(), "a young line does")
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Witnesses()).Err())
	store.AgeLine(b.k, stream.WitnessAge)
	b.grab(t, "rain", "u3/r3")
	require.NotEmpty(t, line(), "it is written again")
}

// A watch writes no line for a process that has answered no call; the first answer writes it. A producer that is
// closed removes its line.
func TestLineOfOnesThatAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	lines := func() int64 { return b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val() }
	require.NoError(t, store.LookOf(t.Context(), b.k))
	require.Zero(t, lines())
	b.grab(t, "rain", "u1/r1")
	require.EqualValues(t, 1, lines())
	require.NoError(t, b.store.Leave(t.Context()))
	require.Zero(t, lines())
	require.NoError(t, store.LookOf(t.Context(), b.k))
	require.Zero(t, lines())
	b.grab(t, "rain", "u2/r2")
	require.EqualValues(t, 1, lines(), "another producer of the process continues")
}

// A producer that is closed leaves its line on a frozen shard: it may have reported grants that Redis has lost.
func TestLineStaysOnAFrozenShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	b.freeze(t)
	require.ErrorIs(t, b.store.Leave(t.Context()), store.ErrFrozen)
	require.EqualValues(t, 1, b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val())
}

// Two producers of a process share one line; the last one to close removes it.
func TestLineOfTwoProducers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.store.Enter()
	b.store.Enter()
	b.grab(t, "rain", "u1/r1")
	for _, left := range []int64{1, 0} {
		require.NoError(t, b.store.Leave(t.Context()))
		require.Equal(t, left, b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val())
	}
}

// An old line stays on a frozen shard, where an opening waits for it. It is removed from an open shard.
func TestOldLines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	lines := func() int64 { return b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val() }
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Witnesses(), "dead", "1700000000000 0").Err())
	b.freeze(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	require.EqualValues(t, 2, lines())
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err())
	other, err := store.Of(b.rdb.WithTimeout(time.Minute), b.store.Space())
	require.NoError(t, err)
	require.NoError(t, store.WitnessOf(t.Context(), other.Shard(0)))
	require.EqualValues(t, 2, lines(), "the two that live")
}

// Evidence that witnesses send while a recoverer judges keeps the shard from opening.
func TestNoOpeningWithoutAllEvidence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.begin(t)
	z, err := b.k.Freeze(t.Context())
	require.NoError(t, err)
	e, err := b.k.Evidence(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.TestifyOf(t.Context(), b.k, attempt.Epoch))
	again := &store.Reopening{Was: z, Epoch: attempt.Epoch, Last: 100, Evidence: e.Texts}
	opened, err := b.k.Reopen(t.Context(), again)
	require.NoError(t, err)
	require.False(t, opened)
	if e, err = b.k.Evidence(t.Context()); err == nil {
		again.Evidence = e.Texts
		opened, err = b.k.Reopen(t.Context(), again)
	}
	require.NoError(t, err)
	require.True(t, opened)
	require.Zero(t, b.rdb.Exists(t.Context(), b.k.Keys.Evidence()).Val())
}

// A process freezes the shard again if an opening skipped grants that it reported to users and that it had not sent.
// This also applies if the process has seen later events of that epoch.
func TestToldAndPassedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1", "u2/r2")
	b.grab(t, "rain", "u3/r3")
	for skipped, want := range map[string]int64{"2-2": 2, "1-1": 1, "2-2*": 0, "4-9": 0} {
		require.Equal(t, want, store.LateOf(b.k, 2, skipped), skipped)
	}
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	require.Zero(t, store.LateOf(b.k, 2, "2-2"), "its evidence was used")
}

// A process remembers a grant for ten seconds and until it is settled, but for a minute at most.
func TestGrantsAreForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1", "u2/r2")
	b.grab(t, "rain", "u3/r3")
	now := time.Now()
	for _, step := range []struct {
		epoch, settled int64
		later          time.Duration
		remembered     int
		dropped        int64
	}{
		{1, 3, 9 * time.Second, 2, 0},
		{1, 1, 11 * time.Second, 2, 0},
		{2, 3, 11 * time.Second, 2, 0},
		{1, 2, 11 * time.Second, 1, 0},
		{1, 2, 59 * time.Second, 1, 0},
		{1, 2, 61 * time.Second, 0, 3},
	} {
		n, dropped := store.Forget(b.k, step.epoch, step.settled, now.Add(step.later))
		require.Equal(t, []any{step.remembered, step.dropped}, []any{n, dropped}, "%+v", step)
	}
	bytes, forgotten := b.store.Remembered()
	require.Zero(t, bytes)
	require.EqualValues(t, 1, forgotten, "the grant that was not settled")
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	w, err := b.k.Witnesses(t.Context())
	require.NoError(t, err)
	require.Zero(t, w[0].Sent, "it does not know all")
}

// Done bits are set, except those of an open claim.
func TestMarkLeavesClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 100)
	c := claimCall("c1", "w1")
	c.Events = []stream.SeqRange{{First: 5, Last: 6}}
	_, err := b.k.Claim(t.Context(), c)
	require.NoError(t, err)
	c = claimCall("c2", "w1") // one run before the events that are marked, one at their end
	c.Events = []stream.SeqRange{{First: 1, Last: 1}, {First: 39, Last: 45}}
	_, err = b.k.Claim(t.Context(), c)
	require.NoError(t, err)
	b.begin(t)
	require.NoError(t, b.k.Mark(t.Context(), attempt, "kafka", []stream.SeqRange{{First: 3, Last: 40}, {First: 50, Last: 50}}))
	n, err := b.rdb.BitCount(t.Context(), b.k.Keys.Done("kafka", 0), nil).Result()
	require.NoError(t, err)
	require.EqualValues(t, 35, n)
	for _, seq := range []int64{1, 5, 6, 39, 40} {
		set, err := b.rdb.GetBit(t.Context(), b.k.Keys.Done("kafka", 0), seq).Result()
		require.NoError(t, err)
		require.Zero(t, set)
	}
}
