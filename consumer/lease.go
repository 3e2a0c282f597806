package consumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// lease renews this worker's ownership of the entries of one batch while the handler works on them.
type lease struct {
	s      *shard
	ctx    context.Context // the handler's context: ends when the lease is lost or the drain time is over
	cancel context.CancelCauseFunc
	drain  context.Context // Run's context: its end starts the drain time

	gaveBack bool

	mu       sync.Mutex
	items    []item    // the items to renew: the current batch and the batches after it
	calling  time.Time // when the current call of the handler began; zero if none runs
	renewed  time.Time
	reported atomic.Bool     // the loss of the lease was logged and counted
	deleted  map[string]bool // ids of entries that were deleted from the stream and have been reported
	wg       sync.WaitGroup
}

var (
	errLeaseLost = errors.New("the lease is lost: another worker may have the entries")
	errStuck     = errors.New("the handler makes no progress: its lease is no longer renewed")
	errDrainOver = errors.New("the drain time is over")
)

func (s *shard) lease(drain context.Context, items []item) *lease {
	l := &lease{s: s, drain: drain, items: items, renewed: time.Now(), deleted: map[string]bool{}}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(drain))
	l.wg.Go(l.keep)
	return l
}

// end stops the renewal and waits until its goroutines have ended.
func (l *lease) end() {
	l.cancel(nil)
	l.wg.Wait()
}

// giveBack subtracts the current attempt from the entries, once per lease, because a sink that is down did not try
// them. Otherwise, if workers were killed repeatedly during an outage, grants that the sink never tried would become
// dead letters.
func (l *lease) giveBack() {
	if l.gaveBack {
		return
	}
	var list []store.Parking
	for _, it := range l.owned() {
		list = append(list, store.Parking{ID: it.ID, Level: store.Stay, Attempts: it.Attempt - 1})
	}
	if _, err := l.s.group().Park(l.ctx, l.s.cfg.Consumer, list); err != nil {
		l.s.log.Warn("attempts could not be given back; the next outage tries it again", zap.Error(err))
		return
	}
	l.gaveBack = true
}

// owned returns the items to renew.
func (l *lease) owned() []item {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items
}

// drop removes the items of batch from the lease, so they are no longer renewed. batch must be the first of the
// remaining items.
func (l *lease) drop(batch []item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = l.items[len(batch):]
}

// keep renews the lease every third of its length until the batch ends. It also checks whether the last renewal is a
// whole lease ago, and then gives the lease up, even if a renewal hangs.
func (l *lease) keep() {
	tick, look := time.NewTicker(l.s.cfg.Lease/3), time.NewTicker(l.s.cfg.Lease/12)
	defer tick.Stop()
	defer look.Stop()
	idle := make(chan struct{}, 1) // a token: only one renewal runs at a time
	idle <- struct{}{}
	drained := l.drain.Done()
	var deadline <-chan time.Time
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-drained:
			drained = nil
			timer := time.NewTimer(l.s.cfg.DrainTimeout)
			defer timer.Stop()
			deadline = timer.C
		case <-deadline:
			l.cancel(errDrainOver)
			return
		case <-look.C:
			l.expire(time.Now())
		case <-tick.C:
			select {
			case <-idle:
				l.wg.Go(func() {
					l.renew()
					idle <- struct{}{}
				})
			default:
			}
		}
	}
}

// stuck reports whether the lease was given up because the handler made no progress.
func (l *lease) stuck() bool { return errors.Is(context.Cause(l.ctx), errStuck) }

// lost reports whether the lease is lost. It checks the clock first, because a process that was suspended may not have
// noticed the loss.
func (l *lease) lost() bool {
	if l.ctx.Err() == nil {
		l.expire(time.Now())
	}
	return l.stuck() || errors.Is(context.Cause(l.ctx), errLeaseLost)
}

// expire gives up the lease if the last renewal is a whole lease ago, and reports whether it did.
func (l *lease) expire(now time.Time) bool {
	l.mu.Lock()
	renewed, held := l.renewed, len(l.items)
	l.mu.Unlock()
	age := stream.Age(now, renewed)       // a machine that slept has lost its lease too
	if held == 0 || age < l.s.cfg.Lease { // nothing is left to renew while the last batch is finished
		return false
	}
	l.lose(errLeaseLost, zap.Duration("without renewal for", age))
	return true
}

// called records when the current call of the handler began; the zero time means that no call runs.
func (l *lease) called(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calling = since
}

func (l *lease) renew() {
	l.mu.Lock()
	items, calling := l.items, l.calling
	l.mu.Unlock()
	if !calling.IsZero() && time.Since(calling) > l.s.cfg.HandleTimeout+l.s.cfg.Lease/3 {
		l.lose(errStuck, zap.Duration("the handler has not returned for", time.Since(calling)))
		return
	}
	if len(items) == 0 {
		return
	}
	ids := make([]string, len(items))
	for i := range items {
		ids[i] = items[i].ID
	}
	at := time.Now()
	if l.expire(at) {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.s.cfg.Lease/3)
	defer cancel()
	states, err := l.s.group().Renew(ctx, l.s.cfg.Consumer, ids)
	if errors.Is(err, store.ErrStale) {
		l.lose(errLeaseLost, zap.Error(err))
		return
	}
	if err != nil {
		if l.ctx.Err() == nil {
			l.s.log.Warn("the lease could not be renewed; trying again", zap.Error(err))
		}
		return
	}
	l.mu.Lock()
	l.renewed = at
	finished := len(items) - len(l.items) // meanwhile
	l.mu.Unlock()
	var gone []string
	for i, state := range states {
		switch {
		case i < finished:
		case state == store.Gone && !l.deleted[ids[i]]:
			l.deleted[ids[i]] = true
			gone = append(gone, ids[i])
		case state == store.Lost:
			l.lose(errLeaseLost, zap.String("entry", ids[i]))
			return
		}
	}
	l.s.vanished(gone)
}

// lose cancels the handler's context with the cause. The first call also counts and logs the loss.
func (l *lease) lose(cause error, why zap.Field) {
	l.cancel(cause)
	if !errors.Is(context.Cause(l.ctx), cause) || l.reported.Swap(true) {
		return
	}
	l.s.c.count.leasesLost.Add(1)
	l.s.log.Warn("lease lost: the batch is cancelled, and its new owner finishes it", why)
}
