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

// attempt is a restore attempt on a shard in epoch 1.
var attempt = store.Attempt{Epoch: 2, Floor: 0, Token: "t", History: "h"}

func (b *bundle) freeze(t *testing.T) {
	t.Helper()
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "frozen", time.Now().UnixMilli()).Err())
}

// begin freezes the shard and begins attempt.
func (b *bundle) begin(t *testing.T) {
	t.Helper()
	b.freeze(t)
	head, err := b.k.Head(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.k.Begin(t.Context(), &store.Frozen{Seq: head.Seq, Epoch: head.Epoch}, attempt))
}

// keep returns a function that resets all keys to their present content, to simulate a loss.
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

// crowd makes three calls with grabs. One user gets two packets, one grab has a traceparent, and one grab is a
// repeat.
func (b *bundle) crowd(t *testing.T) {
	t.Helper()
	b.grab(t, "rain", "u1/r1", "u2/r2", "u3/r3")
	traced := call("rain", "u1/r4", "u4/r5")
	traced.Grabs[1].Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced.Currency = "CNY"
	_, err := b.k.Place("rain").Grab(t.Context(), traced, nil)
	require.NoError(t, err)
	b.grab(t, "rain", "u2/r2", "u5/r6")
}

func withTwoPerUser(c hongbao.Campaign) hongbao.Campaign {
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}}
	return c
}

// Redis loses grants that were reported to users. Regrant restores receipts, stock and entries from the process's
// evidence.
func TestGrantsComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, withTwoPerUser(spec("rain", 50)))
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
	for _, g := range evidence { // each grant has its original time
		require.NoError(t, b.k.RestoreGrants(t.Context(), at, run(g)), "%+v", g)
	}
	again, stockAgain, grantsAgain := rows()
	require.Equal(t, receipts, again)
	require.Equal(t, stock, stockAgain)
	require.Equal(t, grants, grantsAgain)
	require.NoError(t, b.k.RestoreGrants(t.Context(), at, run(evidence[0])), "a repeat")
	repeated, _, _ := rows()
	require.Equal(t, receipts, repeated)
	at.Epoch++
	require.ErrorIs(t, b.k.RestoreGrants(t.Context(), at, run(evidence[0])), store.ErrAttemptOver)
}

// A grant that gets a new seq is put back after later grants. The user's receipts stay in ascending order of time,
// because limits per day and hour look at the last ones.
func TestReceiptsStayInOrderOfTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, withTwoPerUser(spec("rain", 10)))
	later := b.grab(t, "rain", "u1/r1")[0].Receipts[0]
	front, err := b.k.Place("rain").Front(t.Context(), 1, 1)
	require.NoError(t, err)
	b.begin(t)
	p := front[0][0]
	earlier := hongbao.Grant{Campaign: "rain", User: "u1", RequestID: "r0", Seq: 2, Packet: p.Number, Amount: p.Amount,
		Time: later.Time.Add(-time.Minute)}
	require.NoError(t, b.k.RestoreGrants(t.Context(), attempt, run(earlier)))
	receipts, err := b.k.Place("rain").ReceiptsOf(t.Context(), []string{"u1"})
	require.NoError(t, err)
	require.Equal(t, []string{"r0", "r1"}, []string{receipts["u1"][0].RequestID, receipts["u1"][1].RequestID})
}

func run(g hongbao.Grant) store.Run { return store.Run{Grants: []hongbao.Grant{g}, Generations: 1} }

// evidence returns the grants in the shard's evidence without duplicates, ordered by seq.
func (b *bundle) evidence(t *testing.T) []hongbao.Grant {
	t.Helper()
	evidence, err := b.k.Evidence(t.Context())
	require.NoError(t, err)
	require.Zero(t, evidence.Broken)
	grants := evidence.Grants
	slices.SortFunc(grants, func(a, b hongbao.Grant) int { return int(a.Seq - b.Seq) })
	return slices.CompactFunc(grants, func(a, b hongbao.Grant) bool { return a.Seq == b.Seq })
}

// Redis loses 1,300 grants, of which some were reported to no user. The packets of these stay at the front of the
// stock and are granted again. The counts of the close are correct.
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
			runs = append(runs, store.Run{Unknown: stream.SeqRange{First: g.Seq, Last: g.Seq}})
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
	require.NoError(t, b.k.RestoreGrants(t.Context(), attempt, runs...))
	skipped, err := b.k.Skipped(t.Context())
	require.NoError(t, err)
	require.Len(t, skipped, int(lost))
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err())
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "epoch", attempt.Epoch).Err())
	for more := range 4 { // grabs the packets that stayed in the stock first
		for j := range users {
			users[j] = fmt.Sprintf("v%d-%d/r", more, j)
		}
		for _, a := range b.grab(t, "rain", users...) {
			granted += int64(a.Receipts[0].Amount)
		}
	}
	closed, err := b.k.Place("rain").Close(t.Context(), true, 0)
	require.NoError(t, err)
	require.Equal(t, 1300-lost+400, closed.Close.Granted)
	require.EqualValues(t, granted, closed.Close.GrantedAmount)
	require.EqualValues(t, packets*10-granted, closed.Close.LeftAmount)
}

// Regrant is called for a packet that is not in the stock, and for a closed campaign. It returns a Conflict and
// changes nothing.
func TestGrantThatCannotComeBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.begin(t)
	g := hongbao.Grant{Campaign: "rain", User: "u1", Seq: 1, Packet: 11, Amount: 1, Time: time.Now()}
	before := b.dump(t)
	err := b.k.RestoreGrants(t.Context(), attempt, run(g))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "closed").Err())
	err = b.k.RestoreGrants(t.Context(), attempt, run(g))
	require.ErrorContains(t, err, "state closed")
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", "open").Err())
	require.Empty(t, differ(before, b.dump(t)))
	g.Seq = 3
	require.ErrorIs(t, b.k.RestoreGrants(t.Context(), attempt, run(g)), store.ErrAttemptOver)
}

// A process has sent its evidence to a restore attempt. Then it gets an answer of an earlier epoch, as from an old
// primary. It does not return that answer to the user.
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
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err()) // an old primary is not frozen
	testkit.Eventually(t, 10*time.Second, func() bool {                          // until frozenFor is over
		_, err = b.k.Place("rain").Grab(t.Context(), call("rain", "u2/r2"), nil)
		return err != nil
	}, "it is not returned")
	require.ErrorIs(t, err, store.ErrStale)
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "epoch", attempt.Epoch).Err())
	require.Len(t, b.grab(t, "rain", "u2/r2")[0].Receipts, 1, "the opening")
}

// A process whose line is too old or missing writes it again before it answers a user.
func TestAnswerNeedsARegistration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	registration := func() string {
		registrations, err := b.rdb.HVals(t.Context(), b.k.Keys.Witnesses()).Result()
		require.NoError(t, err)
		require.Len(t, registrations, 1)
		return registrations[0]
	}
	first := registration()
	b.grab(t, "rain", "u2/r2")
	require.Equal(t, first, registration(), "a young line does")
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Witnesses()).Err())
	store.AgeRegistration(b.k, stream.WitnessAge)
	b.grab(t, "rain", "u3/r3")
	require.NotEmpty(t, registration(), "it is written again")
}

// A watch writes no line while its process has answered no user. The first answer writes the line, and Leave removes
// it.
func TestRegistrationOfOnesThatAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	registrations := func() int64 { return b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val() }
	require.NoError(t, store.CheckOnce(t.Context(), b.k))
	require.Zero(t, registrations())
	b.grab(t, "rain", "u1/r1")
	require.EqualValues(t, 1, registrations())
	require.NoError(t, b.store.Leave(t.Context()))
	require.Zero(t, registrations())
	require.NoError(t, store.CheckOnce(t.Context(), b.k))
	require.Zero(t, registrations())
	b.grab(t, "rain", "u2/r2")
	require.EqualValues(t, 1, registrations(), "a later answer writes the line again")
}

// A producer is closed while the shard is frozen. Its line stays, because it may have reported grants that Redis has
// lost.
func TestRegistrationStaysOnAFrozenShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	b.freeze(t)
	require.ErrorIs(t, b.store.Leave(t.Context()), store.ErrFrozen)
	require.EqualValues(t, 1, b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val())
}

// Two producers of a process share one line. The line is removed when both are closed.
func TestRegistrationOfTwoProducers(t *testing.T) {
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

// Redis' clock was ahead when a process wrote its line. On an open shard the next line has the right time, so that no
// recoverer waits for the process once it is gone. On a frozen shard the line stays ahead, because it is compared with
// the last write before the freeze.
func TestRegistrationAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1")
	written := func() time.Time {
		process := b.rdb.HKeys(t.Context(), b.k.Keys.Witnesses()).Val()[0]
		ahead := time.Now().Add(8 * time.Hour).UnixMilli()
		require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Witnesses(), process, fmt.Sprint(ahead, " 0")).Err())
		require.NoError(t, store.CheckOnce(t.Context(), b.k))
		lines, err := b.k.Witnesses(t.Context())
		require.NoError(t, err)
		require.Len(t, lines, 1)
		return lines[0].At
	}
	require.WithinDuration(t, time.Now(), written(), time.Minute)
	b.freeze(t)
	require.WithinDuration(t, time.Now().Add(8*time.Hour), written(), time.Minute)
}

// The line of a dead process is old. On a frozen shard it stays, because a recoverer may wait for it. On an open
// shard it is removed.
func TestOldRegistrations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	registrations := func() int64 { return b.rdb.HLen(t.Context(), b.k.Keys.Witnesses()).Val() }
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Witnesses(), "dead", "1700000000000 0").Err())
	b.freeze(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	require.EqualValues(t, 2, registrations())
	require.NoError(t, b.rdb.HDel(t.Context(), b.k.Keys.Meta(), "frozen").Err())
	other, err := store.New(store.Config{Redis: b.rdb.WithTimeout(time.Minute), Space: b.store.Space()})
	require.NoError(t, err)
	require.NoError(t, store.WitnessOf(t.Context(), other.Shard(0)))
	require.EqualValues(t, 2, registrations(), "the two that live")
}

// A witness sends evidence after the recoverer has read it. The shard does not open until the recoverer has read the
// new evidence.
func TestNoOpeningWithoutAllEvidence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.begin(t)
	z, err := b.k.Freeze(t.Context())
	require.NoError(t, err)
	e, err := b.k.Evidence(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.SendEvidence(t.Context(), b.k, attempt.Epoch))
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

// An opening has skipped grants that this process had reported to users, but had not sent as evidence. The process
// notices that, even if it has seen later events.
func TestToldAndPassedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	b.grab(t, "rain", "u1/r1", "u2/r2")
	b.grab(t, "rain", "u3/r3")
	for _, c := range []struct {
		skipped     string
		epoch, want int64
	}{
		{"2-3@2", 2, 3},
		{"2-2@2", 2, 3}, // above the range, and of an earlier epoch
		{"1-1@2,4-9@2", 2, 1},
		{"1-1@2*,4-9@2*", 2, 0},
		{"2-2@2*", 2, 0},
		{"4-9@2", 2, 0},
		{"2-2@1", 2, 0},              // the events are of this epoch
		{"2-2@3", 2, 0},              // by an attempt that has not opened the shard
		{"1-2@2*,3-9@3", 3, 0},       // lost by the first opening, which was accepted
		{"4-9@2,10-12@3", 3, 0},      // no opening lost them
		{"1-1@2,3-3@2,4-9@3*", 3, 3}, // event 2 was put back
	} {
		require.Equal(t, c.want, store.LateOf(b.k, c.epoch, c.skipped), c.skipped)
	}
	b.begin(t)
	require.NoError(t, store.WitnessOf(t.Context(), b.k))
	require.Zero(t, store.LateOf(b.k, 2, "2-2@2"), "its evidence was used")
}

// Mark sets the done bits of events, except events in open claims.
func TestMarkLeavesClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 100)
	c := claimCall("c1", "w1")
	c.Events = []stream.SeqRange{{First: 5, Last: 6}}
	_, err := b.k.Claim(t.Context(), c)
	require.NoError(t, err)
	c = claimCall("c2", "w1") // one range before the marked events, one at their end
	c.Events = []stream.SeqRange{{First: 1, Last: 1}, {First: 39, Last: 45}}
	_, err = b.k.Claim(t.Context(), c)
	require.NoError(t, err)
	b.begin(t)
	marked := stream.OfCampaign("", stream.SeqRange{First: 3, Last: 40}, stream.SeqRange{First: 50, Last: 50})
	require.NoError(t, b.k.SetDone(t.Context(), attempt, "kafka", "kafka", marked))
	n, err := b.rdb.BitCount(t.Context(), b.k.Keys.Done("kafka", 0), nil).Result()
	require.NoError(t, err)
	require.EqualValues(t, 35, n)
	for _, seq := range []int64{1, 5, 6, 39, 40} {
		set, err := b.rdb.GetBit(t.Context(), b.k.Keys.Done("kafka", 0), seq).Result()
		require.NoError(t, err)
		require.Zero(t, set)
	}
}

// A process has seen an opening that Redis then loses, and no event after it. The next opening skips more. The process
// misses nothing: the seq that it has seen is the last one that the lost opening skipped.
func TestNothingIsLateAfterAnOpeningThatRedisLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", 65535, "epoch", 2, "skipped", "4-65535@2").Err())
	require.NoError(t, store.SawOpening(t.Context(), b.k))
	const next = "4-196607@3"
	require.Zero(t, store.LateOf(b.k, 3, next))
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", 65536).Err())
	require.NoError(t, store.SawOpening(t.Context(), b.k))
	require.EqualValues(t, 65536, store.LateOf(b.k, 3, next), "an event of the lost opening")
}
