package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const (
	replayName = "soak"
	replayTime = 6 // seconds that the replay takes without kills
)

// replay copies all events to a fresh topic, in a process that it kills ten times, each time after more grants. Then it
// reads the whole topic.
func (s *soak) replay(ctx context.Context) error {
	batch := max(1, min(500, s.outcome.Granted/(20*(replayKills+1))))
	args := []string{
		"replay", replayName, "--to", "topic:" + fresh, "--rate", fmt.Sprint(max(1, s.outcome.Granted/replayTime)),
		"--publisher.batch_grants", fmt.Sprint(batch), "--json",
	}
	var before, hit int64
	for s.outcome.ReplayKills < replayKills {
		at, err := s.killReplay(ctx, args, killAt(s.outcome.ReplayKills+1, s.outcome.Granted, before))
		if err != nil {
			return err
		}
		if at.done >= s.outcome.Granted {
			return fmt.Errorf("the replay had delivered everything before kill %d, so this kill tests nothing",
				s.outcome.ReplayKills+1)
		}
		s.outcome.ReplayKills++
		before, hit = at.done, hit+at.open
		s.say("killed the replay at %d of %d grants, with %d open batches", at.done, s.outcome.Granted, at.open)
	}
	err := s.finishReplay(ctx, args, before)
	if hit == 0 {
		err = errors.Join(err, errors.New("no kill hit a replay with an open batch, so the run tests nothing"))
	}
	t, err2 := s.count(ctx, fresh)
	if err = errors.Join(err, err2); t == nil {
		return err
	}
	s.outcome.Replayed, s.outcome.ReplayDuplicates, s.outcome.ReplayMissing = t.events, t.duplicates, t.missing()
	return err
}

// killAt returns the number of delivered grants before kill k. The kills are spread evenly, and each comes after more
// grants than the previous one.
func killAt(k, all, before int64) int64 { return max(k*all/(replayKills+1), before+1) }

// progress has the number of grants that the replay has delivered, and the number of its open batches, both from Redis.
type progress struct{ done, open int64 }

func (s *soak) progress(ctx context.Context) (progress, error) {
	v := &s.servers
	sink := replay.DoneSink(replayName)
	var bits []*redis.IntCmd
	var claims []*redis.IntCmd
	var fences []*redis.BoolCmd
	seqs := make([]int64, v.store.Len())
	for shard := range seqs {
		h, err := v.store.Shard(shard).Head(ctx)
		if err != nil {
			return progress{}, fmt.Errorf("read how far the replay can get: %w", err)
		}
		seqs[shard] = h.Seq
	}
	_, err := v.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for shard := range v.store.Len() {
			k := v.store.Shard(shard)
			for chunk := range seqs[shard]/store.ChunkEvents + 1 {
				bits = append(bits, p.BitCount(ctx, k.Keys.Done(sink, chunk), nil))
			}
			claims = append(claims, p.HLen(ctx, k.Keys.Claims(sink)))
			fences = append(fences, p.HExists(ctx, k.Keys.Claims(sink), "#fence"))
		}
		return nil
	})
	var at progress
	for _, c := range bits {
		at.done += c.Val()
	}
	for i, c := range claims {
		at.open += c.Val()
		if fences[i].Val() {
			at.open--
		}
	}
	if err != nil {
		return at, fmt.Errorf("read the progress of the replay: %w", store.Classify(err))
	}
	return at, nil
}

// killReplay starts the replay, and kills it after target grants, if possible while a batch is open. It returns the
// progress at the kill.
func (s *soak) killReplay(ctx context.Context, args []string, target int64) (progress, error) {
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Env = testkit.Environ(s.env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return progress{}, fmt.Errorf("start the replay: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err := s.reach(ctx, target, ended)
	if errors.Is(err, errEnded) {
		return progress{}, fmt.Errorf("%w: %s", err, log.Bytes())
	}
	_ = cmd.Process.Kill() // the replay may have ended
	died := <-ended
	if err != nil {
		return progress{}, err
	}
	var exit *exec.ExitError
	if !errors.As(died, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL { //nolint:forcetypeassert // on Linux
		return progress{}, fmt.Errorf("%w: %s", errors.Join(errEnded, died), log.Bytes())
	}
	return s.progress(ctx)
}

var errEnded = errors.New("the replay ended by itself before it was killed")

// reach waits until the replay has delivered target grants. Then it waits until a batch is open, but not beyond half of
// the distance to the next kill.
func (s *soak) reach(ctx context.Context, target int64, ended <-chan error) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("the replay did not deliver %d grants in %s", target, patience))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		at, err := s.progress(ctx)
		if err != nil {
			return err
		}
		if at.done >= target && (at.open > 0 || at.done >= target+s.outcome.Granted/(2*(replayKills+1))) {
			return nil
		}
	}
}

// finishReplay runs the replay to its end, and once more. The second run must deliver nothing.
func (s *soak) finishReplay(ctx context.Context, args []string, before int64) error {
	for _, last := range []bool{false, true} {
		out, err := s.hongbao(ctx, args...)
		if err != nil {
			return err
		}
		var r model.ReplayReport
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("read the replay's report: %w", err)
		}
		s.say("replay: %d delivered, %d before, %d events behind it, %d from the stream, %d from the ledger", r.Delivered,
			r.Before, r.Resumed, r.FromStream, r.FromLedger)
		if last {
			before = s.outcome.Granted
			if r.Resumed > 0 {
				return fmt.Errorf("the run after the end looked at a part only: %+v", r)
			}
		}
		if err := judgeReport(&r, s.outcome.Granted, before); err != nil {
			return err
		}
	}
	return nil
}

// judgeReport requires that all granted grants are delivered, and that at least before of them were delivered by
// earlier runs. A report does not list the events of earlier runs, only their number. A run after the end reads
// everything again.
func judgeReport(r *model.ReplayReport, granted, before int64) error {
	missing := r.Matched > granted || r.Matched+r.Resumed < granted || r.Before+r.Delivered != r.Matched
	if !r.Finished || missing || r.Before+r.Resumed < before {
		return fmt.Errorf("the replay's report does not fit: want %d grants delivered, at least %d of them before; it says "+
			"%+v", granted, before, *r)
	}
	return nil
}
