package store

import (
	"context"
	"fmt"
	"time"
)

// TakeLead takes or renews the lead in some work on the shard, for the given time. If another caller has the lead,
// led is the time until its lead ends; otherwise led is 0. If a leader's process is suspended, two callers may
// believe for a moment that they lead. The work must tolerate that.
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

// EndLead ends the caller's lead, if it has the lead. Other callers can then take it at once.
func (k *Shard) EndLead(ctx context.Context, work, who string) error {
	_, err := k.run(ctx, lockScript, []string{k.Keys.Lead(work)}, []any{"release", who, 0})
	return err
}
