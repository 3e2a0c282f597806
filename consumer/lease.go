package consumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/store"
)

// lease keeps the entries of one batch ours while the handler works on them.
type lease struct {
	s      *shard
	ctx    context.Context // of the handler: ends when the lease is lost or the drain is over
	cancel context.CancelCauseFunc
	drain  context.Context // ends with Run's context: the worker then takes no more entries

	gaveBack bool

	mu       sync.Mutex
	items    []item    // the renewed items: the present batch and the batches after it
	calling  time.Time // since when the handler is being called; zero if it is not
	renewed  time.Time
	reported atomic.Bool     // the loss of the lease is reported
	gone     map[string]bool // ids of entries that were deleted from the stream meanwhile, and reported
	wg       sync.WaitGroup
}

var (
	errLeaseLost = errors.New("the lease is lost: another worker may have the entries")
	errStuck     = errors.New("the handler makes no progress: its lease is not renewed any more")
	errDrainOver = errors.New("the drain time is over")
)

func (s *shard) lease(drain context.Context, items []item) *lease {
	l := &lease{s: s, drain: drain, items: items, renewed: time.Now(), gone: map[string]bool{}}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(drain))
	l.wg.Go(l.keep)
	return l
}

// end stops the renewal and waits for it.
func (l *lease) end() {
	l.cancel(nil)
	l.wg.Wait()
}

// giveBack takes this delivery's attempt off the entries, once, because a sink that is down has not tried them.
// Without it, workers that are killed repeatedly while they wait would make dead letters of grants that the sink
// never tried.
func (l *lease) giveBack() {
	if l.gaveBack {
		return
	}
	var list []store.Parking
	for _, it := range l.held() {
		list = append(list, store.Parking{ID: it.ID, Level: store.Stay, Attempts: it.Attempt - 1})
	}
	if _, err := l.s.redis.Park(l.ctx, l.s.cfg.Group, l.s.cfg.Consumer, list); err != nil {
		l.s.log.Warn("attempts could not be given back, it is tried at the next outage", zap.Error(err))
		return
	}
	l.gaveBack = true
}

// held returns the items that are renewed.
func (l *lease) held() []item {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.items
}

// drop ends the renewal of the first items.
func (l *lease) drop(batch []item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = l.items[len(batch):]
}

// keep renews the lease every third of it, until the batch ends. Without a renewal for a whole lease, the lease is
// lost. keep finds that out even while a renewal hangs.
func (l *lease) keep() {
	tick, look := time.NewTicker(l.s.cfg.Lease/3), time.NewTicker(l.s.cfg.Lease/12)
	defer tick.Stop()
	defer look.Stop()
	idle := make(chan struct{}, 1) // one renewal at a time
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

// stuck reports whether the lease was given up because the handler makes no progress.
func (l *lease) stuck() bool { return errors.Is(context.Cause(l.ctx), errStuck) }

// lost reports whether the lease is lost at this instant. A process that was paused may not have noticed it yet.
func (l *lease) lost() bool {
	if l.ctx.Err() == nil {
		l.expire(time.Now())
	}
	return l.stuck() || errors.Is(context.Cause(l.ctx), errLeaseLost)
}

// expire gives up the lease if it was not renewed for its whole length. It reports whether it gave it up.
func (l *lease) expire(now time.Time) bool {
	l.mu.Lock()
	renewed, held := l.renewed, len(l.items)
	l.mu.Unlock()
	// Wall-clock arithmetic (Round strips the monotonic part): a machine that slept has lost its lease too.
	age := now.Round(0).Sub(renewed.Round(0))
	if held == 0 || age < l.s.cfg.Lease { // items that are being finished are not renewed any more
		return false
	}
	l.lose(errLeaseLost, zap.Duration("without renewal for", age))
	return true
}

// called records when the present call of the handler began. The zero time means that it returned.
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
		l.lose(errStuck, zap.Duration("the handler does not return since", time.Since(calling)))
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
	states, err := l.s.redis.Renew(ctx, l.s.cfg.Group, l.s.cfg.Consumer, ids)
	if errors.Is(err, store.ErrStale) {
		l.lose(errLeaseLost, zap.Error(err))
		return
	}
	if err != nil {
		if l.ctx.Err() == nil {
			l.s.log.Warn("the lease could not be renewed, it is tried again", zap.Error(err))
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
		case state == store.Gone && !l.gone[ids[i]]:
			l.gone[ids[i]] = true
			gone = append(gone, ids[i])
		case state == store.Lost:
			l.lose(errLeaseLost, zap.String("entry", ids[i]))
			return
		}
	}
	l.s.vanished(gone)
}

// lose gives up the lease, once.
func (l *lease) lose(cause error, why zap.Field) {
	l.cancel(cause)
	if !errors.Is(context.Cause(l.ctx), cause) || l.reported.Swap(true) {
		return
	}
	l.s.c.count.leasesLost.Add(1)
	l.s.log.Warn("lease lost, the batch is cancelled; its present owner finishes it", why)
}
