package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// maxTasks bounds how many tasks a server runs at once.
const maxTasks = 64

// tasks are long calls that continue after their request was answered. A task has a name. While the task is running,
// other callers with the same request wait for the same task.
type tasks struct {
	ctx  context.Context //nolint:containedctx // of all tasks: they outlive their requests
	stop context.CancelFunc
	wg   sync.WaitGroup
	log  *zap.Logger

	mu    sync.Mutex
	named map[string]*task
}

// job is the work of a task.
type job struct {
	name string
	// order distinguishes jobs with the same name: while a task is running, another order under its name is refused.
	order string
	// replay is the replay that the job runs; nil for another job.
	replay *app.Replay
	do     func(ctx context.Context) (any, error)
}

// task is one call. answer and err are set once done is closed.
type task struct {
	job

	all    *tasks
	begun  time.Time
	stop   context.CancelFunc
	left   bool // a caller got the answer that it continues; under the lock of all
	done   chan struct{}
	answer any
	err    error
}

func newTasks(log *zap.Logger) *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop, log: log, named: map[string]*task{}}
}

// close ends all tasks and waits for them.
func (t *tasks) close() {
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.wg.Wait()
}

// start begins a task, or returns the running task that does the same.
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
		x.answer, x.err = do(ctx)
		t.mu.Lock()
		delete(t.named, j.name)
		close(x.done)
		unheard := x.left && x.err != nil && ctx.Err() == nil
		t.mu.Unlock()
		if unheard {
			t.log.Warn("a task failed after its caller got an answer 202", zap.String("task", j.name), zap.Error(x.err))
		}
	})
	return x, nil
}

// running returns the task of that name; nil if it does not run here.
func (t *tasks) running(name string) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named[name]
}

// replays returns the tasks that run a replay of that name, or of any name if it is empty.
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

// errStillRuns says that a task continues.
var errStillRuns = errors.New("the task continues")

// wait waits at most this long for a task's answer; errStillRuns if it has none by then.
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
