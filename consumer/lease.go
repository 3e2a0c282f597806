package consumer

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/lua"
)

// lease keeps the entries of one batch ours while the handler is at them.
type lease struct {
	s      *shard
	ctx    context.Context // of the handler: ends when the lease is lost or the drain is over
	cancel context.CancelCauseFunc
	drain  context.Context // ends when Run's context does: take nothing more

	mu      sync.Mutex
	ids     []string
	calling time.Time // since when the handler is being called; zero if it is not
	renewed time.Time
	wg      sync.WaitGroup
}

var (
	errLeaseLost = errors.New("the lease is lost: another worker may have the entries")
	errDrainOver = errors.New("the drain time is over")
)

func (s *shard) lease(drain context.Context, items []*item) *lease {
	l := &lease{s: s, drain: drain, renewed: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(drain))
	for _, it := range items {
		l.ids = append(l.ids, it.id)
	}
	l.wg.Go(l.keep)
	return l
}

// end stops the renewal and waits for it.
func (l *lease) end() {
	l.cancel(nil)
	l.wg.Wait()
}

// drop ends the renewal of items that are finished.
func (l *lease) drop(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = l.ids[len(items):]
}

// keep renews every third of the lease, until the batch ends. Without a renewal for a whole lease it counts as lost.
func (l *lease) keep() {
	tick := time.NewTicker(l.s.cfg.Lease / 3)
	defer tick.Stop()
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
		case <-tick.C:
			l.renew()
		}
	}
}

// called notes that the handler is being called since an instant, or (zero) that it returned.
func (l *lease) called(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calling = since
}

func (l *lease) renew() {
	l.mu.Lock()
	ids := append([]string(nil), l.ids...)
	calling := l.calling
	l.mu.Unlock()
	if !calling.IsZero() && time.Since(calling) > l.s.cfg.HandleTimeout+l.s.cfg.Lease/3 {
		l.lose(zap.Duration("the handler does not return since", time.Since(calling)))
		return
	}
	if len(ids) == 0 {
		return
	}
	// Wall-clock arithmetic (Round strips the monotonic part): a machine that slept has lost its lease too.
	at := time.Now().Round(0)
	if at.Sub(l.renewed.Round(0)) >= l.s.cfg.Lease {
		l.lose(zap.Duration("without renewal for", at.Sub(l.renewed)))
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.s.cfg.Lease/3)
	defer cancel()
	states, err := lua.Renew(ctx, l.s.cfg.Redis, l.s.keys, l.s.cfg.Group, l.s.cfg.Consumer, ids)
	if err != nil {
		if l.ctx.Err() == nil {
			l.s.log.Warn("the lease could not be renewed, it is tried again", zap.Error(err))
		}
		return
	}
	l.renewed = at
	l.mu.Lock()
	finished := len(ids) - len(l.ids) // meanwhile
	l.mu.Unlock()
	var gone []string
	for i, state := range states {
		switch {
		case i < finished:
		case state == lua.Gone:
			gone = append(gone, ids[i])
		case state == lua.Lost:
			l.lose(zap.String("entry", ids[i]))
			return
		}
	}
	l.s.vanished(gone)
}

func (l *lease) lose(why zap.Field) {
	l.s.c.count.leasesLost.Add(1)
	l.s.log.Warn("lease lost, the batch is cancelled; who has it now finishes it", why)
	l.cancel(errLeaseLost)
}
