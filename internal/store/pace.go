package store

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/turn"
)

const (
	// busyWait is how much longer a page takes than the shortest one when Redis counts as busy. Redis works on a page for
	// about 0.3 ms and the network takes its time for each, so the rest is the wait for other commands.
	busyWait = 5 * time.Millisecond
	// busyRest is how much longer than that wait the rest is while Redis is busy. longestRest bounds the rest: work goes on
	// soon after Redis has answered again, and a load ends although the machine has no processor to spare. shortestRest is longer than Redis works on a page.
	busyRest, longestRest, shortestRest = 4, 250 * time.Millisecond, 500 * time.Microsecond
)

// pace spaces the pages of long reads and of loads on a server, because Redis answers no grab while it works on a page.
// All such work of a process takes turns: of all shards, or of one shard of a cluster. After each page it rests for longer
// than Redis works on it, so it takes at most half of the time of Redis' thread. While Redis is busy, it rests much longer.
// The zero value is ready for use.
type pace struct {
	turn  turn.Lock
	until time.Time     // the next page may not begin before; guarded by turn, as least
	least time.Duration // the shortest page so far: mostly the network
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
	took := time.Since(begun)
	if p.least == 0 || took < p.least {
		p.least = took
	}
	p.until = time.Now().Add(restAfter(took - p.least))
	return err
}

// restAfter returns how long work rests after a page that took longer than the shortest one by some time.
func restAfter(waited time.Duration) time.Duration {
	if waited >= busyWait {
		waited *= busyRest
	}
	return min(max(waited, shortestRest), longestRest)
}

// paced is page for a call that returns a value.
func paced[T any](ctx context.Context, p *pace, do func() (T, error)) (out T, err error) {
	err = p.page(ctx, func() (err error) {
		out, err = do()
		return err
	})
	return out, err
}
