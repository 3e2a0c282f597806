package walk_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

var t0 = time.UnixMilli(1_800_000_000_000)

// path runs a walk without Redis: the test supplies the answers, and path records the questions.
type path struct {
	t      *testing.T
	w      walk.Walk
	m      *walk.Memory
	now    time.Time
	places int
	calls  []walk.Ask
}

func begin(t *testing.T, places int, hold int64) *path {
	p := &path{t: t, m: walk.NewMemory(places), now: t0, places: places}
	p.w.Begin(walk.NewCourse("rain", places, hold), "u1", "r1")
	return p
}

func (p *path) ask() walk.Ask {
	a := p.w.Ask(p.m, p.now)
	p.calls = append(p.calls, a)
	return a
}

// decided passes a to the walk as the answer of the current place's script. revision is the newest generation that the
// place has announced.
func (p *path) decided(revision int64, a *hongbao.Answer) walk.NextStep {
	p.t.Helper()
	ask := p.ask()
	require.False(p.t, ask.Receipts, "it asks for receipts")
	if a.Outcome == hongbao.OutcomeSoldOut {
		p.m.Emptied(ask.Place, ask.Generation, p.now, revision)
	}
	return p.w.Decided(p.m, p.now, a)
}

// read passes the user's receipts on the current place to the walk, which must have asked for them.
func (p *path) read(receipts ...hongbao.Receipt) (hongbao.Answer, walk.NextStep) {
	p.t.Helper()
	require.True(p.t, p.ask().Receipts, "it asks for packets")
	a := hongbao.Answer{Receipts: receipts, Time: p.now}
	v := p.w.Read(p.m, p.now, &a)
	return a, v
}

func outcome(o hongbao.Outcome, receipts ...hongbao.Receipt) *hongbao.Answer {
	return &hongbao.Answer{Outcome: o, Receipts: receipts, Time: t0}
}

func receipt(request string, at time.Duration) hongbao.Receipt {
	return hongbao.Receipt{Packet: 7, RequestID: request, Time: t0.Add(at)}
}

// The order of places is fixed by data in Redis. If a build used another order, users could get more packets than their
// limit.
func TestOrder(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1", walk.Version)
	for user, want := range map[string][]int{"u1": {4, 0, 1, 2, 3}, "u2": {4, 2, 1, 3, 0}, "10001": {0, 2, 4, 1, 3}} {
		require.Equal(t, want, places(t, "rain", user, 5), user)
	}
	users := map[int]int{}
	second := map[[2]int]int{}
	for i := range 8000 {
		order := places(t, "rain", fmt.Sprint("u", i), 8)
		users[order[0]]++
		second[[2]int{order[0], order[1]}]++
		sorted := slices.Sorted(slices.Values(order))
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, sorted)
	}
	for place, n := range users {
		require.InDelta(t, 1000, n, 150, "users at home at place %d", place)
	}
	require.Len(t, second, 8*7)
	for way, n := range second {
		require.InDelta(t, 8000/56, n, 60, "users who continue from place %d to %d", way[0], way[1])
	}
}

// places returns a user's order of places: it runs a walk that finds every place empty.
func places(t *testing.T, campaign, user string, n int) []int {
	t.Helper()
	var w walk.Walk
	m := walk.NewMemory(n)
	w.Begin(walk.NewCourse(campaign, n, 1), user, "r")
	var out []int
	for range n {
		out = append(out, w.Ask(m, t0).Place)
		w.Decided(m, t0, outcome(hongbao.OutcomeSoldOut))
	}
	return out
}

// A walk visits all places of a generation before it visits the next generation. It answers sold_out after the last
// place.
func TestPastAllPlaces(t *testing.T) {
	t.Parallel()
	p := begin(t, 3, 1)
	for i := range 6 {
		require.Equal(t, int64(1+i/3), p.w.Ask(p.m, p.now).Generation)
		a := outcome(hongbao.OutcomeSoldOut)
		revision := int64(1)
		if i >= 1 {
			revision = 2 // announced while the walk was running
		}
		v := p.decided(revision, a)
		if i < 5 {
			require.Equal(t, walk.Onward, v, i)
		} else {
			require.Equal(t, walk.Answered, v)
			require.Equal(t, hongbao.OutcomeSoldOut, a.Outcome)
		}
	}
	require.Equal(t, p.calls[0].Place, p.calls[3].Place)
	require.Equal(t, p.calls[2].Place, p.calls[5].Place)
}

// With one place, the first answer decides the grab, unless its outcome is not final.
func TestOnePlace(t *testing.T) {
	t.Parallel()
	for _, o := range hongbao.Outcomes() {
		p := begin(t, 1, 2)
		a := outcome(o)
		v := p.decided(1, a)
		require.Equal(t, o.Final(), v == walk.Answered, o)
		require.Equal(t, o, a.Outcome)
		require.Equal(t, walk.Ask{Generation: 1}, p.calls[0])
		require.NotEqual(t, walk.Onward, v)
	}
}

// Held returns the times of the user's packets on other places. It leaves out those of the current place, because the
// script there knows them.
func TestHeldGoesAlong(t *testing.T) {
	t.Parallel()
	p := begin(t, 2, 3)
	require.Empty(t, p.w.PassedReceipts())
	require.Equal(t, walk.Onward, p.decided(2, outcome(hongbao.OutcomeSoldOut, receipt("a", 0))))
	require.Equal(t, []time.Time{t0}, p.w.PassedReceipts())
	require.Equal(t, walk.Onward, p.decided(2, outcome(hongbao.OutcomeSoldOut, receipt("b", 1), receipt("c", 2))))
	require.Equal(t, []time.Time{t0.Add(1), t0.Add(2)}, p.w.PassedReceipts(), "back at the first place, in the next generation")
	more := outcome(hongbao.OutcomeSoldOut, receipt("a", 0), receipt("d", 3))
	require.Equal(t, walk.Onward, p.decided(2, more))
	require.Equal(t, []time.Time{t0, t0.Add(3)}, p.w.PassedReceipts())
	require.Empty(t, more.Receipts, "receipts are not part of a sold_out answer")
}

// If a place refuses, the walk reads the receipts on all other places first. A receipt of the same request becomes the
// answer.
func TestRefusalHidesNoReceipt(t *testing.T) {
	t.Parallel()
	for _, o := range []hongbao.Outcome{hongbao.OutcomeLimitReached, hongbao.OutcomePaused, hongbao.OutcomeEnded} {
		for _, hold := range []int64{1, 2} {
			p := begin(t, 3, hold)
			require.Equal(t, walk.Onward, p.decided(1, outcome(o)))
			_, v := p.read()
			require.Equal(t, walk.Onward, v)
			a, v := p.read(receipt("r0", 0), receipt("r1", 1))
			require.Equal(t, walk.Answered, v)
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			require.Equal(t, []hongbao.Receipt{receipt("r1", 1)}, a.Receipts)
			require.NotEqual(t, p.calls[0].Place, p.calls[1].Place)
			require.NotEqual(t, p.calls[0].Place, p.calls[2].Place)
			require.NotEqual(t, p.calls[1].Place, p.calls[2].Place)

			p = begin(t, 3, hold)
			require.Equal(t, walk.Onward, p.decided(1, outcome(o)))
			a, v = p.read(receipt("r3", 3))
			require.Equal(t, walk.Onward, v, a)
			a, v = p.read(receipt("r2", 2))
			require.Equal(t, walk.Answered, v)
			if o == hongbao.OutcomeLimitReached {
				require.Equal(t, o, a.Outcome)
				require.Empty(t, a.Receipts)
			} else {
				require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome, "as on one shard")
				require.Equal(t, []hongbao.Receipt{receipt("r2", 2), receipt("r3", 3)}, a.Receipts)
			}
		}
	}
	p := begin(t, 2, 1)
	require.Equal(t, walk.Onward, p.decided(1, outcome(hongbao.OutcomeEnded)))
	require.True(t, p.ask().Receipts)
	frozen := outcome(hongbao.OutcomeFrozen)
	require.Equal(t, walk.Undecided, p.w.Read(p.m, p.now, frozen), "a place that may have lost receipts proves nothing")
	a, v := p.read()
	require.Equal(t, walk.Answered, v)
	require.Equal(t, hongbao.OutcomeEnded, a.Outcome)
}

// A place that is not loaded yet, or that has lost the campaign, does not refuse users who come from another place. The
// walk asks it again.
func TestBehindTheFirstPlace(t *testing.T) {
	t.Parallel()
	for from, to := range map[hongbao.Outcome]hongbao.Outcome{
		hongbao.OutcomeNotStarted: hongbao.OutcomeRefilling, hongbao.OutcomeUnknownCampaign: hongbao.OutcomeFrozen,
	} {
		p := begin(t, 2, 1)
		require.Equal(t, walk.Onward, p.decided(1, outcome(hongbao.OutcomeSoldOut)))
		a := outcome(from)
		require.Equal(t, walk.Undecided, p.decided(1, a))
		require.Equal(t, to, a.Outcome)
		require.Equal(t, p.calls[1], p.ask(), "the same place again")
	}
}

// Only place 0 can answer that a campaign is unknown, even if a user's first place is another one.
func TestUnknownAtTheHomeOnly(t *testing.T) {
	t.Parallel()
	m := walk.NewMemory(3)
	seen := map[int]bool{}
	for i := range 20 {
		var w walk.Walk
		w.Begin(walk.NewCourse("rain", 3, 1), fmt.Sprint("u", i), "r1")
		a, home := outcome(hongbao.OutcomeUnknownCampaign), w.Place() == 0
		seen[w.Place()] = true
		require.Equal(t, home, w.Decided(m, t0, a) == walk.Answered)
		require.Equal(t, home, a.Outcome == hongbao.OutcomeUnknownCampaign)
	}
	require.Len(t, seen, 3)
}

// During the lease, the walk asks only for receipts at places that it remembers as empty. If the answer comes after the
// lease, the walk calls the script there again.
func TestMemory(t *testing.T) {
	t.Parallel()
	p := begin(t, 2, 2)
	require.Equal(t, walk.Onward, p.decided(1, outcome(hongbao.OutcomeSoldOut)))
	require.Equal(t, walk.Answered, p.decided(1, outcome(hongbao.OutcomeSoldOut)))
	next := func(user string) {
		p.w.Begin(walk.NewCourse("rain", 2, 2), user, "r1")
		p.calls = nil
	}

	next("u2")
	p.now = t0.Add(walk.Lease - 1)
	_, v := p.read()
	require.Equal(t, walk.Onward, v)
	a, v := p.read()
	require.Equal(t, walk.Answered, v)
	require.Equal(t, hongbao.OutcomeSoldOut, a.Outcome)

	next("u3")
	a, v = p.read(receipt("r1", 0))
	require.Equal(t, walk.Answered, v)
	require.Equal(t, hongbao.OutcomeGranted, a.Outcome)

	next("u4")
	_, v = p.read(receipt("r0", 0))
	require.Equal(t, walk.Onward, v, "the script knows whether the user has reached a limit")
	require.Equal(t, walk.Onward, p.decided(1, outcome(hongbao.OutcomeSoldOut, receipt("r0", 0))))
	require.Len(t, p.w.PassedReceipts(), 1)

	next("u5")
	_, v = p.read()
	require.Equal(t, walk.Onward, v)
	require.True(t, p.ask().Receipts)
	p.now = t0.Add(2 * walk.Lease) // receipts are read, but the answer comes after the lease
	a = hongbao.Answer{Time: p.now}
	require.Equal(t, walk.Onward, p.w.Read(p.m, p.now, &a), "there may be a newer generation")
	require.Equal(t, walk.Onward, p.decided(2, outcome(hongbao.OutcomeSoldOut)), "there is one")
	require.Equal(t, int64(2), p.ask().Generation)
}

// At a place that is remembered as empty, a user with one packet gets its receipt.
func TestMemoryOfOnePacketEach(t *testing.T) {
	t.Parallel()
	p := begin(t, 1, 1)
	p.m.Emptied(0, 1, t0, 1)
	a, v := p.read(receipt("other", 0))
	require.Equal(t, walk.Answered, v)
	require.Equal(t, hongbao.OutcomeAlreadyGranted, a.Outcome)
	require.Equal(t, []hongbao.Receipt{receipt("other", 0)}, a.Receipts)
}
