package store

import (
	"context"
	"fmt"
	"time"
)

// TakeLead makes the caller lead in a work on the shard for some time. A caller that leads already continues to lead.
// If another caller leads, TakeLead returns for how long. Two may lead for a moment, if one was paused, and the work
// must tolerate that.
func (k *Shard) TakeLead(ctx context.Context, work, who string, lead time.Duration) (led time.Duration, err error) {
	reply, err := k.run(ctx, lockScript, []string{k.Keys.Lead(work)}, []any{"take", who, max(1, lead.Milliseconds())})
	if err != nil {
		return 0, fmt.Errorf("lead %s: %w", work, err)
	}
	leads, led, err := taken(reply)
	if !leads {
		led = max(led, time.Millisecond)
	}
	return led, err
}

// EndLead ends the caller's lead, if it has it. Another caller can then take it at once.
func (k *Shard) EndLead(ctx context.Context, work, who string) error {
	_, err := k.run(ctx, lockScript, []string{k.Keys.Lead(work)}, []any{"release", who, 0})
	return err
}
