package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// newWorkers returns workers that are restarted at once when they end.
func (s *soak) newWorkers() *local.Workers {
	cfg := local.WorkersConfig{Program: s.program, Env: testkit.Environ(s.env...), Folder: s.dir, Say: s.say}
	for _, sink := range s.sinks {
		cfg.Args = append(cfg.Args, []string{"work", "--sink", sink})
	}
	return local.NewWorkers(cfg)
}

// harass kills or stops a worker every one and a half seconds until over is closed. It kills three times as often as it
// stops.
func (s *soak) harass(ctx context.Context, over <-chan struct{}) (err error) {
	tick := time.NewTicker(1500 * time.Millisecond)
	defer tick.Stop()
	stopped, woken := 0, make(chan error, 1) // stopped is a worker's number, 0 for none
	defer func() {
		if stopped > 0 {
			err = errors.Join(err, <-woken)
		}
	}()
	for turn := 0; ; turn++ {
		select {
		case <-over:
			return nil
		case err := <-woken:
			if stopped = 0; err != nil {
				return err
			}
			continue
		case <-tick.C:
		}
		number := 1 + rand.N(len(s.sinks))
		if number == stopped {
			number = 1 + number%len(s.sinks)
		}
		if s.workers.List()[number-1].PID == 0 { // the worker is just restarting
			continue
		}
		if turn%4 == 1 && stopped == 0 {
			if err := s.countIfBusy(ctx, s.sinks[number-1], &s.busyStops); err != nil {
				return err
			}
			stopped = number
			go func() { woken <- s.pause(ctx, number) }()
		} else if err := s.kill(ctx, number); err != nil {
			return err
		}
	}
}

// countIfBusy increments busy if the group has pending or undelivered entries on any shard. It is called just before a
// fault.
func (s *soak) countIfBusy(ctx context.Context, group string, busy *int64) error {
	v, ctx := &s.servers, context.WithoutCancel(ctx)
	for i := range shardCount {
		events := v.store.Shard(i).Keys.Events()
		there, err := v.rdb.Exists(ctx, events).Result()
		if err == nil && there == 0 {
			continue
		}
		groups, err2 := v.rdb.XInfoGroups(ctx, events).Result()
		err = errors.Join(err, err2)
		if err != nil && s.lose != "" { // unknown during a failover
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the groups of shard %d: %w", i, err)
		}
		if hasWork(groups, group) {
			*busy++
			return nil
		}
	}
	return nil
}

// hasWork reports whether the group has pending or undelivered entries. An unknown lag, -1, counts as none.
func hasWork(groups []redis.XInfoGroup, name string) bool {
	return slices.ContainsFunc(groups,
		func(g redis.XInfoGroup) bool { return g.Name == name && (g.Pending > 0 || g.Lag > 0) })
}

// judgeBusy requires that at least half of the kills hit workers whose group had work.
func judgeBusy(busy, kills int64) error {
	if 2*busy < kills {
		return fmt.Errorf("only %d of %d kills hit a worker whose group had work: want half of them at least", busy, kills)
	}
	return nil
}

// kill kills a worker with SIGKILL. The worker is restarted at once.
func (s *soak) kill(ctx context.Context, number int) error {
	if err := s.countIfBusy(ctx, s.sinks[number-1], &s.busyKills); err != nil {
		return err
	}
	if err := s.workers.Kill(number); err != nil {
		return err
	}
	s.outcome.Kills++
	s.say("killed worker %d of %s", number, s.sinks[number-1])
	return nil
}

// pause stops a worker for longer than its lease, and wakes it. If ctx ends earlier, it wakes the worker at once and
// does not count the stop.
func (s *soak) pause(ctx context.Context, number int) error {
	pid := s.workers.List()[number-1].PID
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop worker %d: %w", number, err)
	}
	past := retry.Pause(ctx, lease+2*time.Second)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake worker %d: %w", number, err)
	}
	if past {
		s.outcome.Stops++
		s.say("stopped worker %d of %s past its lease and woke it", number, s.sinks[number-1])
	}
	return nil
}

// judgeStarts requires that no worker was restarted without a kill.
func judgeStarts(workers []local.Worker, kills int64) error {
	starts := -len(workers)
	for _, w := range workers {
		starts += w.Starts
	}
	if int64(starts) > kills {
		return fmt.Errorf("workers were started again %d times after %d kills: some ended without a kill; see their logs",
			starts, kills)
	}
	return nil
}

// took returns how many entries the workers took over, according to their logs.
func (s *soak) took() (int64, error) {
	logs, err := filepath.Glob(filepath.Join(s.dir, "*.log"))
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
