package producer

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// lane is where the grabs of one campaign wait for the next call.
type lane struct {
	p    *Producer
	id   string
	keys shards.Keys
	rdb  redis.UniversalClient
	seen atomic.Pointer[info]
	// counters is what the last call was told of shards.GrabCall.Counters: a new call need not ask.
	counters atomic.Pointer[string]

	mu      sync.Mutex
	waiting []*call
	left    int // of these, callers who have left
	flying  int
	used    time.Time // when the last call ended
	alive   time.Time // when an answer said last that the campaign is there and not over; zero once it is over
	lost    bool      // it vanished while it was alive
}

// call is one grab that waits for its answer.
type call struct {
	grab   hongbao.Grab // a copy: a caller whose context ends may use his again while the call is under way
	facts  map[string]string
	info   *info // what the caller's facts were taken by
	taken  bool  // a flight has it; under the lane's mu
	left   bool  // its caller has left the queue; under the lane's mu
	answer hongbao.Answer
	err    error
	done   chan struct{}
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1), facts: map[string]string{}} }}

func (l *lane) info() *info { return l.seen.Load() }

// send queues the grab and waits for its answer.
func (l *lane) send(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	c := calls.Get().(*call) //nolint:forcetypeassert // the pool holds nothing else
	c.grab, c.info, c.err, c.taken, c.left = *g, l.info(), nil, false, false
	err := c.takeFacts(g)
	if err == nil {
		err = l.queue(c)
	}
	if err != nil {
		c.recycle()
		return hongbao.Answer{}, err
	}
	ended := ctx.Err
	select {
	case <-c.done:
		return c.end()
	case <-ctx.Done():
	case <-l.p.ctx.Done(): // Close gave up waiting, or had nothing to wait for
		select {
		case <-c.done:
			return c.end()
		default:
			ended = l.p.ctx.Err
		}
	}
	if l.leave(c) {
		return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassTransient,
			"grab in campaign %s, request id %s: it still waited for a call; nothing happened: %w", l.id, g.RequestID, ended())
	}
	// the call is under way and keeps c
	return hongbao.Answer{}, hongbao.Errorf(hongbao.ClassUnknown,
		"grab in campaign %s, request id %s: no answer yet (it may be granted; repeat it with the same request id): %w", l.id,
		g.RequestID, ended())
}

// end takes the answer and gives c back.
func (c *call) end() (hongbao.Answer, error) {
	answer, err := c.answer, c.err
	c.recycle()
	return answer, err
}

func (c *call) recycle() {
	clear(c.facts)
	c.grab, c.answer, c.info = hongbao.Grab{}, hongbao.Answer{}, nil
	calls.Put(c)
}

// takeFacts copies the facts that the campaign's limits count by: the caller may change his map as soon as he has left.
// It refuses a grab that lacks one, or has one that can't be counted by; other facts are nobody's business.
func (c *call) takeFacts(g *hongbao.Grab) error {
	clear(c.facts)
	c.grab.Facts = c.facts
	for _, name := range c.info.facts {
		value, ok := g.Facts[name]
		if !ok {
			return hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s without the fact %q: its limits count by %s",
				g.Campaign, name, c.info.factNames)
		}
		if err := hongbao.CheckID(value); err != nil {
			return hongbao.Errorf(hongbao.ClassPermanent, "grab in campaign %s, fact %q, value %.80q: %w", g.Campaign, name,
				value, err)
		}
		c.facts[name] = value
	}
	return nil
}

// leave takes a caller out of the queue; false if a flight has his call already.
func (l *lane) leave(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.taken {
		return false
	}
	c.left = true
	if l.left++; 2*l.left > len(l.waiting) {
		stay := l.waiting[:0]
		for _, other := range l.waiting {
			if other.left {
				other.recycle()
			} else {
				stay = append(stay, other)
			}
		}
		clear(l.waiting[len(stay):])
		l.waiting, l.left = stay, 0
	}
	return true
}

func (l *lane) queue(c *call) error {
	l.p.mu.RLock() // against Close, which waits for the flights
	defer l.p.mu.RUnlock()
	if l.p.closed {
		return hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", l.id, ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting)-l.left >= l.p.cfg.MaxWaiting {
		return hongbao.Errorf(hongbao.ClassTransient,
			"campaign %s has %d grabs waiting already; nothing happened, try again later",
			l.id, l.p.cfg.MaxWaiting)
	}
	l.waiting = append(l.waiting, c)
	if l.flying < l.p.cfg.InFlight {
		l.flying++
		l.p.flights.Go(l.sendLoop)
	}
	return nil
}

// sendLoop makes calls until nothing waits.
func (l *lane) sendLoop() {
	f := flight{lane: l, batch: make([]*call, 0, shards.MaxGrabs), answers: make([]hongbao.Answer, 0, shards.MaxGrabs)}
	f.req.Campaign, f.req.MaxBacklog = l.id, l.p.cfg.MaxBacklog
	for {
		// The callers that were just answered come back with their next grab: let them queue first, so that the next call
		// is not made for a few of them.
		runtime.Gosched()
		l.mu.Lock()
		f.batch = l.take(f.batch[:0])
		if len(f.batch) == 0 {
			l.flying--
			l.used = time.Now()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		f.run()
	}
}

// take takes the next calls out of the queue, as many as one call of the script decides; under mu.
func (l *lane) take(batch []*call) []*call {
	most, n := l.info().most(), 0
	for n < len(l.waiting) && len(batch) < most {
		c := l.waiting[n]
		n++
		if c.left {
			l.left--
			c.recycle()
			continue
		}
		c.taken = true
		batch = append(batch, c)
	}
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// flight is one of the lane's calls in flight; its room is reused from call to call.
type flight struct {
	lane    *lane
	info    *info // what the present call goes by
	batch   []*call
	req     shards.GrabCall
	answers []hongbao.Answer
	errs    []error // of single answers; nil for those that are good
}

func (f *flight) run() {
	ctx, cancel := context.WithTimeout(f.lane.p.ctx, f.lane.p.cfg.CallTimeout)
	defer cancel()
	f.gather()
	if len(f.batch) == 0 {
		return
	}
	err := f.sendGrabs(ctx)
	if err != nil {
		err = fmt.Errorf("grab in campaign %s (repeat it with the same request id): %w", f.lane.id, err)
	} else if f.lane.vanished(f.answers) {
		f.lane.p.forget(f.lane)
	}
	for i, c := range f.batch {
		switch {
		case err != nil:
			c.err = err
		case f.errs[i] != nil:
			c.err = fmt.Errorf("grab in campaign %s (repeat it with the same request id): %w", f.lane.id, f.errs[i])
		default:
			c.answer = f.answers[i]
		}
		c.done <- struct{}{}
	}
}

// gather makes the call out of the batch. A grab whose facts were taken for another campaign of the same id fails.
func (f *flight) gather() {
	f.info = f.lane.info()
	f.req.FactNames = f.info.factNames
	if counters := f.lane.counters.Load(); counters != nil {
		f.req.Counters = *counters
	}
	f.req.Grabs = f.req.Grabs[:0]
	fit := f.batch[:0]
	for _, c := range f.batch {
		if c.info.factNames != f.info.factNames {
			c.err = hongbao.Outagef(hongbao.ClassTransient,
				"grab in campaign %s: it was replaced, its limits count by %q now; nothing happened, "+
					"try again", f.lane.id, f.info.factNames)
			c.done <- struct{}{}
			continue
		}
		f.req.Grabs = append(f.req.Grabs, &c.grab)
		fit = append(fit, c)
	}
	f.batch = fit
}

// timeoutOf is what is left of ctx, for a command that is told its timeout in ms; at least one.
func timeoutOf(ctx context.Context, most time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(at))
	}
	return max(most, time.Millisecond)
}
