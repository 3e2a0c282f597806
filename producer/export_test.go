package producer

import "time"

// Lanes is how many campaigns the producer keeps a lane for.
func (p *Producer) Lanes() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.lanes)
}

// Sweep takes out the lanes that are idle at an instant.
func (p *Producer) Sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
}
