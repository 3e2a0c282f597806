package control

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
)

// tasks are long calls that go on after their request was answered. A task has a name: while it runs, whoever asks for
// it again waits for the same one.
type tasks struct {
	ctx  context.Context //nolint:containedctx // of all tasks: they outlive their requests
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	named map[string]*task
}

// task is one call. answer and err are set once done is closed.
type task struct {
	stop   context.CancelFunc
	done   chan struct{}
	answer any
	err    error
}

func newTasks() *tasks {
	ctx, stop := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, stop: stop, named: map[string]*task{}}
}

// close ends all tasks and waits for them.
func (t *tasks) close() {
	t.mu.Lock()
	t.stop()
	t.mu.Unlock()
	t.wg.Wait()
}

// start begins a task, or gives the one of that name that runs.
func (t *tasks) start(name string, do func(ctx context.Context) (any, error)) (*task, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if x := t.named[name]; x != nil {
		return x, nil
	}
	if t.ctx.Err() != nil {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "this server ends: ask another one")
	}
	ctx, stop := context.WithCancel(t.ctx)
	x := &task{stop: stop, done: make(chan struct{})}
	t.named[name] = x
	t.wg.Go(func() {
		defer stop()
		x.answer, x.err = do(ctx)
		t.mu.Lock()
		delete(t.named, name)
		t.mu.Unlock()
		close(x.done)
	})
	return x, nil
}

// running gives the task of that name; nil if it does not run here.
func (t *tasks) running(name string) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named[name]
}

// errStillRuns says that a task goes on.
var errStillRuns = errors.New("it goes on")

// wait waits for a task's answer for a while; errStillRuns if it has none by then.
func (x *task) wait(ctx context.Context, most time.Duration) (any, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-x.done:
		return x.answer, x.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, errStillRuns
}
