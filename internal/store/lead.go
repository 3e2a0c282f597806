package store

import (
	"context"
	"fmt"
	"time"
)

// TakeLead makes the caller lead a work on the shard for some time, again if it leads already; or it tells for how long
// another one leads. Two may lead for a moment, if one was paused: the work must bear that.
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

// EndLead ends the lead, if the caller has it: another one can take it at once.
func (k *Shard) EndLead(ctx context.Context, work, who string) error {
	_, err := k.run(ctx, lockScript, []string{k.Keys.Lead(work)}, []any{"release", who, 0})
	return err
}
