package winners

import (
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

// Known is what a producer knows of a campaign of which nothing is left. Late and Renew may be called at once with all
// else; the other methods belong to who keeps the campaign's walk.Memory, and locks it.
type Known struct {
	filter  *Filter
	ended   time.Time // when what was known ended last: what was asked before that proves nothing
	proof   atomic.Pointer[proof]
	renewed atomic.Int64 // when a grab was last sent to renew it, in ns since start
}

// proof holds for a lease. It ends by itself: nothing has to be cleared.
type proof struct {
	filter *Filter
	since  time.Time // before the question by whose answer it is known that the filter's generation is the newest one
}

func (p *proof) holds(now time.Time) bool { return p != nil && now.Before(p.since.Add(walk.Lease)) }

// Said is what a place has said of a grab.
type Said struct {
	Outcome    hongbao.Outcome
	Revision   string // by which the script decided, and its generation
	Generation int64
	Asked      time.Time // before the question
}

// start is what renewed counts from: a clock that is set back does not matter.
var start = time.Now()

// renewAfter is the pause between two grabs that are sent to renew what is known, where the first one brought nothing.
const renewAfter = 25 * time.Millisecond

// Late tells whether it is certain that nothing is left and that the user holds nothing: he is sold_out.
func (k *Known) Late(user string, now time.Time) bool {
	p := k.proof.Load()
	return p.holds(now) && !p.filter.Has(user)
}

// Renew is true for a grab now and then in the last half of the lease. Its user, who is late, had better ask the script
// at his first place, so that what is known does not end.
func (k *Known) Renew(now time.Time) bool {
	if p := k.proof.Load(); p == nil || now.Sub(p.since) < walk.Lease/2 {
		return false
	}
	last, at := k.renewed.Load(), int64(now.Sub(start))
	return at-last >= int64(renewAfter) && k.renewed.CompareAndSwap(last, at)
}

// Use takes the filter that was fetched. It is used once a script has said that its generation is the newest one.
func (k *Known) Use(f *Filter) { k.filter = f }

// Wants tells whether a filter of the revision would be of use.
func (k *Known) Wants(revision string) bool { return k.filter == nil || k.filter.revision != revision }

// End ends what is known. Answers to what was asked before do not bring it back.
func (k *Known) End(now time.Time) {
	k.ended = now
	k.proof.Store(nil)
}

// Answered takes what a place has said, and m has been told before that. The first time all places must have said
// within a lease that nothing is left; afterwards what is known goes on with the answer of any one place, since every
// place is told of a generation before it is dealt. The script knows of a limit only where the campaign is open, so
// this too is enough to go on.
func (k *Known) Answered(m *walk.Memory, s *Said, now time.Time) {
	switch s.Outcome {
	case hongbao.OutcomeSoldOut, hongbao.OutcomeLimitReached:
		k.prove(m, s, now)
	case hongbao.OutcomeGranted, hongbao.OutcomeAlreadyGranted, "":
		// They may be told of the past, and say nothing of now.
	default:
		k.End(now)
	}
}

func (k *Known) prove(m *walk.Memory, s *Said, now time.Time) {
	if k.filter == nil || s.Generation < m.Newest() || !s.Asked.After(k.ended) {
		return
	}
	if k.filter.revision != s.Revision {
		k.filter = nil
		k.End(now)
		return
	}
	if p := k.proof.Load(); p.holds(now) {
		if !s.Asked.After(p.since) {
			return
		}
	} else if s.Outcome != hongbao.OutcomeSoldOut || !m.Final(now, k.ended) {
		return
	}
	k.proof.Store(&proof{k.filter, s.Asked})
}
