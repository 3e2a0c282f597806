package winners

import (
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/walk"
)

// Known is what a producer knows of a campaign of which nothing is left. TooLate may be called at once with all else;
// the other methods belong to who keeps the campaign's walk.Memory, and locks it.
type Known struct {
	filter  *Filter
	certain atomic.Pointer[certain] // nil while nothing is certain
	renewed atomic.Int64            // when a grab was last sent to renew it, in ns since start
}

// certain holds for a lease. It ends by itself: nothing has to be cleared.
type certain struct {
	filter *Filter
	since  time.Time // before the question by whose answer it is known that the filter's generation is the newest one
}

func (c *certain) holds(now time.Time) bool { return now.Before(c.since.Add(walk.Lease)) }

// start is what renewed counts from: a clock that is set back does not matter.
var start = time.Now()

// renewAfter is how long after one grab was sent to renew what is known another one is, if the first one brought
// nothing.
const renewAfter = 25 * time.Millisecond

// TooLate tells whether it is certain that nothing is left and that the user holds nothing: he is sold_out. Renew is
// true for one such user now and then in the last half of the lease: he had better ask the script at his first place,
// so that what is known does not end.
func (k *Known) TooLate(user string, now time.Time) (late, renew bool) {
	c := k.certain.Load()
	if c == nil || !c.holds(now) || c.filter.Has(user) {
		return false, false
	}
	if now.Sub(c.since) < walk.Lease/2 {
		return true, false
	}
	last, at := k.renewed.Load(), int64(now.Sub(start))
	return true, at-last >= int64(renewAfter) && k.renewed.CompareAndSwap(last, at)
}

// Use takes the filter that was fetched. It is used once a script has said that its generation is the newest one.
func (k *Known) Use(f *Filter) { k.filter = f }

// Wants tells whether a filter of the revision would be of use.
func (k *Known) Wants(revision string) bool { return k.filter == nil || k.filter.revision != revision }

// End ends what is known, at once.
func (k *Known) End() { k.certain.Store(nil) }

// Answered takes what a place has said, and m has been told before that: an outcome, and the revision by which the
// script decided, asked at an instant. The first time all places must have said within a lease that nothing is left;
// afterwards what is known goes on with the answer of any one place, since every place is told of a generation before
// it is dealt.
func (k *Known) Answered(m *walk.Memory, outcome hongbao.Outcome, revision string, asked, now time.Time) {
	switch outcome {
	case hongbao.OutcomeSoldOut:
		k.soldOut(m, revision, asked, now)
	case hongbao.OutcomeGranted, hongbao.OutcomeAlreadyGranted, hongbao.OutcomeLimitReached, "":
		// They may be told of the past, and say nothing of now.
	default:
		k.End()
	}
}

func (k *Known) soldOut(m *walk.Memory, revision string, asked, now time.Time) {
	generation, err := shards.GenerationOf(revision)
	if k.filter == nil || err != nil || generation < m.Newest() {
		return
	}
	if k.filter.revision != revision {
		k.filter = nil
		k.End()
		return
	}
	c := k.certain.Load()
	if c == nil || !c.holds(now) {
		if !m.Final(now) {
			return
		}
	} else if asked.Before(c.since) {
		return
	}
	k.certain.Store(&certain{k.filter, asked})
}
