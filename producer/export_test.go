package producer

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Lanes returns the number of campaigns that the producer keeps lanes for.
func (p *Producer) Lanes() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(*p.campaigns.Load())
}

// EndWindow makes the producer believe that a campaign's window ends at an instant.
func (p *Producer) EndWindow(campaign string, at time.Time) {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	i := *l.seen.Load()
	i.ends = at
	l.seen.Store(&i)
}

// Sweep removes the campaigns that are idle at an instant.
func (p *Producer) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
}

// Share returns the number of waiting grabs that the next call takes.
func Share(waiting, calls, most int) int { return share(waiting, calls, most) }

// Waiting returns the number of grabs that wait for a call at the campaign's home.
func (p *Producer) Waiting(campaign string) int {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) - l.left
}

// Calls returns the number of calls in flight at the campaign's home.
func (p *Producer) Calls(campaign string) int {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// Inspected records that a server was inspected at a time, and returns the number of servers that the producer knows.
func (p *Producer) Inspected(node redis.UniversalClient, at time.Time) int {
	p.noteServer(node, nil, at)
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.servers)
}
