package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// await connects to Redis for a process that runs until it is stopped. While Redis is unreachable, await retries
// instead of exiting, so that payments continue soon after Redis is back, whatever the supervisor's restart delay is.
// Meanwhile the ops listener reports that the process is opening. Any other error ends await. If ctx ends, await
// returns nil.
func (p *process) await(ctx context.Context) error {
	o := p.ops(func() error { return fmt.Errorf("%w redis", web.ErrOpening) })
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		if failed = o.Run(listening); failed != nil {
			stop() // the address is in use or invalid
		}
	})
	err := p.awaitRedis(listening, 30*time.Second)
	stop()
	wg.Wait()                                                  // the permanent ops listener has the same address
	if failed != nil && !errors.Is(failed, context.Canceled) { // canceled if Redis was open before the listener
		return failed
	}
	return err
}

// awaitRedis tries to connect to Redis, at last in intervals of most.
func (p *process) awaitRedis(ctx context.Context, most time.Duration) error {
	wait := retry.Backoff(time.Second, most, 0)
	for tries := 0; ; tries++ {
		err := p.Ready(ctx, app.Needs{Redis: true})
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the process was stopped
		case err == nil || !hongbao.IsOutage(err):
			return err
		case tries == 0:
			p.Log().Error("redis can't be reached; it is tried again and again", zap.String("code", "redis_down"), zap.Error(err))
		default:
			p.Log().Warn("redis can't be reached yet", zap.Error(err))
		}
		retry.Pause(ctx, wait.NextBackOff())
	}
}
