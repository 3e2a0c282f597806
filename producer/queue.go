package producer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// queue adds the grab to the queue of its place. It starts a send loop if none runs, or if a further call pays off.
func (c *campaign) queue(w *waiter, now time.Time) error {
	c.p.mu.RLock() // so that Close can't miss a loop started here
	defer c.p.mu.RUnlock()
	if c.p.closed.Load() {
		return hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", c.id, ErrClosed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[w.walk.Place()]
	if len(l.waiting)-l.left >= c.p.cfg.MaxWaiting {
		return hongbao.Errorf(hongbao.ClassTransient, "campaign %s already has %d grabs waiting for shard %d; nothing "+
			"happened, try again later", c.id, c.p.cfg.MaxWaiting, l.shard.Index())
	}
	l.put(w, now)
	return nil
}

// put adds the grab to the lane's queue. It turns the grab away if the grab has waited for too long at other places, or
// if Redis is down and another call will notice the end of the outage. The caller holds mu, and prevents Close from
// finishing.
func (l *lane) put(w *waiter, now time.Time) {
	w.lane, w.sent = l, false
	switch {
	case l.down != nil && l.calls > 0:
		l.turnAway(w, l.down)
		return
	case !now.Before(w.expires):
		l.turnAway(w, errQueue)
		return
	}
	l.waiting = append(l.waiting, w)
	l.startLoop()
	l.watch()
}

// turnAway answers a grab that no call has taken: with its undecided outcome, or with an error that says why it waited.
// The caller holds mu.
func (l *lane) turnAway(w *waiter, why error) {
	if w.answer.Outcome == "" {
		w.err = hongbao.Outagef(hongbao.ClassTransient, "grab in campaign %s, request id %s: this try did nothing; repeat it with "+
			"the same request id: %w", l.id, w.grab.RequestID, why)
	}
	w.sent = true
	w.resolve()
	w.done <- struct{}{}
}

// resolve makes the answer of a grab an Unknown error if an earlier call for it may have been carried out, and the answer
// does not show whether.
func (w *waiter) resolve() {
	switch {
	case w.doubt == nil:
	case w.err != nil:
		w.err = doubted(w.err, w.doubt)
	case !w.answer.Outcome.Final():
		w.err = doubted(hongbao.Outagef(hongbao.ClassTransient, "the answer was %s", w.answer.Outcome), w.doubt)
		w.answer = hongbao.Answer{}
	}
}

// watch starts watchQueue, if it does not run. The caller holds mu, and prevents Close from finishing.
func (l *lane) watch() {
	if !l.watched {
		l.watched = true
		l.p.watches.Go(l.watchQueue)
	}
}

// watchQueue turns away the grabs that have waited for too long. It ends when no grab waits.
func (l *lane) watchQueue() {
	every := l.p.cfg.QueueTimeout / 20
	for retry.Pause(l.p.ctx, every) && l.turnAwayOld(time.Now(), every) {
	}
}

// turnAwayOld turns away the grabs that have waited for too long. If others have waited since the last look, a call
// probably hangs, and turnAwayOld allows another one. It returns false if no grab waits.
func (l *lane) turnAwayOld(now time.Time, every time.Duration) (waiting bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = false
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
		if w.left || now.Before(w.expires) {
			l.slow = l.slow || w.expires.Sub(now) <= l.p.cfg.QueueTimeout-every
			return false
		}
		l.turnAway(w, errQueue)
		return true
	})
	l.watched = len(l.waiting) > 0
	l.startLoop() // while grabs wait, a loop runs, so Close can't miss a further one
	return l.watched
}

// errQueue is why a grab is turned away after QueueTimeout.
var errQueue = errors.New("Redis took too long for the grabs before it")

// noteOutage records whether a call was an outage. If it was, and no later call has worked, all grabs that wait are
// turned away: they would only wait for the next call to fail. The caller holds mu.
func (l *lane) noteOutage(c *call) {
	switch {
	case !hongbao.IsOutage(c.err):
		l.down = nil
		if c.began.After(l.worked) {
			l.worked = c.began
		}
		return
	case c.began.Before(l.worked):
		return
	}
	l.down = fmt.Errorf("the call before it failed: %w", c.err)
	for _, w := range l.waiting {
		if !w.left {
			l.turnAway(w, l.down)
		}
	}
	clear(l.waiting) // for the garbage collector
	l.waiting, l.left = l.waiting[:0], 0
}

// leave marks the caller as gone. It returns true if the grab is in a call or was answered.
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
