package producer

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/walk"
)

// Grab asks for a packet and returns the answer. If g has no request id and the campaign gives each user one packet,
// Grab generates a request id and writes it into g, so that the caller can retry g after an error.
//
// If ctx ends while the grab is in flight, the error is Unknown: the grab may still be granted, and a retry with the
// same request id gets the answer.
func (p *Producer) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	if err := g.Check(); err != nil {
		return hongbao.Answer{}, err
	}
	c, err := p.campaign(ctx, g.Campaign)
	if c == nil {
		return withoutCampaign(err)
	}
	info, err := c.check(g)
	if err != nil {
		return hongbao.Answer{}, err
	}
	sold, now, renew := c.tooLate(g.User, info)
	if sold {
		return hongbao.Answer{Outcome: hongbao.OutcomeSoldOut, Time: now}, nil
	}
	w := c.newWaiter(g, info, now)
	if renew {
		w.walk.Renew()
	}
	if err := c.queue(w, now); err != nil {
		return hongbao.Answer{}, err
	}
	return c.wait(ctx, w)
}

// sendLoop makes calls, one after the other, for the grabs that wait at a place. After each call it answers grabs, or
// queues them at their next place. It ends when it has no grabs, or too few for a further parallel call.
func (l *lane) sendLoop() {
	c := l.newCall()
	for l.next(c) {
		c.send()
		l.judge(c)
		if again := l.answer(c); len(again) > 0 {
			pause := undecidedPause()
			if l.waitAgain(again, pause) {
				retry.Pause(l.p.ctx, pause)
			}
		}
	}
}

// undecidedPause returns how long a place waits for its next call after an undecided outcome.
func undecidedPause() time.Duration { return 20*time.Millisecond + rand.N(80*time.Millisecond) }

// waiter is a grab whose caller waits for the answer.
type waiter struct {
	grab    hongbao.Grab // a copy with its own Facts: a caller that has left may change the original
	info    *info        // the settings with which check validated the grab
	walk    walk.Walk    // over the campaign's places; guarded by the campaign's mu once queued
	lane    *lane        // where the grab waits or waited last; guarded by the campaign's mu
	sent    bool         // the grab is in a call or answered; guarded by the campaign's mu
	left    bool         // the caller has left; guarded by the campaign's mu
	until   time.Time    // when the caller gets the undecided outcome; zero without one
	expires time.Time    // when the grab no longer waits for a call
	doubt   error        // of a call that may have been carried out, and whose last try was undecided
	answer  hongbao.Answer
	err     error
	done    chan struct{}
}

var waiters = sync.Pool{New: func() any {
	return &waiter{done: make(chan struct{}, 1), grab: hongbao.Grab{Facts: map[string]string{}}}
}}

// check rejects a grab that can't be decided in its campaign, and generates a missing request id where that is
// allowed. It returns the settings that it used.
func (c *campaign) check(g *hongbao.Grab) (*info, error) {
	info := c.lanes[0].info()
	if g.RequestID == "" {
		if info.PerUser > 1 {
			return nil, hongbao.Errorf(hongbao.ClassPermanent,
				"grab in campaign %s without a request id: a user may get %d packets there, so each grab needs its own request id "+
					"to distinguish a repeat from a new grab", g.Campaign, info.PerUser)
		}
		g.RequestID = newRequestID()
	}
	for _, name := range info.facts {
		value, ok := g.Facts[name]
		if !ok {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s without the fact %q: its limits count by %s",
				g.Campaign, name, info.FactNames)
		}
		if err := hongbao.CheckID(value); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s, fact %q, value %.80q: %w", g.Campaign, name,
				value, err)
		}
	}
	return info, nil
}

// tooLate reports whether the grab can be answered sold_out without Redis, because the user certainly lost. If renew
// is true, the grab goes to Redis and should ask the script at its first place, which renews that knowledge.
func (c *campaign) tooLate(user string, i *info) (sold bool, now time.Time, renew bool) {
	now = time.Now()
	if !c.known.CertainlySoldOut(user, now) || !now.Before(i.Ends) || c.p.closed.Load() {
		return false, now, false
	}
	renew = c.known.Renew(now)
	return !renew, now, renew
}

// newWaiter returns a waiter for the grab. It copies only the facts by which the campaign's limits count, because a
// caller that has left may change the map.
func (c *campaign) newWaiter(g *hongbao.Grab, i *info, now time.Time) *waiter {
	w := waiters.Get().(*waiter) //nolint:forcetypeassert // the pool holds nothing else
	facts := w.grab.Facts
	if w.info != i { // with the same settings, the loop below overwrites all facts
		clear(facts)
	}
	*w = waiter{grab: *g, info: i, done: w.done, walk: w.walk, expires: now.Add(c.p.cfg.QueueTimeout)}
	w.grab.Facts = facts
	w.walk.Begin(c.course, g.User, g.RequestID)
	for _, name := range i.facts {
		facts[name] = g.Facts[name]
	}
	return w
}

// startLoop starts a send loop if grabs wait and a further call pays off. The caller holds mu, and prevents Close from
// finishing.
func (l *lane) startLoop() {
	if len(l.waiting) > l.left && l.loops < l.p.cfg.InFlight && l.worthAnotherLoop(l.loops+1) {
		l.loops++
		l.p.sending.Go(l.sendLoop)
	}
}

// grabsWorthALoop is how many grabs must wait before a further call pays off.
const grabsWorthALoop = 8

// worthAnotherLoop reports whether this many send loops are better than one fewer. The caller holds mu.
//
// Redis needs little more time for ten grabs than for one. So a few waiting grabs, as in each process of a large
// fleet, go together in the next call. If a call waits for a disk or a replica, that wait dominates, so parallel calls
// always pay off, and so they do if a call takes long. A place with an undecided outcome gets only one loop.
func (l *lane) worthAnotherLoop(loops int) bool {
	return loops == 1 || !l.undecided &&
		(l.slow || l.info().Durability != hongbao.DurabilityFast || len(l.waiting)-l.left >= (loops-1)*grabsWorthALoop)
}

// share returns how many of the waiting grabs the next call takes. If a further call pays off, it leaves half of them
// for that call: then Redis works on one call while the callers of the other call come back.
func share(waiting, calls, most int) int {
	if half := waiting / 2; calls+1 < most && half >= (calls+1)*grabsWorthALoop {
		return waiting - half
	}
	return waiting
}

// next fills the call with waiting grabs that have the same ask, up to the limit of the script. It returns false if no
// grab waits or if too few wait for a further call. The loop then ends.
func (l *lane) next(c *call) bool {
	// The callers that were just answered may come back with their next grab. Let them queue first, so that the next
	// call is not made for only a few of them.
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	c.begin()
	n, kept, now := 0, 0, time.Now()
	most := c.info.most()
	if waiting := len(l.waiting) - l.left; waiting > 0 && !l.undecided {
		most = min(most, share(waiting, l.calls, l.p.cfg.InFlight))
	}
	for take := l.worthAnotherLoop(l.loops); take && n < len(l.waiting) && len(c.batch) < most; n++ {
		w := l.waiting[n]
		switch {
		case w.left:
			l.left--
		case w.info.FactNames != c.info.FactNames:
			w.err = hongbao.Outagef(hongbao.ClassTransient, "grab in campaign %s: it was replaced, its limits now count by %q; "+
				"nothing happened, try again", l.id, c.info.FactNames)
			w.sent = true
			w.done <- struct{}{}
		case c.takes(w.walk.Ask(l.memory, now)):
			w.sent = true
			c.add(w)
		default: // another call must take it; it keeps its position
			l.waiting[kept] = w
			kept++
		}
	}
	l.waiting = slices.Delete(l.waiting, kept, n)
	if len(c.batch) > 0 {
		l.calls++
		l.startLoop()
		return true
	}
	l.loops--
	l.used = time.Now()
	return false
}

// judge decides how each grab of a call continues. It queues a grab that must ask another place there.
func (l *lane) judge(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.calls--
	l.undecided = false
	l.noteOutage(c)
	l.remember(c)
	for i, w := range c.batch {
		r := &c.results[i]
		if r.err != nil {
			continue
		}
		if c.ask.Receipts {
			r.step = w.walk.Read(l.memory, now, &r.answer)
		} else {
			r.step = l.decided(c, w, now, &r.answer)
		}
		if r.step == walk.Undecided {
			l.undecided, w.doubt = true, cmp.Or(w.doubt, c.doubt)
		}
		if r.step == walk.Onward && !w.left { // nobody waits for it; the caller can retry the grab
			w.answer = hongbao.Answer{}
			l.lanes[w.walk.Place()].put(w, now)
		}
	}
}

// answer answers the callers of a call. It returns the grabs with an undecided outcome, whose callers have to wait.
func (l *lane) answer(c *call) (again []*waiter) {
	for i, w := range c.batch {
		r := &c.results[i]
		if r.step == walk.Onward { // queued at another place; its lane may have it in a call
			continue
		}
		w.answer, w.err = r.answer, r.err
		if len(w.answer.Receipts) > 0 {
			w.answer.Currency = c.info.Currency
		}
		if r.step == walk.Undecided && l.p.cfg.UndecidedTimeout > 0 {
			again = append(again, w)
			continue
		}
		w.resolve()
		w.done <- struct{}{}
	}
	return again
}

// waitAgain queues the undecided grabs again, and answers the grabs whose time is up. It reports whether all waiting
// grabs are undecided; the next call can then wait too.
//
// A frozen shard would answer frozen to all waiting grabs, so waitAgain gives them all this outcome. A busy shard
// still returns receipts and refusals, so a grab that was not yet sent keeps its turn.
func (l *lane) waitAgain(again []*waiter, pause time.Duration) (allUndecided bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, outcome := time.Now(), again[0].answer.Outcome
	for _, w := range again {
		if !w.left {
			w.sent = false
			l.waiting = append(l.waiting, w)
		}
	}
	l.watch()
	allUndecided = true
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		// The caller of a waiter that has left reads its answer without the lock, so do not write it.
		if !w.left && w.answer.Outcome == "" && outcome == hongbao.OutcomeFrozen {
			w.answer = hongbao.Answer{Outcome: outcome, Time: now}
		}
		if w.left || w.answer.Outcome == "" {
			allUndecided = allUndecided && w.left
			return false
		}
		if w.until.IsZero() {
			w.until, w.expires = now.Add(l.p.cfg.UndecidedTimeout), w.expires.Add(l.p.cfg.UndecidedTimeout)
		}
		if next := now.Add(pause); next.Before(w.until) && next.Before(w.expires) {
			return false
		}
		l.turnAway(w, nil)
		return true
	})
	return allUndecided
}

// wait waits until the grab is answered, ctx ends, or Close cancels all grabs.
func (c *campaign) wait(ctx context.Context, w *waiter) (hongbao.Answer, error) {
	select {
	case <-w.done:
		return w.end()
	case <-ctx.Done():
	case <-c.p.ctx.Done():
	}
	select {
	case <-w.done: // both at once
		return w.end()
	default:
	}
	ended := ctx.Err()
	if ended == nil {
		ended = c.p.ctx.Err()
	}
	switch sent := c.leave(w); {
	case sent: // the grab is still in a call, or was just answered
		select {
		case <-w.done:
			return w.end()
		default:
		}
		return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown,
			"grab in campaign %s, request id %s: no answer yet (it may be granted; repeat it with the same request id): %w",
			c.id, w.grab.RequestID, ended)
	case w.answer.Outcome != "":
		w.resolve()
		return w.answer, w.err
	}
	return hongbao.Answer{}, doubted(hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s, request id %s: it still "+
		"waited in the queue; this try did nothing: %w", c.id, w.grab.RequestID, ended), w.doubt)
}

// end puts w back into the pool and returns its answer.
func (w *waiter) end() (hongbao.Answer, error) {
	answer, err := w.answer, w.err
	waiters.Put(w)
	return answer, err
}

// newRequestID generates a request id of 36 random bits, enough to distinguish the grabs of one user in one campaign.
func newRequestID() string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._"
	var id [6]byte
	bits := rand.Uint64()
	for i := range id {
		id[i] = letters[bits&63]
		bits >>= 6
	}
	return string(id[:])
}
