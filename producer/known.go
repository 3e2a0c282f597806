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
	// filterEvery is about how long a producer that found no filter of the winners waits before the next look. The
	// wait doubles each time, up to filterPause.
	filterEvery = time.Second
	filterPause = 8 * time.Second
	// filterTimeout bounds one look: a filter of many winners comes in many parts.
	filterTimeout = time.Minute
)

// filterLook is the state of the look for the filter of the winners; under the campaign's mu.
type filterLook struct {
	running bool
	pause   time.Duration // before the next one, after one that brought nothing
	next    time.Time
	warned  bool // a warning says why there is no filter
}

// remember notes what a call has shown of the place: that no packet is left, up to which generation, and whether the
// known winners stay valid; under mu. A repeated outcome is noted once. Other answers may come without a look at the
// campaign's revision.
func (l *lane) remember(c *call) {
	now, last := time.Now(), hongbao.Outcome("")
	for i := range c.results {
		r := &c.results[i]
		if r.err != nil || r.answer.Outcome == last {
			continue
		}
		last = r.answer.Outcome
		said := winners.Said{Outcome: last, Asked: c.asked}
		if last == hongbao.OutcomeSoldOut || last == hongbao.OutcomeLimitReached {
			said.Revision, said.Generation = c.req.Terms.Revision(), c.req.Terms.Generation()
		}
		if last == hongbao.OutcomeSoldOut {
			l.memory.Emptied(l.place, c.ask.Generation, c.asked, said.Generation)
		}
		l.known.Answered(l.memory, &said, now)
	}
}

// decided returns the next step of a grab that the script has answered; under mu. If no packet is left here and the
// user certainly lost, the grab need not go on.
func (l *lane) decided(c *call, w *waiter, now time.Time, a *hongbao.Answer) walk.Verdict {
	soldOut := a.Outcome == hongbao.OutcomeSoldOut
	verdict := w.walk.Decided(l.memory, now, a)
	if !soldOut {
		return verdict
	}
	if verdict == walk.Onward && l.known.Late(w.grab.User, now) {
		return walk.Told
	}
	l.lookForFilter(c.req.Terms, now)
	return verdict
}

// lookForFilter fetches the filter of the winners in the background once nothing is left anywhere; under mu, and a
// loop runs, so Close still waits.
func (l *lane) lookForFilter(terms *store.Terms, now time.Time) {
	c, revision := l.campaign, terms.Revision()
	if c.filter.running || now.Before(c.filter.next) || terms.Generation() < c.memory.Newest() || !c.known.Wants(revision) ||
		!c.memory.Final(now, time.Time{}) {
		return
	}
	c.filter.running = true
	c.p.watches.Go(func() { c.fetchFilter(revision) })
}

// fetchFilter fetches the filter of a revision, or asks the workers for it.
func (c *campaign) fetchFilter(revision string) {
	ctx, cancel := context.WithTimeout(c.p.ctx, filterTimeout)
	defer cancel()
	f, err := winners.Fetch(ctx, c.lanes[0].shard, c.id, revision)
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
		c.p.log.Warn("this campaign's losers are looked up in Redis until there is a filter of its winners; it is tried again",
			zap.String("campaign", c.id), zap.Error(err))
	}
}
