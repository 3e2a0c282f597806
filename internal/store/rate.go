package store

import (
	"context"
	"time"
)

var rateScript = newDrainScript("rate").with(unguarded)

// RateCall has the arguments of a turn at a sink of bounded rate.
type RateCall struct {
	Sink string
	// PerSecond is the bound, above 0. Grants is how many grants the caller will hand over, 0 to ask only. Portion is
	// the most that any caller hands over at once at this bound.
	PerSecond, Grants, Portion int
	// Most is the longest wait that callers accept.
	Most time.Duration
}

// Turn takes the caller's turn and returns how long to wait for it. If the turn is too far in the future, taken is
// false and wait is that time. Workers that share one bound ask the same shard.
func (k *Shard) Turn(ctx context.Context, c *RateCall) (taken bool, wait time.Duration, err error) {
	reply, err := k.run(ctx, rateScript, []string{k.Keys.Rate(c.Sink)}, []any{c.PerSecond, c.Grants, c.Most.Microseconds(),
		c.Portion})
	if err != nil {
		return false, 0, err
	}
	r := replyReader{rest: reply}
	taken = r.string() == "go"
	wait = time.Duration(r.int64()) * time.Microsecond
	return taken, wait, r.done(rateScript)
}
