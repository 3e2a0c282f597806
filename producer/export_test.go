package producer

import "time"

// Lanes is how many campaigns the producer keeps lanes for.
func (p *Producer) Lanes() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.campaigns)
}

// Sweep takes out the campaigns that are idle at an instant.
func (p *Producer) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
}
