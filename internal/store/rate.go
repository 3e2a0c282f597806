package store

import (
	"context"
	"time"
)

var rateScript = newDrainScript("rate").with(unguarded)

// RateCall has the arguments of Turn.
type RateCall struct {
	Sink string
	// PerSecond is the rate limit in grants, above 0. Grants is how many grants the caller will deliver; 0 only asks
	// for the wait. Portion is the most grants that a caller delivers at once under this limit.
	PerSecond, Grants, Portion int
	// Most is the longest wait that callers accept.
	Most time.Duration
}

// ReserveRate reserves the next deliveries to a sink with a rate limit. The caller must wait for the returned time
// before it delivers. If that time is above Most, nothing is reserved and taken is false. Workers that share a limit
// must ask the same shard.
func (k *Shard) ReserveRate(ctx context.Context, c *RateCall) (taken bool, wait time.Duration, err error) {
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
