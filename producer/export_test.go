package producer

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Lanes returns how many campaigns the producer has in memory.
func (p *Producer) Lanes() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(*p.campaigns.Load())
}

// EndWindow makes the producer believe that the campaign's window ends at this time.
func (p *Producer) EndWindow(campaign string, at time.Time) {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	i := *l.seen.Load()
	terms := *i.GrabTerms
	terms.Ends = at
	i.GrabTerms = &terms
	l.seen.Store(&i)
}

// Sweep removes the campaigns that are idle at this time.
func (p *Producer) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
}

// Share exports share.
func Share(waiting, calls, most int) int { return share(waiting, calls, most) }

// Waiting returns how many grabs wait for a call to the campaign's home.
func (p *Producer) Waiting(campaign string) int {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) - l.left
}

// Calls returns how many calls to the campaign's home are in flight.
func (p *Producer) Calls(campaign string) int {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// Inspected records an inspection of a server at this time, and returns how many servers the producer remembers.
func (p *Producer) Inspected(node redis.UniversalClient, at time.Time) int {
	p.noteServer(node, nil, at)
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.servers)
}

// LookUp looks a campaign up as a grab does that found it unknown.
func LookUp(p *Producer, campaign string) (found bool, err error) {
	c, err := p.open(campaign)
	return c != nil, err
}
