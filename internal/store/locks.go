package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// ErrLockLost is the cause with which a holder's context ends after it lost its lock.
var ErrLockLost = errors.New("the lock was lost")

// LockConfig configures Locks. Every field must be set.
type LockConfig struct {
	// How long a lock remains after its holder died. The holder renews it every third of this time.
	Lease time.Duration `want:"30ms to 1h"`
	// How often Do tries to take a lock that another holder has.
	Poll time.Duration `default:"100ms" want:"1ms to 1m"`
}

// Locks takes named locks for work that must have one owner in a deployment: a refund, the retirement of campaigns.
// It is safe for concurrent use.
//
// At most one holder of a name believes that it has the lock, as long as Redis forgets nothing and clocks run about
// equally fast. A unique token names the owner, so no other caller can release the lock. The lease is renewed while
// the work continues. A holder that loses the lock learns it by the end of its context, before another caller can
// have the lock.
//
// Locks does not promise that the work has stopped by then. Work that must never happen twice needs a guard of its
// own, as the refund has one in the ledger. A lock only prevents many callers from trying at once.
//
// bsm/redislock and go-redsync/redsync have token, release and waiting. They leave renewal and the notice of a loss
// to their users (redislock #73, redsync #153). Both are easy to get wrong, so they are here.
type Locks struct {
	store *Store
	cfg   LockConfig
}

// Locks returns the locks of the deployment, or an error for a wrong configuration.
func (s *Store) Locks(cfg LockConfig) (*Locks, error) {
	if errs := knob.Check(&cfg); len(errs) > 0 {
		return nil, fmt.Errorf("lock: %w", errors.Join(errs...))
	}
	return &Locks{store: s, cfg: cfg}, nil
}

// Do waits for the lock, until ctx ends, and runs fn while it has the lock. A lock is on the home shard of its name,
// as a campaign is. fn's context ends with the cause ErrLockLost when the lock is lost; fn must then stop at once. Do
// returns fn's error, after fn and everything that Do started have returned. If the release of a lock fails, the lock
// ends with its lease. name must be valid as a campaign's id.
func (l *Locks) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	c := l.call(l.store.Home(name), name)
	sent, err := l.take(ctx, c)
	if err != nil {
		return err
	}
	return l.hold(ctx, c, sent, fn)
}

// Try runs fn as Do does, under a lock on a given shard. It returns false at once if another caller has the lock.
func (l *Locks) Try(ctx context.Context, k *Shard, name string, fn func(ctx context.Context) error) (bool, error) {
	c, sent := l.call(k, name), time.Now()
	taken, _, err := c.shard.TakeLock(ctx, &c.LockCall)
	if err != nil {
		l.release(ctx, c) // the lock may be ours, and no one would renew it
	}
	if err != nil || !taken {
		return false, err
	}
	return true, l.hold(ctx, c, sent, fn)
}

// lockCall is a request for a lock on a shard.
type lockCall struct {
	LockCall

	shard *Shard
}

func (l *Locks) call(k *Shard, name string) *lockCall {
	return &lockCall{LockCall{Name: name, Token: rand.Text(), Lease: l.cfg.Lease}, k}
}

// hold runs fn under the lock. sent is when the call that took the lock was sent.
func (l *Locks) hold(ctx context.Context, call *lockCall, sent time.Time, fn func(ctx context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	// The lease counts from before the call that took it, so it ends earlier here than in Redis.
	over := time.AfterFunc(time.Until(sent.Add(l.cfg.Lease)), func() { lose(ErrLockLost) })
	stop := make(chan struct{})
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		l.renew(held, stop, call, over, lose)
	}()
	err := fn(held)
	close(stop)
	<-renewed
	over.Stop()
	if err != nil && errors.Is(context.Cause(held), ErrLockLost) {
		err = fmt.Errorf("%w under lock %s: %w", ErrLockLost, call.Name, err)
	}
	lose(nil)
	l.release(ctx, call)
	return err
}

// take tries until it has the lock. It returns when it sent the call that succeeded.
func (l *Locks) take(ctx context.Context, call *lockCall) (time.Time, error) {
	for {
		sent := time.Now()
		taken, held, err := call.shard.TakeLock(ctx, &call.LockCall)
		if err != nil {
			l.release(ctx, call) // the lock may be ours, and no one would renew it
			if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
				<-ctx.Done() // the client, which gives up at the deadline, may be a moment ahead of ctx
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

// renew starts the lease again every third of it. It repeats a failed renewal until over fires.
func (l *Locks) renew(ctx context.Context, stop <-chan struct{}, call *lockCall, over *time.Timer,
	lose context.CancelCauseFunc) {
	tick := time.NewTicker(l.cfg.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		sent := time.Now()
		try, cancel := context.WithTimeout(ctx, l.cfg.Lease/3)
		mine, err := call.shard.RenewLock(try, &call.LockCall)
		cancel()
		switch {
		case err == nil && !mine:
			lose(ErrLockLost)
			return
		case err == nil && over.Stop():
			over.Reset(time.Until(sent.Add(l.cfg.Lease)))
		}
	}
}

// release releases the lock, also after ctx has ended. If that fails the lease ends automatically.
func (l *Locks) release(ctx context.Context, call *lockCall) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.cfg.Lease, time.Second))
	defer cancel()
	_, _ = call.shard.ReleaseLock(ctx, &call.LockCall)
}
