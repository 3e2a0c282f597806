package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// present returns the sinks that a process has which starts now.
func (w *world) present() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.sinks)
}

// sinkKnobs are the knobs of a history in which a sink comes or goes: what is finished is trimmed at once.
func (w *world) sinkKnobs(set map[string]string) {
	set["deployment.sinks"] = strings.Join(w.present(), ",")
	if w.plan.changesSinks() {
		set["trimmer.retention"], set["trimmer.every"] = "0s", "300ms"
	}
}

// falseAlarm returns an error if a trimmer says that somebody has deleted events from the stream. Nobody does.
func (w *world) falseAlarm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.alarms["events_lost"]; n > 0 && len(w.accepted) == 0 {
		return fmt.Errorf("the alarm events_lost was raised %d times, and nobody has deleted events", n)
	}
	return nil
}

// roll replaces the workers by workers of these sinks, one after another.
func (w *world) roll(ctx context.Context, sinks ...string) error {
	w.mu.Lock()
	w.sinks = sinks
	w.mu.Unlock()
	for i := range w.plan.Workers {
		s := w.slots[fmt.Sprintf("w%d", i)]
		var told *virtual.Proc
		for end := time.Now().Add(patience); ; {
			s.mu.Lock()
			proc, has := s.proc, s.sinks
			s.mu.Unlock()
			if slices.Equal(has, sinks) {
				break
			}
			if proc != told {
				told = proc
				if err := w.toProcess(ctx, &Deed{What: Stop, Who: s.name}); err != nil {
					return err
				}
			}
			if time.Now().After(end) {
				w.bug("worker %s does not stop", s.name)
				return errors.New("a worker does not stop")
			}
			if err := virtual.Sleep(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	w.note("the workers have the sinks %v", sinks)
	return nil
}

// remove removes sink kafka as docs/design/consumer.md says: the workers restart without it, then its groups are
// deleted.
func (w *world) remove(ctx context.Context) error {
	w.mu.Lock()
	w.owedAfter = nil
	w.mu.Unlock()
	if err := w.roll(ctx, balanceSink); err != nil {
		return err
	}
	return w.persist(ctx, "XGROUP DESTROY", "", func(ctx context.Context, a *app.App) error {
		for _, k := range a.Store().Shards() {
			err := a.Store().Redis().XGroupDestroy(ctx, k.Keys.Events(), kafkaSink).Err()
			if err != nil && !strings.Contains(err.Error(), "requires the key to exist") { // Redis has lost the stream
				return err
			}
		}
		return nil
	})
}

// add adds sink kafka. It returns once every shard has a group, and the ledger a record of what it owes.
func (w *world) add(ctx context.Context) error {
	if err := w.roll(ctx, balanceSink, kafkaSink); err != nil {
		return err
	}
	return w.persist(ctx, "add sink kafka", "", func(ctx context.Context, a *app.App) error {
		after := map[int]int64{}
		for _, k := range a.Store().Shards() {
			begin, err := k.Group(kafkaSink).Begin(ctx)
			if err != nil {
				return err
			}
			owed, err := deliveries.Of(a).Debts().Owed(ctx, k.Index())
			if err != nil {
				return err
			}
			o := owed[kafkaSink] // a group that owes everything has no record, if the ledger failed when it began
			if !begin.Exists || o == nil && begin.First > 1 || o != nil && !o.Now() {
				return errors.New("no worker has recorded what sink kafka owes")
			}
			head, err := k.OpenHead(ctx)
			if err != nil {
				return err
			}
			after[k.Index()] = head.Seq
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.owedAfter = after
		return nil
	})
}
