package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// errNoCall says that the handler has been busy with Config.MaxCalls calls for a whole lease.
var errNoCall = errors.New("all calls of the handler are taken, the entries go back to the other workers")

// takeCall takes one of Config.MaxCalls, and waits at most a lease for it. Entries must not wait longer for a worker
// whose calls hang than for a dead worker. giveUp lets another call begin.
func (s *shard) takeCall(ctx context.Context) (giveUp func(), err error) {
	calls := s.c.calls
	if calls == nil {
		return func() {}, nil
	}
	bound := time.NewTimer(s.cfg.Lease)
	defer bound.Stop()
	select {
	case calls <- struct{}{}:
		return func() { <-calls }, nil
	case <-bound.C:
		return nil, errNoCall
	case <-ctx.Done():
		return func() {}, nil // the caller makes no call any more
	}
}

// awaitCall waits until a call is free again. Meanwhile the worker has no entries, and its lead ends soon.
func (s *shard) awaitCall(ctx context.Context) {
	s.perEntry = stream.MaxEntryGrants // entries that arrive meanwhile may be of any size
	s.log.Warn("every call that MaxCalls allows has been busy for a whole lease; the shard takes nothing until one ends")
	select {
	case s.c.calls <- struct{}{}:
		<-s.c.calls
	case <-ctx.Done():
	}
}
