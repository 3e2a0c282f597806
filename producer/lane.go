package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

const (
	// unknownFor is how long a campaign that is not there is not looked for again.
	unknownFor = time.Second
	// maxUnknown bounds how many such campaigns are remembered.
	maxUnknown = 10_000
	// idleFor is how long a campaign's lane stays without a grab.
	idleFor = time.Minute
)

// lane is where the grabs of one campaign wait for the next call.
type lane struct {
	p    *Producer
	id   string
	home *shards.Shard
	seen atomic.Pointer[info]
	// terms are what the last call was told: a new call need not ask.
	terms atomic.Pointer[shards.Terms]

	mu      sync.Mutex
	waiting []*waiter
	left    int       // of these, callers who have left
	loops   int       // that send
	used    time.Time // when the last call ended
	alive   time.Time // when an answer said last that the campaign is there and not over; zero once it is over
	lost    bool      // it vanished while it was alive
}

func (l *lane) info() *info { return l.seen.Load() }

// lane finds or opens the campaign's lane; nil if the campaign is not in Redis. Callers who come at once share one
// look.
func (p *Producer) lane(ctx context.Context, campaign string) (*lane, error) {
	p.mu.RLock()
	l, until := p.lanes[campaign], p.unknown[campaign]
	p.mu.RUnlock()
	if l != nil || time.Now().Before(until) {
		return l, nil
	}
	select {
	case r := <-p.looks.DoChan(campaign, func() (any, error) { return p.open(campaign) }):
		l, _ = r.Val.(*lane) // nil with an error
		return l, r.Err
	case <-ctx.Done():
		return nil, hongbao.Errorf(hongbao.ClassTransient,
			"grab in campaign %s: it was still being looked for; nothing happened: %w", campaign, ctx.Err())
	}
}

// withoutLane answers a grab for whose campaign there is no lane.
func withoutLane(err error) (hongbao.Answer, error) {
	switch {
	case errors.Is(err, shards.ErrFrozen):
		return hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: time.Now()}, nil
	case err != nil:
		return hongbao.Answer{}, err
	}
	return hongbao.Answer{Outcome: hongbao.OutcomeUnknownCampaign, Time: time.Now()}, nil
}

// open takes the first look at a campaign and opens its lane; nil if the campaign is not in Redis.
func (p *Producer) open(campaign string) (*lane, error) {
	p.mu.RLock()
	if p.closed {
		p.mu.RUnlock()
		return nil, hongbao.Errorf(hongbao.ClassTransient, "grab in campaign %s: %w", campaign, ErrClosed)
	}
	p.sending.Add(1)
	p.mu.RUnlock()
	defer p.sending.Done()
	l := &lane{p: p, id: campaign, home: shards.Of(p.cfg.Redis, p.layout.Home(campaign)), used: time.Now()}
	found, err := l.first(p.ctx)
	if err != nil {
		return nil, err
	}
	p.startWatch()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(time.Now())
	if !found {
		p.noteUnknown(campaign)
		return nil, nil
	}
	if other := p.lanes[campaign]; other != nil { // of a look that ended just now
		return other, nil
	}
	p.lanes[campaign] = l
	return l, nil
}

// noteUnknown remembers for a moment that a campaign is not there; under mu.
func (p *Producer) noteUnknown(campaign string) {
	if len(p.unknown) >= maxUnknown {
		clear(p.unknown)
	}
	p.unknown[campaign] = time.Now().Add(unknownFor)
}

// sweep takes out the lanes that were idle for long; under mu. A caller who has one in hand finishes there.
func (p *Producer) sweep(now time.Time) {
	for id, l := range p.lanes {
		l.mu.Lock()
		idle := l.loops == 0 && len(l.waiting) == 0 && now.Sub(l.used) > idleFor
		l.mu.Unlock()
		if idle {
			delete(p.lanes, id)
		}
	}
}

// forget takes out the lane of a campaign that is gone.
func (p *Producer) forget(l *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lanes[l.id] == l {
		delete(p.lanes, l.id)
	}
	p.noteUnknown(l.id)
}
