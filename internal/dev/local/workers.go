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

// WorkersConfig configures Workers. All fields but Rest are required.
type WorkersConfig struct {
	Program string     // path of hongbao
	Args    [][]string // the arguments of each worker
	Env     []string
	Folder  string        // the folder of the logs worker-1.log, worker-2.log and so on
	Rest    time.Duration // how long a worker stays down before it is restarted
	Say     Say
}

// Workers runs `hongbao work` in child processes with the numbers 1, 2, 3 and so on. A worker that ends by itself or is
// killed is restarted after Rest. The methods are safe for concurrent use, but call While only once.
type Workers struct {
	cfg WorkersConfig

	mu  sync.Mutex
	all []*worker
}

// worker is one child process. cmd is nil while it is down.
type worker struct {
	cmd    *exec.Cmd
	killed bool
	starts int
}

// NewWorkers returns the workers without starting them.
func NewWorkers(cfg WorkersConfig) *Workers {
	w := &Workers{cfg: cfg}
	for range cfg.Args {
		w.all = append(w.all, &worker{})
	}
	return w
}

// Worker is the state of a worker.
type Worker struct {
	Number int
	// PID is 0 while the worker is down. The names of the process's consumers in Redis contain the PID.
	PID int
	// Starts counts how often the worker was started.
	Starts int
}

// List returns the state of every worker in the order of the numbers.
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

// Kill ends a worker by SIGKILL, as a crash would. The worker is restarted after Rest.
func (w *Workers) Kill(number int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if number < 1 || number > len(w.all) {
		return app.Usage("there is no worker %d: the workers have the numbers 1 to %d", number, len(w.all))
	}
	one := w.all[number-1]
	if one.cmd == nil {
		return app.Usage("worker %d is down: it restarts within %s", number, w.cfg.Rest)
	}
	if err := one.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill worker %d: %w", number, err)
	}
	one.killed = true
	return nil
}

// While runs the workers while do runs. When do returns, it lets the workers drain. If a worker can't be started, it
// cancels the context of do.
func (w *Workers) While(ctx context.Context, do func(context.Context) error) error {
	doing, cancel := context.WithCancel(ctx)
	defer cancel()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	errs := make([]error, len(w.all))
	var running sync.WaitGroup
	for i, one := range w.all {
		running.Go(func() {
			if errs[i] = w.keep(working, i+1, one); errs[i] != nil {
				cancel()
			}
		})
	}
	err := do(doing)
	stop()
	running.Wait()
	return errors.Join(err, errors.Join(errs...))
}

// keep runs one worker and restarts it whenever it ends.
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
			w.cfg.Say("worker %d has ended by itself: %v; it restarts in %s; its log: %s", number, err, w.cfg.Rest,
				w.log(number))
		}
		if !retry.Pause(ctx, w.cfg.Rest) {
			return nil
		}
	}
}

func (w *Workers) log(number int) string {
	return filepath.Join(w.cfg.Folder, fmt.Sprintf("worker-%d.log", number))
}

// start starts a worker. The channel ended gets the process's exit error.
func (w *Workers) start(number int, one *worker) (ended <-chan error, err error) {
	log, err := os.OpenFile(w.log(number), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of worker %d: %w", number, err)
	}
	cmd := exec.Command(w.cfg.Program, w.cfg.Args[number-1]...)
	cmd.Env, cmd.Stderr = w.cfg.Env, log
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

// drain asks a worker to stop and waits until the worker has finished its work.
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
		return nil // stopped before it handled signals, so it had no work yet
	}
	if err != nil {
		return fmt.Errorf("worker %d: %w; its log: %s", number, err, w.log(number))
	}
	return nil
}
