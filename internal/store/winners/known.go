package winners

import (
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

// Known is a producer's knowledge of a campaign of which nothing is left. Late and Renew are safe for concurrent use
// with all methods. The caller of the other methods owns the campaign's walk.Memory, and locks it.
type Known struct {
	filter  *Filter
	ended   time.Time // when the knowledge ended last: answers to earlier questions prove nothing
	proof   atomic.Pointer[proof]
	renewed atomic.Int64 // when a grab was last sent to renew the proof, in ns since start
}

// proof is valid for a lease. It expires by itself, so no call has to clear it.
type proof struct {
	filter *Filter
	since  time.Time // before the question whose answer showed that the filter's generation is the newest one
}

func (p *proof) valid(now time.Time) bool { return p != nil && now.Before(p.since.Add(walk.Lease)) }

// Said is a place's answer to a grab.
type Said struct {
	Outcome    hongbao.Outcome
	Revision   string    // the revision by which the script decided
	Generation int64     // the generation of Revision
	Asked      time.Time // before the question
}

// start is the zero of renewed. With it, a clock that is set back does not matter.
var start = time.Now()

// renewAfter is the pause between two grabs that are sent to renew the proof, if the first one did not renew it.
const renewAfter = 25 * time.Millisecond

// Late reports whether the user certainly lost: nothing is left, and the user has no packet. The answer is then
// sold_out.
func (k *Known) Late(user string, now time.Time) bool {
	p := k.proof.Load()
	return p.valid(now) && !p.filter.Has(user)
}

// Renew reports whether a grab should renew the proof: now and then in the last half of the lease. The grab of that
// user, who is late, then calls the script at the user's first place, so that the knowledge does not end.
func (k *Known) Renew(now time.Time) bool {
	if p := k.proof.Load(); p == nil || now.Sub(p.since) < walk.Lease/2 {
		return false
	}
	last, at := k.renewed.Load(), int64(now.Sub(start))
	return at-last >= int64(renewAfter) && k.renewed.CompareAndSwap(last, at)
}

// Use sets the fetched filter. It takes effect once a script has said that its generation is the newest one.
func (k *Known) Use(f *Filter) { k.filter = f }

// Wants reports whether a filter of the revision would be of use.
func (k *Known) Wants(revision string) bool { return k.filter == nil || k.filter.revision != revision }

// End ends the knowledge. Answers to earlier questions do not restore it.
func (k *Known) End(now time.Time) {
	k.ended = now
	k.proof.Store(nil)
}

// Answered processes a place's answer, after m has it. For the first proof, all places must have said within a lease
// that nothing is left. Afterwards the answer of any one place renews the proof, since a generation is announced on
// every place before it is dealt. The script checks limits only while the campaign is open, so an answer with a limit
// renews it too.
func (k *Known) Answered(m *walk.Memory, s *Said, now time.Time) {
	switch s.Outcome {
	case hongbao.OutcomeSoldOut, hongbao.OutcomeLimitReached:
		k.prove(m, s, now)
	case hongbao.OutcomeGranted, hongbao.OutcomeAlreadyGranted, "":
		// These answers may be about the past, and prove nothing about now.
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
	if p := k.proof.Load(); p.valid(now) {
		if !s.Asked.After(p.since) {
			return
		}
	} else if s.Outcome != hongbao.OutcomeSoldOut || !m.Final(now, k.ended) {
		return
	}
	k.proof.Store(&proof{k.filter, s.Asked})
}
