package producer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

const (
	// filterEvery is about how long a producer waits after it found no filter of the winners. The wait doubles after
	// each further failure, up to filterPause.
	filterEvery = time.Second
	filterPause = 8 * time.Second
	// filterTimeout limits the fetch of a filter, which has many parts if a campaign has many winners.
	filterTimeout = time.Minute
)

// filterSearch is the state of the search for the filter of the winners. The campaign's mu guards it.
type filterSearch struct {
	running bool
	pause   time.Duration // the wait after the last failure; 0 if the last fetch succeeded
	next    time.Time
	warned  bool // the reason for the missing filter was logged
}

// remember records what the answers of a call say about the place: whether it is empty, up to which generation, and
// whether the knowledge about losers stays valid. It records an outcome that repeats only once. The caller holds mu.
//
// The call's terms are only certain to be current for the outcomes sold_out and limit_reached.
func (l *lane) remember(c *call) {
	now, last := time.Now(), hongbao.Outcome("")
	for i := range c.results {
		r := &c.results[i]
		if r.err != nil || r.answer.Outcome == last {
			continue
		}
		last = r.answer.Outcome
		answer := winners.PlaceAnswer{Outcome: last, Asked: c.asked}
		if last == hongbao.OutcomeSoldOut || last == hongbao.OutcomeLimitReached {
			answer.Revision, answer.Generation = c.req.Terms.Revision(), c.req.Terms.Generation()
		}
		if last == hongbao.OutcomeSoldOut {
			l.memory.Emptied(l.place, c.ask.Generation, c.asked, answer.Generation)
		}
		l.known.Answered(l.memory, &answer, now)
	}
}

// decided returns how a grab continues after an answer of the script. A grab whose user certainly lost does not visit
// further places. The caller holds mu.
func (l *lane) decided(c *call, w *waiter, now time.Time, a *hongbao.Answer) walk.NextStep {
	soldOut := a.Outcome == hongbao.OutcomeSoldOut
	step := w.walk.Decided(l.memory, now, a)
	if !soldOut {
		return step
	}
	if step == walk.Onward && l.known.CertainlySoldOut(w.grab.User, now) {
		return walk.Answered
	}
	l.lookForFilter(c.req.Terms, now)
	return step
}

// lookForFilter starts to fetch the filter of the winners in the background, once all places are empty. The caller
// holds mu and is in a send loop, so Close can't miss the goroutine.
func (l *lane) lookForFilter(terms *store.LimitPeriods, now time.Time) {
	c, revision := l.campaign, terms.Revision()
	if c.filter.running || now.Before(c.filter.next) || terms.Generation() < c.memory.Newest() || !c.known.Wants(revision) ||
		!c.memory.Final(now, time.Time{}) {
		return
	}
	c.filter.running = true
	c.p.watches.Go(func() { c.fetchFilter(revision) })
}

// fetchFilter fetches the filter of a revision. If there is none, it asks the workers to build it.
func (c *campaign) fetchFilter(revision string) {
	ctx, cancel := context.WithTimeout(c.p.ctx, filterTimeout)
	defer cancel()
	f, err := winners.Fetch(ctx, c.lanes[0].shard, revision)
	if f == nil && !hongbao.IsOutage(err) {
		err = errors.Join(err, c.p.store.Campaign(c.id).WantFilter(ctx, revision))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.filter
	l.running = false
	if f != nil {
		c.known.Use(f)
		l.pause = 0
		return
	}
	l.pause = min(max(2*l.pause, filterEvery), filterPause)
	l.next = time.Now().Add(l.pause/2 + rand.N(l.pause))
	if err != nil && !l.warned && c.p.ctx.Err() == nil {
		l.warned = true
		c.p.log.Warn("losers are looked up in Redis until there is a filter of the campaign's winners; it will be retried",
			zap.String("campaign", c.id), zap.Error(err))
	}
}
