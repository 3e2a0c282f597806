package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// ErrLockLost is the cause of a context that was canceled because its holder lost the lock.
var ErrLockLost = errors.New("the lock was lost")

// LockConfig configures Locks. Every field must be set.
type LockConfig struct {
	// How long a lock remains after its holder died. The holder renews it every third of this time.
	Lease time.Duration `want:"30ms to 1h"`
	// How often Do tries to take a lock that another holder has.
	Poll time.Duration `default:"100ms" want:"1ms to 1m"`
}

// Locks takes named locks, for work that only one process of a deployment may do at a time, such as a refund. It is
// safe for concurrent use.
//
// At most one caller believes that it holds a lock, as long as Redis loses no data and all clocks run at about the
// same speed. A unique token identifies the owner, so no other caller can release the lock. The lease is renewed
// while the work continues. The context of a holder that loses its lock is canceled before another caller can take the
// lock. If the holder's machine sleeps longer than the lease, another caller may take the lock meanwhile; the context
// then ends at most a hundredth of the lease after the machine wakes.
//
// The work may still be running at that time. So work that must never happen twice needs its own protection, such as
// the refund's unique row in the ledger. A lock only keeps callers from doing the same work at once.
//
// The libraries bsm/redislock and go-redsync/redsync leave renewal and the detection of a loss to their users
// (redislock #73, redsync #153). Both are easy to get wrong, so Locks implements them.
type Locks struct {
	store *Store
	cfg   LockConfig
	now   func() time.Time // replaced by tests
}

// Locks returns the locks of the deployment, or an error for a wrong configuration.
func (s *Store) Locks(cfg LockConfig) (*Locks, error) {
	if errs := knob.Check(&cfg); len(errs) > 0 {
		return nil, fmt.Errorf("lock: %w", errors.Join(errs...))
	}
	return &Locks{store: s, cfg: cfg, now: time.Now}, nil
}

// Do waits for the lock, at most until ctx ends, and runs fn while it holds the lock. The lock is on the home shard
// of its name. If the lock is lost, fn's context is canceled with the cause ErrLockLost, and fn must stop at once. Do
// returns fn's error. If the release fails, the lock ends with its lease. name must be valid as a campaign's id.
func (l *Locks) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	c := l.call(l.store.Home(name).Shard, name)
	sent, err := l.take(ctx, c)
	if err != nil {
		return err
	}
	return l.runLocked(ctx, c, sent, fn)
}

// Try is like Do, but on a given shard and without waiting. It returns false if another caller has the lock.
func (l *Locks) Try(ctx context.Context, k *Shard, name string, fn func(ctx context.Context) error) (bool, error) {
	c, sent := l.call(k, name), l.now()
	taken, _, err := c.shard.TakeLock(ctx, &c.LockCall)
	if err != nil {
		l.release(ctx, c) // the call may have taken the lock
	}
	if err != nil || !taken {
		return false, err
	}
	return true, l.runLocked(ctx, c, sent, fn)
}

// lockCall is a request for a lock on a shard.
type lockCall struct {
	LockCall

	shard *Shard
}

func (l *Locks) call(k *Shard, name string) *lockCall {
	return &lockCall{LockCall{Name: name, Token: rand.Text(), Lease: l.cfg.Lease}, k}
}

// holding is a lock while fn runs under it.
type holding struct {
	*lockCall

	locks   *Locks
	lose    context.CancelCauseFunc // of fn's context
	over    *time.Timer             // ends fn's context with the lease
	renewed atomic.Int64            // when the last renewal was sent, in Unix ns
}

// runLocked runs fn under the lock. sent is the time before the call that took the lock.
func (l *Locks) runLocked(ctx context.Context, call *lockCall, sent time.Time, fn func(ctx context.Context) error) error {
	lockCtx, lose := context.WithCancelCause(ctx)
	h := &holding{lockCall: call, locks: l, lose: lose}
	// The lease counts from sent, so it ends here before it ends in Redis.
	h.over = time.AfterFunc(time.Until(sent.Add(l.cfg.Lease)), func() { lose(ErrLockLost) })
	h.renewed.Store(sent.UnixNano())
	h.checkClock()
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { h.renew(lockCtx, stop) })
	group.Go(func() { h.watchClock(lockCtx, stop) })
	err := fn(lockCtx)
	close(stop)
	group.Wait()
	h.over.Stop()
	if err != nil && errors.Is(context.Cause(lockCtx), ErrLockLost) {
		err = fmt.Errorf("%w under lock %s: %w", ErrLockLost, call.Name, err)
	}
	lose(nil)
	l.release(ctx, call)
	return err
}

// take retries until it has the lock. It returns the time before the successful call.
func (l *Locks) take(ctx context.Context, call *lockCall) (time.Time, error) {
	for {
		sent := l.now()
		taken, held, err := call.shard.TakeLock(ctx, &call.LockCall)
		if err != nil {
			l.release(ctx, call) // the call may have taken the lock
			if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
				<-ctx.Done() // the client may give up just before ctx ends
			}
			if ctx.Err() != nil {
				err = fmt.Errorf("wait for lock %s: %w: %w", call.Name, context.Cause(ctx), err)
			}
			return sent, err
		}
		if taken {
			return sent, nil
		}
		wait := l.cfg.Poll/2 + mrand.N(l.cfg.Poll)
		if held > 0 {
			wait = min(wait, held+time.Millisecond)
		}
		if !retry.Pause(ctx, wait) {
			return sent, fmt.Errorf("wait for lock %s: %w", call.Name, context.Cause(ctx))
		}
	}
}

// renew renews the lease every third of the lease. After an error it tries again, until the timer over cancels fn.
func (h *holding) renew(ctx context.Context, stop <-chan struct{}) {
	lease := h.locks.cfg.Lease
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := h.locks.now()
		try, cancel := context.WithTimeout(ctx, lease/3)
		mine, err := h.shard.RenewLock(try, &h.LockCall)
		cancel()
		switch {
		case err == nil && !mine:
			h.lose(ErrLockLost)
			return
		case err == nil && h.over.Stop():
			h.over.Reset(time.Until(sent.Add(lease)))
			h.renewed.Store(sent.UnixNano())
		}
	}
}

// watchClock checks the wall clock every hundredth of the lease. Timers stop while a machine sleeps, and another caller
// may take the lock meanwhile.
func (h *holding) watchClock(ctx context.Context, stop <-chan struct{}) {
	tick := time.NewTicker(h.locks.cfg.Lease / 100)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
			h.checkClock()
		}
	}
}

// checkClock gives the lock up if the last renewal is a whole lease ago by the wall clock.
func (h *holding) checkClock() {
	if h.locks.now().UnixNano()-h.renewed.Load() >= int64(h.locks.cfg.Lease) {
		h.lose(ErrLockLost)
	}
}

// release releases the lock, also after ctx has ended. If that fails, the lock ends with its lease.
func (l *Locks) release(ctx context.Context, call *lockCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.cfg.Lease, time.Second))
	defer cancel()
	_, _ = call.shard.ReleaseLock(ctx, &call.LockCall)
}
