package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/knob"
	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// ErrLost is the cause of the end of the context of whoever lost his lock.
var ErrLost = errors.New("the lock was lost")

// Config of Locks. Every field must be set.
type Config struct {
	Redis redis.UniversalClient
	// Layout is the deployment's. A lock lives on the home of its name: that of a campaign where the campaign does.
	Layout *shards.Layout
	// How long a lock outlives a holder that died. It is renewed every third of it.
	Lease time.Duration `want:"30ms to 1h"`
	// How often a lock that another holds is tried.
	Poll time.Duration `default:"100ms" want:"1ms to 1m"`
}

// Locks takes named locks. It may be used at once.
type Locks struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Locks, error) {
	errs := knob.Check(&cfg)
	if cfg.Redis == nil || cfg.Layout == nil {
		errs = append(errs, errors.New("Redis and Layout are required"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("lock: %w", errors.Join(errs...))
	}
	return &Locks{cfg: cfg}, nil
}

// Do waits for the lock, until ctx ends, and runs fn while it holds it. fn's context ends with the cause ErrLost when
// the lock is lost; fn must then stop at once. Do returns fn's error, after fn and all that Do started have returned. A
// lock that can't be given back ends with its lease. name is as a campaign's id.
func (l *Locks) Do(ctx context.Context, name string, fn func(ctx context.Context) error) error {
	c := l.call(l.cfg.Layout.Home(name), name)
	sent, err := l.take(ctx, c)
	if err != nil {
		return err
	}
	return l.hold(ctx, c, sent, fn)
}

// Try runs fn as Do does, under a lock that lives on a shard. It returns false, and does not wait, if another holds it.
func (l *Locks) Try(ctx context.Context, k shards.Keys, name string, fn func(ctx context.Context) error) (bool, error) {
	c, sent := l.call(k, name), time.Now()
	taken, _, err := c.shard.TakeLock(ctx, &c.LockCall)
	if err != nil {
		l.release(ctx, c) // it may be ours, and nobody would renew it
	}
	if err != nil || !taken {
		return false, err
	}
	return true, l.hold(ctx, c, sent, fn)
}

// call is a wish for a lock that lives on a shard.
type call struct {
	shards.LockCall

	shard *shards.Shard
}

func (l *Locks) call(k shards.Keys, name string) *call {
	return &call{shards.LockCall{Name: name, Token: rand.Text(), Lease: l.cfg.Lease}, shards.Of(l.cfg.Redis, k)}
}

// hold runs fn under the lock that was taken by a call sent at that time.
func (l *Locks) hold(ctx context.Context, call *call, sent time.Time, fn func(ctx context.Context) error) error {
	held, lose := context.WithCancelCause(ctx)
	// Counted from before the call that took it: here the lease ends earlier than in Redis.
	over := time.AfterFunc(time.Until(sent.Add(l.cfg.Lease)), func() { lose(ErrLost) })
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
	if err != nil && errors.Is(context.Cause(held), ErrLost) {
		err = fmt.Errorf("%w under lock %s: %w", ErrLost, call.Name, err)
	}
	lose(nil)
	l.release(ctx, call)
	return err
}

// take tries until it has the lock, and tells when it sent the call that got it.
func (l *Locks) take(ctx context.Context, call *call) (time.Time, error) {
	for {
		sent := time.Now()
		taken, held, err := call.shard.TakeLock(ctx, &call.LockCall)
		if err != nil {
			l.release(ctx, call) // it may be ours, and nobody would renew it
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

// renew begins the lease anew every third of it. A renewal that fails is tried again, until over fires.
func (l *Locks) renew(ctx context.Context, stop <-chan struct{}, call *call, over *time.Timer,
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
			lose(ErrLost)
			return
		case err == nil && over.Stop():
			over.Reset(time.Until(sent.Add(l.cfg.Lease)))
		}
	}
}

// release gives the lock back, also after ctx has ended. If that fails the lease ends by itself.
func (l *Locks) release(ctx context.Context, call *call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(l.cfg.Lease, time.Second))
	defer cancel()
	_, _ = call.shard.ReleaseLock(ctx, &call.LockCall)
}
