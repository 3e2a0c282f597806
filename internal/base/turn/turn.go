// Package turn has a lock for sections that wait for a server.
package turn

import (
	"context"
	"fmt"
	"sync"
)

// Lock is a mutex that may be held during calls to servers. A goroutine that waits for it waits for a channel, so its
// wait can end with a context. In a bubble of testing/synctest virtual time goes on meanwhile, which it does not while
// a goroutine waits for a sync.Mutex. The zero value is unlocked.
type Lock struct {
	once sync.Once
	held chan struct{}
}

func (l *Lock) channel() chan struct{} {
	l.once.Do(func() { l.held = make(chan struct{}, 1) })
	return l.held
}

// Lock takes the lock.
func (l *Lock) Lock() { l.channel() <- struct{}{} }

// TryLock takes the lock if it is free, and reports whether it has.
func (l *Lock) TryLock() bool {
	select {
	case l.channel() <- struct{}{}:
		return true
	default:
		return false
	}
}

// LockContext takes the lock, or returns an error if ctx ends first.
func (l *Lock) LockContext(ctx context.Context) error {
	if l.TryLock() {
		return nil
	}
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for another call of this process: %w", ctx.Err())
	}
}

// Unlock gives the lock back. It panics if the lock is not held.
func (l *Lock) Unlock() {
	select {
	case <-l.channel():
	default:
		panic("turn: Unlock of a lock that is not held")
	}
}
