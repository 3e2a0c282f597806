package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	// lookEvery is how often Redis is asked what became of what a killed worker held.
	lookEvery = 50 * time.Millisecond
	// huntEvery and huntFor: so often, and for so long, it is looked for a worker that holds something.
	huntEvery, huntFor = 2 * time.Millisecond, 2 * time.Second
	// lastCalls is how long calls that a killed worker had sent may still reach Redis.
	lastCalls = 50 * time.Millisecond
	// slack is for clocks: an entry that left a killed worker so much before its lease ended was finished by a last call.
	slack = 100 * time.Millisecond
)

// held is what a killed worker held for a sink on a shard.
type held struct {
	sink     string
	shard    *store.Shard
	consumer string
	ends     time.Time // of its lease on the first entry
	entries  map[string]seqs
	left     map[string]seqs // that nobody has taken yet
}

// seqs are the events of an entry that were not done when the worker was killed.
type seqs []int64

func (h *held) grants(of map[string]seqs) (n int64) {
	for _, s := range of {
		n += int64(len(s))
	}
	return n
}

// killWorker kills the worker that holds most.
func (f *Faults) killWorker(ctx context.Context) error {
	victim, err := f.victim(ctx)
	if err != nil {
		return err
	}
	if err := f.cfg.Workers.Kill(victim.Number); err != nil {
		return fmt.Errorf("kill worker %d: %w", victim.Number, err)
	}
	killed := time.Now()
	f.Tell("Worker %d is killed with SIGKILL (process %d).", victim.Number, victim.PID)
	return f.begin(ctx, func(ctx context.Context) {
		f.failed(ctx, fmt.Sprintf("What worker %d held can't be followed", victim.Number), f.takeOver(ctx, victim, killed))
	})
}

// victim is the worker that holds the most entries. It waits a moment for one that holds any: workers are quick, and a
// kill in the middle of work shows more. While Kafka is cut off, entries for Kafka count only: these show the most.
func (f *Faults) victim(ctx context.Context) (w local.Worker, err error) {
	until := time.Now().Add(huntFor)
	sinks := []string{f.cfg.Balance, f.cfg.Kafka}
	if f.KafkaIsCut() {
		sinks = []string{f.cfg.Kafka}
	}
	err = retry.Poll(ctx, huntEvery, func() (bool, error) {
		all := slices.DeleteFunc(f.cfg.Workers.List(), func(w local.Worker) bool { return w.PID == 0 })
		if len(all) == 0 {
			return false, hongbao.Errorf(hongbao.ClassConflict, "no worker runs; those that were killed come back by themselves")
		}
		holds := map[int]int64{}
		err := f.each(sinks, func(sink string, shard *store.Shard) error {
			workers, err := shard.Workers(ctx, sink)
			for _, w := range workers {
				holds[processOf(w.Name)] += w.Holds
			}
			return err
		})
		w = slices.MaxFunc(all, func(a, b local.Worker) int { return int(holds[a.PID] - holds[b.PID]) })
		return holds[w.PID] > 0 || time.Now().After(until), err
	})
	return w, err
}

// each calls do for each of the sinks and each shard. A group that is not there yet is passed over.
func (f *Faults) each(sinks []string, do func(sink string, shard *store.Shard) error) error {
	for _, sink := range sinks {
		for i := range f.cfg.Store.Len() {
			err := do(sink, f.cfg.Store.Shard(i))
			if err != nil && !errors.Is(err, store.ErrNoGroup) {
				return err
			}
		}
	}
	return nil
}

// processOf is the PID in a worker's name: host, PID and something random, separated by "-". 0 if there is none.
func processOf(consumer string) int {
	parts := strings.Split(consumer, "-")
	if len(parts) < 3 {
		return 0
	}
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil {
		return 0
	}
	return pid
}

// takeOver tells what becomes of what a killed worker held.
func (f *Faults) takeOver(ctx context.Context, dead local.Worker, killed time.Time) error {
	err := retry.Poll(ctx, lookEvery, func() (bool, error) { return f.now(dead.Number).PID != dead.PID, nil })
	if err != nil || !retry.Pause(ctx, lastCalls) {
		return err
	}
	list, err := f.heldBy(ctx, dead)
	if err != nil {
		return err
	}
	f.tellHeld(dead, list)
	if err := f.follow(ctx, dead, killed, list); err != nil {
		return err
	}
	f.audit(ctx)
	return nil
}

// now tells how a worker stands now.
func (f *Faults) now(number int) local.Worker {
	for _, w := range f.cfg.Workers.List() {
		if w.Number == number {
			return w
		}
	}
	return local.Worker{}
}

// heldBy reads what a process holds.
func (f *Faults) heldBy(ctx context.Context, w local.Worker) (list []*held, err error) {
	err = f.each([]string{f.cfg.Balance, f.cfg.Kafka}, func(sink string, shard *store.Shard) error {
		workers, err := shard.Workers(ctx, sink)
		if err != nil {
			return err
		}
		for _, c := range workers {
			if processOf(c.Name) != w.PID || c.Holds == 0 {
				continue
			}
			h, err := f.read(ctx, &held{sink: sink, shard: shard, consumer: c.Name})
			if err != nil {
				return err
			}
			if len(h.entries) > 0 {
				list = append(list, h)
			}
		}
		return nil
	})
	return list, err
}

// read fills in what the consumer holds.
func (f *Faults) read(ctx context.Context, h *held) (*held, error) {
	asked := time.Now()
	hand, err := h.shard.Hand(ctx, h.sink, h.consumer)
	if err != nil || len(hand.Entries) == 0 {
		return h, err
	}
	first, last := hand.Entries[0], hand.Entries[len(hand.Entries)-1]
	entries, err := h.shard.Entries(ctx, first.ID, last.ID)
	if err != nil || len(entries) == 0 {
		return h, err
	}
	events := stream.SeqRange{First: entries[0].Seq, Last: entries[len(entries)-1].Last()}
	done, err := h.shard.GroupDone(ctx, h.sink, events)
	if err != nil {
		return h, err
	}
	h.entries, h.left = map[string]seqs{}, map[string]seqs{}
	open := map[string]seqs{}
	for i := range entries {
		for j := range entries[i].Grants {
			if seq := entries[i].Grants[j].Seq; !done.Has(seq) {
				open[entries[i].ID] = append(open[entries[i].ID], seq)
			}
		}
	}
	idle := time.Duration(0)
	for _, e := range hand.Entries {
		h.entries[e.ID], h.left[e.ID] = open[e.ID], open[e.ID]
		idle = max(idle, e.Idle)
	}
	h.ends = asked.Add(f.cfg.Lease - idle) // the true end is a little later: nobody may take an entry before this
	return h, nil
}

// tellHeld tells what a killed worker held, by sink.
func (f *Faults) tellHeld(dead local.Worker, list []*held) {
	if len(list) == 0 {
		f.Tell("Worker %d held nothing: nobody has to wait for its lease.", dead.Number)
		return
	}
	for _, sink := range []string{f.cfg.Balance, f.cfg.Kafka} {
		var grants, entries int64
		var ends time.Time
		for _, h := range list {
			if h.sink != sink {
				continue
			}
			grants, entries = grants+h.grants(h.entries), entries+int64(len(h.entries))
			if ends.IsZero() || h.ends.Before(ends) {
				ends = h.ends
			}
		}
		if entries > 0 {
			f.Tell("Worker %d held %s in %s for sink %s; its lease ends in %s.", dead.Number, many(grants, "grant"),
				many(entries, "entry"), sink, lasts(time.Until(ends)))
		}
	}
}

// follow tells who takes what a killed worker held, when it is done, and when the worker is back.
func (f *Faults) follow(ctx context.Context, dead local.Worker, killed time.Time, list []*held) error {
	takes := map[take]int64{}
	back := f.backTeller(dead)
	err := retry.Poll(ctx, lookEvery, func() (bool, error) {
		back()
		var left int64
		for _, h := range list {
			if len(h.left) == 0 {
				continue
			}
			if err := f.look(ctx, h, takes); err != nil {
				return false, err
			}
			left += int64(len(h.left))
		}
		return left == 0, nil
	})
	if err != nil {
		return err
	}
	var all int64
	for _, t := range sorted(takes) {
		all += takes[t]
		f.Tell("%s takes %s of worker %d for sink %s, %s after the kill.", t.who, many(takes[t], "grant"), dead.Number, t.sink,
			lasts(time.Since(killed)))
	}
	err = retry.Poll(ctx, lookEvery, func() (bool, error) {
		back()
		return f.allDone(ctx, list)
	})
	if err != nil {
		return err
	}
	if all > 0 {
		f.Tell("Everything that worker %d held is done, %s after the kill.", dead.Number, lasts(time.Since(killed)))
	}
	return retry.Poll(ctx, lookEvery, func() (bool, error) { return back(), nil })
}

// backTeller makes a function that tells, once, that a killed worker is back; it answers whether it is.
func (f *Faults) backTeller(dead local.Worker) func() bool {
	told := false
	return func() bool {
		if pid := f.now(dead.Number).PID; !told && pid != 0 {
			f.Tell("Worker %d is back (process %d).", dead.Number, pid)
			told = true
		}
		return told
	}
}

// take says who took, and for which sink.
type take struct{ sink, who string }

func sorted(takes map[take]int64) []take {
	var all []take
	for t := range takes {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b take) int { return strings.Compare(a.sink+a.who, b.sink+b.who) })
	return all
}

// look finds the entries that left the killed worker's hand. Who leads at that instant has taken them: nobody else may.
func (f *Faults) look(ctx context.Context, h *held, takes map[take]int64) error {
	hand, err := h.shard.Hand(ctx, h.sink, h.consumer)
	if err != nil {
		return err
	}
	still := map[string]bool{}
	for _, e := range hand.Entries {
		still[e.ID] = true
	}
	for id, open := range h.left {
		switch {
		case still[id]:
			continue
		case time.Now().Before(h.ends.Add(-slack)): // the worker had finished it; its last call was on its way
			delete(h.entries, id)
		default:
			takes[take{h.sink, f.nameOf(hand.Leader)}] += int64(len(open))
		}
		delete(h.left, id)
	}
	return nil
}

// nameOf names a worker for people.
func (f *Faults) nameOf(consumer string) string {
	for _, w := range f.cfg.Workers.List() {
		if w.PID != 0 && w.PID == processOf(consumer) {
			return fmt.Sprintf("Worker %d", w.Number)
		}
	}
	return "Another worker"
}

// allDone tells whether the sinks have finished all that was held.
func (f *Faults) allDone(ctx context.Context, list []*held) (bool, error) {
	for _, h := range list {
		for _, open := range h.entries {
			if len(open) == 0 {
				continue
			}
			done, err := h.shard.GroupDone(ctx, h.sink, stream.SeqRange{First: open[0], Last: open[len(open)-1]})
			if err != nil {
				return false, err
			}
			for _, seq := range open {
				if !done.Has(seq) {
					return false, nil
				}
			}
		}
	}
	return true, nil
}
