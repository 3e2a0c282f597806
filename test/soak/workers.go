package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// worker is a process that works for one sink. Its mutex is locked while it is stopped or replaced.
type worker struct {
	sync.Mutex
	sink string
	name string
	cmd  *exec.Cmd
	runs int
}

// workers has two workers for each sink.
type workers struct {
	s            *soak
	list         []*worker
	kills, stops int64
	// busyKills and busyStops count the faults that hit a worker whose group had work.
	busyKills, busyStops int64
}

func (w *workers) start(ctx context.Context) error {
	for i, sink := range []string{configs.SinkBalance, configs.SinkKafka, configs.SinkBalance, configs.SinkKafka} {
		one := &worker{sink: sink, name: fmt.Sprintf("%s-%d", sink, i/2)}
		w.list = append(w.list, one)
		if err := w.launch(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a worker's process, with its log in a file.
func (w *workers) launch(ctx context.Context, one *worker) error {
	one.runs++
	log, err := os.Create(filepath.Join(w.s.dir, fmt.Sprintf("%s.%03d.log", one.name, one.runs)))
	if err != nil {
		return fmt.Errorf("make a worker's log: %w", err)
	}
	one.cmd = exec.CommandContext(context.WithoutCancel(ctx), w.s.program, "work", "--sink", one.sink)
	one.cmd.Env = append(os.Environ(), w.s.env...)
	one.cmd.Stdout, one.cmd.Stderr = log, log
	one.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = one.cmd.Start()
	if err = errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start a worker: %w", err)
	}
	return nil
}

// harass kills or stops one worker every second and a half, three kills for each stop, until over is closed.
func (w *workers) harass(ctx context.Context, over <-chan struct{}) error {
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	stopped := make(chan error, 1)
	running := 0
	var err error
	for turn := 0; err == nil; turn++ {
		select {
		case <-over:
			for ; running > 0; running-- {
				err = errors.Join(err, <-stopped)
			}
			return err
		case err = <-stopped:
			running--
			continue
		case <-tick.C:
		}
		one := w.list[rand.N(len(w.list))]
		for !one.TryLock() { // that worker is stopped
			one = w.list[rand.N(len(w.list))]
		}
		if turn%4 != 1 || running > 0 {
			err = w.kill(ctx, one)
			one.Unlock()
			continue
		}
		if err = w.look(ctx, one, &w.busyStops); err != nil {
			one.Unlock()
			break
		}
		running++
		go func() {
			stopped <- w.pause(ctx, one)
			one.Unlock()
		}()
	}
	for ; running > 0; running-- {
		err = errors.Join(err, <-stopped)
	}
	return err
}

// look adds one to busy if the worker's group has pending or undelivered entries on any shard just before a fault.
func (w *workers) look(ctx context.Context, one *worker, busy *int64) error {
	v, ctx := &w.s.servers, context.WithoutCancel(ctx)
	for i := range shardCount {
		events := v.store.Shard(i).Keys.Events()
		there, err := v.rdb.Exists(ctx, events).Result()
		if err == nil && there == 0 {
			continue
		}
		groups, err2 := v.rdb.XInfoGroups(ctx, events).Result()
		err = errors.Join(err, err2)
		if err != nil && w.s.lose != "" { // a failover: the number is unknown
			return nil
		}
		if err != nil {
			return fmt.Errorf("look at the groups of shard %d: %w", i, err)
		}
		if hasWork(groups, one.sink) {
			*busy++
			return nil
		}
	}
	return nil
}

// hasWork reports whether the group has pending or undelivered entries. It ignores a lag that Redis does not know,
// -1.
func hasWork(groups []redis.XInfoGroup, name string) bool {
	return slices.ContainsFunc(groups,
		func(g redis.XInfoGroup) bool { return g.Name == name && (g.Pending > 0 || g.Lag > 0) })
}

// judgeBusy returns an error unless at least half of the kills hit workers that had work.
func judgeBusy(busy, kills int64) error {
	if 2*busy < kills {
		return fmt.Errorf("only %d of %d kills hit a worker whose group had work: want half of them at least", busy, kills)
	}
	return nil
}

// kill ends a worker as a crash does, and starts it again.
func (w *workers) kill(ctx context.Context, one *worker) error {
	if err := w.look(ctx, one, &w.busyKills); err != nil {
		return err
	}
	if err := one.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("worker %s ended before it was killed: %w; see its log", one.name, err)
	}
	var exit *exec.ExitError
	if err := one.cmd.Wait(); !errors.As(err, &exit) ||
		exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL { //nolint:forcetypeassert // on Linux
		return fmt.Errorf("worker %s ended by itself before it was killed: %w; see its log", one.name, err)
	}
	w.kills++
	w.s.say("killed %s", one.name)
	return w.launch(ctx, one)
}

// pause stops a worker for longer than its lease, and wakes it. If ctx ends sooner, it wakes the worker at once and
// counts no stop.
func (w *workers) pause(ctx context.Context, one *worker) error {
	if err := one.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop worker %s: %w", one.name, err)
	}
	past := retry.Pause(ctx, lease+2*time.Second)
	if err := one.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake worker %s: %w", one.name, err)
	}
	if past {
		w.stops++
		w.s.say("stopped %s past its lease and woke it", one.name)
	}
	return nil
}

// stop drains the workers. Each must end without an error.
func (w *workers) stop() error {
	var errs []error
	for _, one := range w.list {
		if one.cmd == nil || one.cmd.Process == nil {
			continue
		}
		errs = append(errs, one.cmd.Process.Signal(syscall.SIGTERM))
	}
	for _, one := range w.list {
		if one.cmd == nil || one.cmd.Process == nil {
			continue
		}
		if err := one.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("worker %s did not drain well: %w; see its log", one.name, err))
		}
	}
	return errors.Join(errs...)
}

// took returns how many entries the workers took over, by their logs.
func (w *workers) took() (int64, error) {
	logs, err := filepath.Glob(filepath.Join(w.s.dir, "*.log"))
	if err != nil {
		return 0, fmt.Errorf("find the workers' logs: %w", err)
	}
	var sum int64
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("read a worker's log: %w", err)
		}
		for line := range bytes.Lines(data) {
			var l struct {
				Message string `json:"message"`
				Entries int64  `json:"entries"`
			}
			// The last line of a killed worker may be incomplete.
			if json.Unmarshal(line, &l) == nil && strings.HasPrefix(l.Message, "reclaimed entries") {
				sum += l.Entries
			}
		}
	}
	return sum, nil
}
