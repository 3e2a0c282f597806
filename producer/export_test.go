package producer

import "time"

// Lanes is how many campaigns the producer keeps lanes for.
func (p *Producer) Lanes() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(*p.campaigns.Load())
}

// EndWindow lets the producer believe that a campaign's window ends at an instant.
func (p *Producer) EndWindow(campaign string, at time.Time) {
	l := (*p.campaigns.Load())[campaign].lanes[0]
	i := *l.seen.Load()
	i.ends = at
	l.seen.Store(&i)
}

// Sweep takes out the campaigns that are idle at an instant.
func (p *Producer) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
}

// Share is how many of those that wait the next call takes.
func Share(waiting, free int) int { return share(waiting, free) }
