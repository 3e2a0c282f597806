package winners

import (
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

// SoldOutCache is what a producer knows about a campaign without packets left. CertainlySoldOut and Renew are safe for
// concurrent use with all methods. Callers of the other methods must hold the lock of the campaign's walk.Memory.
type SoldOutCache struct {
	filter   *Filter
	revision string    // the campaign's revision in the last answer that counted
	ended    time.Time // time of the last End; answers to earlier calls do not count
	proof    atomic.Pointer[proof]
	renewed  atomic.Int64 // when Renew last chose a grab, in ns since start
}

// proof shows that no packets were left at a time. It is valid for walk.Lease.
type proof struct {
	filter *Filter
	since  time.Time // time before the call whose answer is the proof
}

func (p *proof) valid(now time.Time) bool { return p != nil && now.Before(p.since.Add(walk.Lease)) }

// PlaceAnswer is a place's answer to a grab.
type PlaceAnswer struct {
	Outcome    hongbao.Outcome
	Revision   string    // the campaign's revision when the script decided
	Generation int64     // the newest generation in Revision
	Asked      time.Time // time before the call
}

// start is the origin of SoldOutCache.renewed. Differences to it use the monotonic clock, so the wall clock may be set
// back.
var start = time.Now()

// renewAfter is the minimum time between two grabs that are sent to renew the proof.
const renewAfter = 25 * time.Millisecond

// CertainlySoldOut reports whether it is certain that no packets are left and that the user has none. The answer to the
// user's grab is then sold_out.
func (k *SoldOutCache) CertainlySoldOut(user string, now time.Time) bool {
	p := k.proof.Load()
	return p.valid(now) && !p.filter.Has(user)
}

// Renew reports whether the caller should send a late user's grab to Redis although the answer is known. The script's
// answer renews the proof before it expires. That happens at intervals in the last half of the lease.
func (k *SoldOutCache) Renew(now time.Time) bool {
	if p := k.proof.Load(); p == nil || now.Sub(p.since) < walk.Lease/2 {
		return false
	}
	last, at := k.renewed.Load(), int64(now.Sub(start))
	return at-last >= int64(renewAfter) && k.renewed.CompareAndSwap(last, at)
}

// Use sets the fetched filter. It takes effect when answers from Redis show that its revision is the current one.
func (k *SoldOutCache) Use(f *Filter) { k.filter = f }

// Wants reports whether the producer lacks a filter of the revision.
func (k *SoldOutCache) Wants(revision string) bool {
	return k.filter == nil || k.filter.revision != revision
}

// End discards the proof. Answers to calls that were sent before now can't restore it.
func (k *SoldOutCache) End(now time.Time) {
	k.ended = now
	k.proof.Store(nil)
}

// Answered processes a place's answer, which m must already have. The first proof needs sold_out answers of all
// places within a lease. Afterwards the answer of any place renews the proof, because a generation is announced on
// every place before it is dealt. An answer limit_reached also renews it, because the script checks limits only while
// the campaign is open.
func (k *SoldOutCache) Answered(m *walk.Memory, s *PlaceAnswer, now time.Time) {
	switch s.Outcome {
	case hongbao.OutcomeSoldOut, hongbao.OutcomeLimitReached:
		k.prove(m, s, now)
	case hongbao.OutcomeGranted, hongbao.OutcomeAlreadyGranted, "":
		// These can be receipts of earlier grabs, so they do not show the present state.
	default:
		k.End(now)
	}
}

func (k *SoldOutCache) prove(m *walk.Memory, s *PlaceAnswer, now time.Time) {
	if s.Generation < m.Newest() || !s.Asked.After(k.ended) {
		return
	}
	if before := k.revision; before != s.Revision { // places may differ: then each answer of another place ends the proof
		k.revision = s.Revision
		if before != "" {
			k.End(now)
			return
		}
	}
	if k.filter == nil || k.filter.revision != s.Revision {
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
