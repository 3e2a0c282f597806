package producer

import (
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

// Grab asks for a packet and returns the answer. If g has no request id, and the campaign gives one packet a user,
// Grab generates an id and writes it into g, so that the caller can repeat g after an error.
//
// If ctx ends first the error is Unknown: the grab may still be decided, and a repeat with the same request id gets
// the answer.
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
	w := c.newWaiter(g, info)
	if renew {
		w.walk.Renew()
	}
	if err := c.queue(w); err != nil {
		return hongbao.Answer{}, err
	}
	return c.wait(ctx, w)
}

// sendLoop sends one call at a time for the grabs that wait at a place. It answers them or lets them go on to the next
// place, and ends when none waits.
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

// undecidedPause is how long a shard that decides nothing is not asked again.
func undecidedPause() time.Duration { return 20*time.Millisecond + rand.N(80*time.Millisecond) }

// waiter is one grab that waits for its answer.
type waiter struct {
	grab   hongbao.Grab // a copy, with its Facts: a caller that has left may reuse the original during the call
	info   *info        // the settings that check used
	walk   walk.Walk    // over the campaign's places; under the campaign's mu from queue on
	lane   *lane        // where it waits, or waited last; under the campaign's mu
	sent   bool         // a call has it, or it was answered; under the campaign's mu
	left   bool         // its caller has left; under the campaign's mu
	until  time.Time    // when its caller gets an undecided outcome; zero until there is one
	answer hongbao.Answer
	err    error
	done   chan struct{}
}

var waiters = sync.Pool{New: func() any {
	return &waiter{done: make(chan struct{}, 1), grab: hongbao.Grab{Facts: map[string]string{}}}
}}

// check refuses a grab that its campaign can't decide, and generates a request id where it is optional. It returns the
// settings that it used.
func (c *campaign) check(g *hongbao.Grab) (*info, error) {
	info := c.lanes[0].info()
	if g.RequestID == "" {
		if info.hold > 1 {
			return nil, hongbao.Errorf(hongbao.ClassPermanent,
				"grab in campaign %s without a request id: a user may have %d packets there, so each grab needs an id of its own "+
					"to distinguish a repeat from a new grab", g.Campaign, info.hold)
		}
		g.RequestID = newRequestID()
	}
	for _, name := range info.facts {
		value, ok := g.Facts[name]
		if !ok {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s without the fact %q: its limits count by %s",
				g.Campaign, name, info.factNames)
		}
		if err := hongbao.CheckID(value); err != nil {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s, fact %q, value %.80q: %w", g.Campaign, name,
				value, err)
		}
	}
	return info, nil
}

// tooLate reports whether the user certainly lost: then Redis is not asked. renew: the grab continues, and should ask
// the script at its first place again.
func (c *campaign) tooLate(user string, i *info) (sold bool, now time.Time, renew bool) {
	now = time.Now()
	if !c.known.Late(user, now) || !now.Before(i.ends) || c.p.closed.Load() {
		return false, now, false
	}
	renew = c.known.Renew(now)
	return !renew, now, renew
}

// newWaiter makes the grab wait. It copies the facts that the campaign's limits count by: the caller may change the
// map after leaving. Other facts are dropped.
func (c *campaign) newWaiter(g *hongbao.Grab, i *info) *waiter {
	w := waiters.Get().(*waiter) //nolint:forcetypeassert // the pool holds nothing else
	facts := w.grab.Facts
	if w.info != i { // else they have the same names
		clear(facts)
	}
	*w = waiter{grab: *g, info: i, done: w.done, walk: w.walk}
	w.grab.Facts = facts
	w.walk.Begin(c.course, g.User, g.RequestID)
	for _, name := range i.facts {
		facts[name] = g.Facts[name]
	}
	return w
}

// queue puts a grab behind the others, and starts a send loop if none runs, or another one pays.
func (c *campaign) queue(w *waiter) error {
	c.p.mu.RLock() // against Close, which waits for the loops
	defer c.p.mu.RUnlock()
	if c.p.closed.Load() {
		return hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", c.id, ErrClosed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[w.walk.Place()]
	if len(l.waiting)-l.left >= c.p.cfg.MaxWaiting {
		return hongbao.Errorf(hongbao.ClassTransient, "campaign %s has %d grabs waiting already for shard %d; nothing "+
			"happened, try again later", c.id, c.p.cfg.MaxWaiting, l.shard.Index())
	}
	l.put(w)
	return nil
}

// put is queue at one place; under mu, and the caller keeps Close waiting.
func (l *lane) put(w *waiter) {
	w.lane, w.sent = l, false
	l.waiting = append(l.waiting, w)
	l.startLoop()
}

// startLoop starts a send loop if grabs wait and one more pays; under mu, and the caller keeps Close waiting.
func (l *lane) startLoop() {
	if len(l.waiting) > l.left && l.loops < l.p.cfg.InFlight && l.pays(l.loops+1) {
		l.loops++
		l.p.sending.Go(l.sendLoop)
	}
}

// payingGrabs is how many grabs have to wait for one more call.
const payingGrabs = 8

// pays reports whether so many calls under way are better than one fewer; under mu. Redis takes little longer for ten
// grabs than for one. So where few grabs wait, as in each process of a fleet, they go together in the next call. Where
// a call waits for a disk or a replica, that takes longest, and calls do not wait for each other. A shard that decides
// nothing gets one call for all.
func (l *lane) pays(loops int) bool {
	return loops == 1 || !l.undecided &&
		(l.info().durability != hongbao.DurabilityFast || len(l.waiting)-l.left >= (loops-1)*payingGrabs)
}

// share returns how many of the waiting grabs the next call takes. calls are already under way, of at most most. The
// next call leaves half to another one if that pays: Redis decides one while the callers of the other come back.
func share(waiting, calls, most int) int {
	if half := waiting / 2; calls+1 < most && half >= (calls+1)*payingGrabs {
		return waiting - half
	}
	return waiting
}

// next fills the call with grabs that have the same ask, as many as a script takes at once. False: no grab waits, or
// too few for one more call, and the loop is over.
func (l *lane) next(c *call) bool {
	// The callers that were just answered come back with their next grab: let them queue first, so that the next call
	// is not made for a few of them.
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	c.begin()
	n, kept, now := 0, 0, time.Now()
	most := c.info.most()
	if waiting := len(l.waiting) - l.left; waiting > 0 && !l.undecided {
		most = min(most, share(waiting, l.calls, l.p.cfg.InFlight))
	}
	for take := l.pays(l.loops); take && n < len(l.waiting) && len(c.batch) < most; n++ {
		w := l.waiting[n]
		switch {
		case w.left:
			l.left--
		case w.info.factNames != c.info.factNames:
			w.err = hongbao.Outagef(hongbao.ClassTransient, "grab in campaign %s: it was replaced, its limits count by %q now; "+
				"nothing happened, try again", l.id, c.info.factNames)
			w.sent = true
			w.done <- struct{}{}
		case c.takes(w.walk.Ask(l.memory, now)):
			w.sent = true
			c.add(w)
		default: // it keeps its turn
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

// judge decides the next step of each grab of a call. It lets grabs go on that have to ask at another place.
func (l *lane) judge(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	l.undecided = false
	l.remember(c)
	now := time.Now()
	for i, w := range c.batch {
		r := &c.results[i]
		if r.err != nil {
			continue
		}
		if c.ask.Receipts {
			r.verdict = w.walk.Read(l.memory, now, &r.answer)
		} else {
			r.verdict = l.decided(c, w, now, &r.answer)
		}
		l.undecided = l.undecided || r.verdict == walk.Undecided
		if r.verdict == walk.Onward && !w.left { // a caller that has left can repeat the grab
			w.answer = hongbao.Answer{}
			l.lanes[w.walk.Place()].put(w)
		}
	}
}

// answer answers the callers. It returns the grabs whose outcome is undecided.
func (l *lane) answer(c *call) (again []*waiter) {
	for i, w := range c.batch {
		r := &c.results[i]
		if r.verdict == walk.Onward { // another loop may have it already
			continue
		}
		w.answer, w.err = r.answer, r.err
		if len(w.answer.Receipts) > 0 {
			w.answer.Currency = c.info.currency
		}
		if r.verdict == walk.Undecided && l.p.cfg.UndecidedTimeout > 0 {
			again = append(again, w)
			continue
		}
		w.done <- struct{}{}
	}
	return again
}

// waitAgain puts undecided grabs behind the others, and answers those whose time is up. A frozen shard would answer
// frozen to all waiting grabs, so all are undecided. A busy shard still returns receipts and refusals: a grab that
// was not sent yet keeps its turn. True: only undecided grabs wait, so the next call can wait as well.
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
	allUndecided = true
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		if !w.left && w.answer.Outcome == "" && outcome == hongbao.OutcomeFrozen { // else the leaving caller reads it
			w.answer = hongbao.Answer{Outcome: outcome, Time: now}
		}
		if w.left || w.answer.Outcome == "" {
			allUndecided = allUndecided && w.left
			return false
		}
		if w.until.IsZero() {
			w.until = now.Add(l.p.cfg.UndecidedTimeout)
		}
		if now.Add(pause).Before(w.until) {
			return false
		}
		w.sent = true
		w.done <- struct{}{}
		return true
	})
	return allUndecided
}

// wait waits for the answer, or until the caller leaves, or Close gives up.
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
	case sent: // the call is under way and keeps w, or has just ended
		select {
		case <-w.done:
			return w.end()
		default:
		}
		return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown,
			"grab in campaign %s, request id %s: no answer yet (it may be granted; repeat it with the same request id): %w",
			c.id, w.grab.RequestID, ended)
	case w.answer.Outcome != "":
		return w.answer, nil
	}
	return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassTransient,
		"grab in campaign %s, request id %s: it still waited for a call; nothing happened: %w", c.id, w.grab.RequestID, ended)
}

// end returns the answer and puts w back into the pool.
func (w *waiter) end() (hongbao.Answer, error) {
	answer, err := w.answer, w.err
	waiters.Put(w)
	return answer, err
}

// leave removes a caller from the queue. True: a call has the grab already.
func (c *campaign) leave(w *waiter) (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.left = true
	if w.sent {
		return true
	}
	l := w.lane
	if l.left++; 2*l.left > len(l.waiting) {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool { return w.left })
		l.left = 0
	}
	return false
}

// newRequestID generates an id: 36 random bits, enough to distinguish one user's grabs in one campaign.
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
