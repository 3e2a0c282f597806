package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// maxTasks is the maximum number of tasks that run at once on a server.
const maxTasks = 64

// tasks runs long calls that may outlive their request. Each task has a name. While a task is running, another
// request with the same name and order waits for the same task.
type tasks struct {
	ctx  context.Context //nolint:containedctx // the parent of all tasks' contexts
	stop context.CancelFunc
	wg   sync.WaitGroup
	log  *zap.Logger

	mu    sync.Mutex
	named map[string]*task
}

type job struct {
	name string
	// order has the parameters. While a task is running, a job with the same name but another order is refused.
	order string
	// replay is the replay that the job runs, or nil for other jobs.
	replay *deliveries.Replay
	do     func(ctx context.Context) (any, error)
	// keep stores the answer if a caller got an answer 202; nil if a repeat of the request may do the work again. Until
	// it has ended, repeats get the answer of the task.
	keep func(ctx context.Context, answer any)
}

// task is a job that is running or has ended. answer and err are valid after done is closed.
type task struct {
	job

	all    *tasks
	begun  time.Time
	stop   context.CancelFunc
	left   bool // set if a caller got an answer 202; guarded by all.mu
	done   chan struct{}
	answer any
	err    error
}

func newTasks(log *zap.Logger) *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop, log: log, named: map[string]*task{}}
}

// close cancels all tasks and waits for them.
func (t *tasks) close() {
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.wg.Wait()
}

// start starts a job as a task, or returns the task that already runs it.
func (t *tasks) start(j *job, do func(ctx context.Context) (any, error)) (*task, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch x := t.named[j.name]; {
	case x != nil && x.order != j.order:
		return nil, web.Refuse("conflict", "this server runs "+j.name+" with other parameters: wait for its end, or stop it")
	case x != nil:
		return x, nil
	case t.ctx.Err() != nil:
		return nil, hongbao.Errorf(hongbao.ClassTransient, "this server is ending: send the request to another one")
	case len(t.named) >= maxTasks:
		return nil, hongbao.Errorf(hongbao.ClassTransient, "this server already runs %d tasks: wait until one ends", maxTasks)
	}
	ctx, stop := context.WithCancel(t.ctx)
	x := &task{job: *j, all: t, begun: time.Now(), stop: stop, done: make(chan struct{})}
	t.named[j.name] = x
	t.wg.Go(func() {
		defer stop()
		x.err = guard.Call(t.log, func() (err error) {
			x.answer, err = do(ctx)
			return err
		})
		if left := t.end(x); left && x.err == nil && x.keep != nil {
			defer t.forget(x)
			_ = guard.Call(t.log, func() error { x.keep(ctx, x.answer); return nil }) // a repeat does the work again
		} else if left && x.err != nil && ctx.Err() == nil {
			t.log.Warn("a task failed after its caller got an answer 202", zap.String("task", j.name), zap.Error(x.err))
		}
	})
	return x, nil
}

// end wakes all who wait for the task. It reports whether a caller got an answer 202. The task keeps its name until its
// answer is stored, if it must be stored.
func (t *tasks) end(x *task) (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(x.done)
	if !x.left || x.err != nil || x.keep == nil {
		delete(t.named, x.name)
	}
	return x.left
}

func (t *tasks) forget(x *task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.named, x.name)
}

// running returns the task with a name, or nil if it does not run on this server.
func (t *tasks) running(name string) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named[name]
}

// replays returns the tasks that run the replay with a name. If the name is empty, it returns those of all
// replays.
func (t *tasks) replays(name string) (all []*task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.named {
		if x.replay != nil && (name == "" || x.replay.Name == name) {
			all = append(all, x)
		}
	}
	return all
}

// errStillRuns is returned by wait if the task is still running.
var errStillRuns = errors.New("the task continues")

// wait waits for a task's answer. After the duration most it returns errStillRuns.
func (x *task) wait(ctx context.Context, most time.Duration) (any, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-x.done:
		return x.answer, x.err
	case <-timer.C:
	case <-ctx.Done():
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	select {
	case <-x.done: // just now
		return x.answer, x.err
	default:
		x.left = true
		return nil, errStillRuns
	}
}
