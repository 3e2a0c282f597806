package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Workers are processes of `hongbao work`, children of this one: number 1, 2, 3 and so on. A worker that ends by itself
// or is killed is started again after Rest. The methods are safe for concurrent use; Run is called once.
type Workers struct {
	// Rest is how long a worker that has ended stays down.
	Rest time.Duration

	tell   *Teller
	env    []string
	config string // path of the configuration file
	folder string // for the logs

	mu  sync.Mutex
	all []*worker
}

// worker is one of them. cmd is nil while it is down.
type worker struct {
	cmd    *exec.Cmd
	killed bool
	starts int
}

// Worker is the state of a worker.
type Worker struct {
	Number int
	// PID is 0 while the worker is down. The names that Redis has for the process contain it.
	PID int
	// Starts counts how often it was started.
	Starts int
}

// List returns the state of every worker, by number.
func (w *Workers) List() []Worker {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Worker, len(w.all))
	for i, one := range w.all {
		out[i] = Worker{Number: i + 1, Starts: one.starts}
		if one.cmd != nil {
			out[i].PID = one.cmd.Process.Pid
		}
	}
	return out
}

// Kill ends a worker as a crash does, by SIGKILL. It is started again after Rest.
func (w *Workers) Kill(number int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number < 1 || number > len(w.all) {
		return app.Usage("there is no worker %d: they have the numbers 1 to %d", number, len(w.all))
	}
	one := w.all[number-1]
	if one.cmd == nil {
		return app.Usage("worker %d is away: it is started again within %s", number, w.Rest)
	}
	if err := one.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill worker %d: %w", number, err)
	}
	one.killed = true
	return nil
}

// Run starts every worker, and when ctx ends has them drain and waits for them.
func (w *Workers) Run(ctx context.Context) error {
	errs := make([]error, len(w.all))
	var running sync.WaitGroup
	for i, one := range w.all {
		running.Go(func() { errs[i] = w.keep(ctx, i+1, one) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// keep runs one worker, again and again.
func (w *Workers) keep(ctx context.Context, number int, one *worker) error {
	for {
		ended, err := w.start(number, one)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return w.drain(number, one, ended)
		case err = <-ended:
		}
		w.mu.Lock()
		killed := one.killed
		one.cmd, one.killed = nil, false
		w.mu.Unlock()
		if !killed {
			w.tell.Say("worker %d has ended by itself: %v; it is started again in %s; its log: %s", number, err, w.Rest,
				w.log(number))
		}
		if !retry.Pause(ctx, w.Rest) {
			return nil
		}
	}
}

func (w *Workers) log(number int) string {
	return filepath.Join(w.folder, fmt.Sprintf("worker-%d.log", number))
}

// start starts a worker; ended gets the result of its end.
func (w *Workers) start(number int, one *worker) (ended <-chan error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	log, err := os.OpenFile(w.log(number), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of worker %d: %w", number, err)
	}
	cmd := exec.Command(self, "work", "--config", w.config)
	cmd.Env, cmd.Stderr = w.env, log
	dieWithParent(cmd)
	err = cmd.Start()
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, fmt.Errorf("start worker %d: %w", number, err)
	}
	w.mu.Lock()
	one.cmd = cmd
	one.starts++
	w.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return done, nil
}

// drain makes a worker finish the work in hand, and waits for its end.
func (w *Workers) drain(number int, one *worker, ended <-chan error) error {
	if err := one.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop worker %d: %w", number, err)
	}
	err := <-ended
	var exit *exec.ExitError
	w.mu.Lock()
	killed := one.killed
	one.cmd = nil
	w.mu.Unlock()
	if killed || errors.As(err, &exit) && exit.Sys() == syscall.WaitStatus(syscall.SIGINT) {
		return nil // stopped before it could listen: it had no work in hand
	}
	if err != nil {
		return fmt.Errorf("worker %d: %w; its log: %s", number, err, w.log(number))
	}
	return nil
}

// newWorkers returns the workers; none is running yet.
func newWorkers(d *Deployment, o *Options) *Workers {
	w := &Workers{Rest: o.Rest, tell: o.Tell, env: o.Env, config: d.ConfigFile, folder: d.Dir}
	for range o.Workers {
		w.all = append(w.all, &worker{})
	}
	return w
}
