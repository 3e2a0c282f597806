package winners_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

// producer is the state of a producer about a campaign on two places. User w has a packet.
type producer struct {
	winners.SoldOutCache
	memory *walk.Memory
	start  time.Time
}

func (p *producer) at(ms int) time.Time { return p.start.Add(time.Duration(ms) * time.Millisecond) }

// late returns CertainlySoldOut for user l, who has no packet. It checks that it is false for winner w.
func (p *producer) late(t *testing.T, ms int) bool {
	t.Helper()
	require.False(t, p.CertainlySoldOut("w", p.at(ms)))
	return p.CertainlySoldOut("l", p.at(ms))
}

// soldOut records a sold_out answer of a place. asked and judged are the times of the call and of Answered, in ms.
func (p *producer) soldOut(place int, revision string, generation int64, asked, judged int) {
	p.memory.Emptied(place, generation, p.at(asked), generation)
	p.Answered(p.memory, &winners.PlaceAnswer{Outcome: hongbao.OutcomeSoldOut, Revision: revision, Generation: generation,
		Asked: p.at(asked)}, p.at(judged))
}

func (p *producer) answered(outcome hongbao.Outcome, asked, judged int) {
	p.Answered(p.memory, &winners.PlaceAnswer{Outcome: outcome, Revision: "h", Generation: 1, Asked: p.at(asked)}, p.at(judged))
}

func newProducer(t *testing.T) *producer {
	t.Helper()
	p := &producer{memory: walk.NewMemory(2), start: time.Now().Add(time.Second)}
	p.use(t, "h")
	p.soldOut(0, "h", 1, 0, 1)
	require.False(t, p.late(t, 2), "one place has not answered")
	p.soldOut(1, "h", 1, 1, 2)
	require.True(t, p.late(t, 2))
	return p
}

func (p *producer) use(t *testing.T, revision string) {
	t.Helper()
	f, err := winners.New(revision, []string{"w"})
	require.NoError(t, err)
	p.Use(f)
	require.False(t, f.Has("l"), "by chance: take another user")
}

// A proof is valid for one lease. The answer of any place with the same revision renews it.
func TestKnownLastsALease(t *testing.T) {
	t.Parallel()
	p := newProducer(t)
	require.True(t, p.late(t, 250))
	require.False(t, p.late(t, 251))
	require.False(t, p.Renew(p.at(100)), "the first half")
	require.True(t, p.Renew(p.at(130)))
	require.False(t, p.Renew(p.at(140)), "one is under way")
	require.True(t, p.Renew(p.at(155)))
	p.soldOut(0, "h", 1, 160, 165)
	p.soldOut(1, "h", 1, 150, 166) // an earlier call than the proof's
	require.True(t, p.late(t, 409))
	require.False(t, p.late(t, 410))
	p.answered(hongbao.OutcomeGranted, 400, 401) // no proof
	p.answered(hongbao.OutcomeLimitReached, 402, 403)
	require.True(t, p.late(t, 651))
	require.False(t, p.late(t, 652))
	p.answered(hongbao.OutcomeLimitReached, 700, 701)
	require.False(t, p.late(t, 702), "limit_reached can't be the first proof")
}

// A place answers something other than sold_out, such as paused. The proof ends, and answers to earlier calls do not
// restore it. Every place must answer sold_out again.
func TestKnownEnds(t *testing.T) {
	t.Parallel()
	for _, outcome := range []hongbao.Outcome{hongbao.OutcomePaused, hongbao.OutcomeEnded, hongbao.OutcomeFrozen,
		hongbao.OutcomeRefilling} {
		p := newProducer(t)
		p.answered(outcome, 10, 20)
		require.False(t, p.late(t, 21))
		p.soldOut(0, "h", 1, 15, 100)
		p.soldOut(1, "h", 1, 20, 101)
		require.False(t, p.late(t, 102), "asked before %s was answered", outcome)
		p.soldOut(0, "h", 1, 110, 111)
		require.False(t, p.late(t, 112), "place 1 has not answered since %s was answered", outcome)
		p.soldOut(1, "h", 1, 112, 113)
		require.True(t, p.late(t, 114))
	}
}

// One place gets another revision, as after the grant of a withheld packet, and the other keeps its revision. The filter
// lacks a winner on the first place, so it is never used again, however often it is fetched.
func TestKnownOfPlacesThatDiffer(t *testing.T) {
	t.Parallel()
	p := newProducer(t)
	for ms := 10; ms < 2000; ms += 10 {
		p.soldOut(1, "h.r5", 1, ms, ms+1)
		p.soldOut(1, "h.r5", 1, ms+2, ms+2)
		require.False(t, p.late(t, ms+2))
		if p.Wants("h") {
			p.use(t, "h")
		}
		p.soldOut(0, "h", 1, ms+3, ms+4)
		require.False(t, p.late(t, ms+5), "at %d ms", ms)
		p.soldOut(0, "h", 1, ms+6, ms+7)
		require.False(t, p.late(t, ms+8), "at %d ms", ms)
	}
	require.True(t, p.Wants("h.r5"))
	p.use(t, "h.r5") // a top-up or a restore has given both places one revision
	p.soldOut(0, "h.r5", 1, 2010, 2011)
	p.soldOut(0, "h.r5", 1, 2012, 2013)
	require.False(t, p.late(t, 2014))
	p.soldOut(1, "h.r5", 1, 2015, 2016)
	require.True(t, p.late(t, 2017))
}

// A top-up is announced. The filter of the older revision is no longer used, and a filter of the new revision needs a
// new proof.
func TestKnownOfAnOlderRevision(t *testing.T) {
	t.Parallel()
	p := newProducer(t)
	require.False(t, p.Wants("h"))
	p.soldOut(0, "h.2", 2, 10, 11)
	require.False(t, p.late(t, 12))
	require.True(t, p.Wants("h.2"))
	p.soldOut(1, "h", 1, 13, 14)
	require.False(t, p.late(t, 15))
	p.use(t, "h.2")
	p.soldOut(0, "h.2", 2, 20, 21)
	require.False(t, p.late(t, 22), "place 1 may have packets of generation 2 left")
	p.soldOut(1, "h.2", 2, 23, 24)
	require.True(t, p.late(t, 25))
}
