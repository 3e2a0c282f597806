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

// await opens Redis for a process that runs until it is stopped. While Redis can't be reached, await tries again.
// Otherwise the supervisor that restarts the process would decide when payments continue. Meanwhile the ops listener
// says that the process is opening. Any other error ends await. A nil error with an ended ctx says that the process
// was stopped.
func (p *process) await(ctx context.Context) error {
	o := p.ops(func() error { return fmt.Errorf("%w redis", web.ErrOpening) })
	listening, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		if failed = o.Run(listening); failed != nil {
			stop() // its address is taken, or invalid
		}
	})
	err := p.awaitRedis(listening)
	stop()
	wg.Wait()                                                  // the listener that stays has the same address
	if failed != nil && !errors.Is(failed, context.Canceled) { // it may not have begun when Redis was open
		return failed
	}
	return err
}

func (p *process) awaitRedis(ctx context.Context) error {
	wait := retry.Backoff(time.Second, 30*time.Second, 0)
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
