package store

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/turn"
)

const (
	// busyTrip is the duration of a page from which on Redis counts as busy. Redis works on a page for about 0.3 ms, so the
	// rest of it is the network and the wait for other commands.
	busyTrip = 5 * time.Millisecond
	// busyRest is how much longer than the page the rest is while Redis is busy. longestRest bounds the rest, so that
	// work goes on soon after Redis has answered again.
	busyRest, longestRest = 10, time.Second
)

// pace spaces the pages of long reads and of loads on a server, because Redis answers no grab while it works on a page.
// All such work of a process takes turns: of all shards, or of one shard of a cluster. After each page it rests for as
// long as the page took, so it takes at most half of the time of Redis' thread. While Redis is busy, it rests much longer.
// The zero value is ready for use.
type pace struct {
	turn  turn.Lock
	until time.Time // the next page may not begin before; guarded by turn
}

// page calls do, which reads or writes one page, when it is its turn.
func (p *pace) page(ctx context.Context, do func() error) error {
	if err := p.turn.LockContext(ctx); err != nil {
		return err
	}
	defer p.turn.Unlock()
	if rest := time.Until(p.until); rest > 0 && !retry.Pause(ctx, rest) {
		return fmt.Errorf("wait until Redis is less busy: %w", ctx.Err())
	}
	begun := time.Now()
	err := do()
	p.until = time.Now().Add(restAfter(time.Since(begun)))
	return err
}

// restAfter returns how long work rests after a page.
func restAfter(took time.Duration) time.Duration {
	if took >= busyTrip {
		took *= busyRest
	}
	return min(took, longestRest)
}
