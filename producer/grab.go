package producer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/retry"
)

// Grab asks for a packet and returns the answer. If g has no request id, and the campaign gives one packet a user, an
// id is made up and written into g, so that g can be repeated after an error.
//
// When ctx ends first the error is Unknown: the grab may be decided all the same, and repeating it with the same
// request id tells.
func (p *Producer) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	if err := g.Check(); err != nil {
		return hongbao.Answer{}, err
	}
	l, err := p.lane(ctx, g.Campaign)
	if l == nil {
		return withoutLane(err)
	}
	w, err := l.check(g)
	if err == nil {
		err = l.queue(w)
	}
	if err != nil {
		return hongbao.Answer{}, err
	}
	return l.wait(ctx, w)
}

// sendLoop is the other side: it sends one call for all that wait, answers them, and ends when nobody waits.
func (l *lane) sendLoop() {
	c := l.newCall()
	for l.next(c) {
		results := c.send()
		if again := l.answer(c.batch, results); len(again) > 0 {
			pause := 20*time.Millisecond + rand.N(80*time.Millisecond)
			if l.waitAgain(again, pause) {
				retry.Pause(l.p.ctx, pause)
			}
		}
	}
}

// waiter is one grab that waits for its answer.
type waiter struct {
	grab   hongbao.Grab // a copy, with its Facts: a caller who has left may use his again while the call is under way
	info   *info        // what check went by
	sent   bool         // a call has it, or it was answered; under the lane's mu
	left   bool         // its caller has left; under the lane's mu
	until  time.Time    // when its caller gets an undecided outcome; zero until there is one
	answer hongbao.Answer
	err    error
	done   chan struct{}
}

var waiters = sync.Pool{New: func() any {
	return &waiter{done: make(chan struct{}, 1), grab: hongbao.Grab{Facts: map[string]string{}}}
}}

// check refuses a grab that its campaign can't decide, and makes up a request id where it is optional. It copies the
// facts that the campaign's limits count by: the caller may change his map as soon as he has left. Other facts are
// nobody's business.
func (l *lane) check(g *hongbao.Grab) (*waiter, error) {
	info := l.info()
	if g.RequestID == "" {
		if info.hold > 1 {
			return nil, hongbao.Errorf(hongbao.ClassPermanent,
				"grab in campaign %s without a request id: a user may have %d packets there, so each grab needs an id of its own "+
					"to tell a repeat from a new one", g.Campaign, info.hold)
		}
		g.RequestID = newRequestID()
	}
	w := waiters.Get().(*waiter) //nolint:forcetypeassert // the pool holds nothing else
	facts := w.grab.Facts
	clear(facts)
	*w = waiter{grab: *g, info: info, done: w.done}
	w.grab.Facts = facts
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
		facts[name] = value
	}
	return w, nil
}

// queue puts a grab behind the others, and starts a loop that sends if none runs, or another one pays.
func (l *lane) queue(w *waiter) error {
	l.p.mu.RLock() // against Close, which waits for the loops
	defer l.p.mu.RUnlock()
	if l.p.closed {
		return hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", l.id, ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting)-l.left >= l.p.cfg.MaxWaiting {
		return hongbao.Errorf(hongbao.ClassTransient,
			"campaign %s has %d grabs waiting already; nothing happened, try again later", l.id, l.p.cfg.MaxWaiting)
	}
	l.waiting = append(l.waiting, w)
	if l.loops < l.p.cfg.InFlight && l.pays(l.loops+1) {
		l.loops++
		l.p.sending.Go(l.sendLoop)
	}
	return nil
}

// payingGrabs is how many grabs have to wait for one call more.
const payingGrabs = 8

// pays tells whether so many calls under way are better than one fewer; under mu. Redis takes little longer for ten
// grabs than for one. So where few grabs wait, which is so in each process of a fleet, they go together in the next
// call. Where a call waits for a disk or a replica, that takes longest, and calls do not wait for each other.
func (l *lane) pays(loops int) bool {
	return loops == 1 || l.info().durability != hongbao.DurabilityFast || len(l.waiting)-l.left >= (loops-1)*payingGrabs
}

// next fills the call with grabs that wait, as many as the script decides at once. False: nobody waits, or too few for
// one call more, and the loop is over.
func (l *lane) next(c *call) bool {
	// The callers that were just answered come back with their next grab: let them queue first, so that the next call is
	// not made for a few of them.
	runtime.Gosched()
	l.mu.Lock()
	defer l.mu.Unlock()
	c.begin()
	n, take := 0, l.pays(l.loops)
	for ; take && n < len(l.waiting) && len(c.batch) < c.info.most(); n++ {
		w := l.waiting[n]
		switch {
		case w.left:
			l.left--
		case w.info.factNames != c.info.factNames:
			w.err = hongbao.Outagef(hongbao.ClassTransient, "grab in campaign %s: it was replaced, its limits count by %q now; "+
				"nothing happened, try again", l.id, c.info.factNames)
			w.sent = true
			w.done <- struct{}{}
		default:
			w.sent = true
			c.add(w)
		}
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	if len(c.batch) > 0 {
		return true
	}
	l.loops--
	l.used = time.Now()
	return false
}

// answer gives the callers their answers. It returns those whose outcome is undecided.
func (l *lane) answer(batch []*waiter, results []result) (again []*waiter) {
	for i, w := range batch {
		w.answer, w.err = results[i].answer, results[i].err
		if w.err == nil && !w.answer.Outcome.Final() && l.p.cfg.UndecidedTimeout > 0 {
			again = append(again, w)
			continue
		}
		w.done <- struct{}{}
	}
	return again
}

// waitAgain puts undecided grabs behind the others, and answers those whose time is up. A frozen shard would answer
// frozen to all that wait, so all are undecided. A busy one still has receipts and refusals to give: a grab that was
// not sent yet keeps its turn. True: nobody waits but undecided grabs, so the next call can wait as well.
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
		if !w.left && w.answer.Outcome == "" && outcome == hongbao.OutcomeFrozen { // who has left reads his answer meanwhile
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
func (l *lane) wait(ctx context.Context, w *waiter) (hongbao.Answer, error) {
	select {
	case <-w.done:
		return w.end()
	case <-ctx.Done():
	case <-l.p.ctx.Done():
	}
	select {
	case <-w.done: // both at once
		return w.end()
	default:
	}
	ended := ctx.Err()
	if ended == nil {
		ended = l.p.ctx.Err()
	}
	switch sent := l.leave(w); {
	case sent: // the call is under way and keeps w, or has just ended
		select {
		case <-w.done:
			return w.end()
		default:
		}
		return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown,
			"grab in campaign %s, request id %s: no answer yet (it may be granted; repeat it with the same request id): %w",
			l.id, w.grab.RequestID, ended)
	case w.answer.Outcome != "":
		return w.answer, nil
	}
	return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassTransient,
		"grab in campaign %s, request id %s: it still waited for a call; nothing happened: %w", l.id, w.grab.RequestID, ended)
}

// end takes the answer and gives w back.
func (w *waiter) end() (hongbao.Answer, error) {
	answer, err := w.answer, w.err
	waiters.Put(w)
	return answer, err
}

// leave takes a caller out of the queue. True: a call has his grab already.
func (l *lane) leave(w *waiter) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.left = true
	if w.sent {
		return true
	}
	if l.left++; 2*l.left > len(l.waiting) {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool { return w.left })
		l.left = 0
	}
	return false
}

// newRequestID makes up an id: 36 random bits, enough to tell one user's grabs in one campaign apart.
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
