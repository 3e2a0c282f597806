package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// errNoCall means that for a whole lease all Config.MaxCalls calls of the handler were in progress.
var errNoCall = errors.New("all calls of the handler are in use; the entries go back to the other workers")

// takeCall acquires one of the Config.MaxCalls call slots, and returns a function that releases it. It waits for at
// most one lease: if the running calls hang, other workers should get the entries as soon as they would from a dead
// worker.
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
		return func() {}, nil // the caller checks ctx, and does not call the handler
	}
}

// awaitCall waits until a call slot is free. The shard owns no entries during the wait, and it does not renew its
// lead, which soon expires.
func (s *shard) awaitCall(ctx context.Context) {
	s.perEntry = stream.MaxEntryGrants // assume the largest entries: anything may arrive during the wait
	s.log.Warn("all MaxCalls calls have been busy for a whole lease; the shard takes no entries until a call ends")
	select {
	case s.c.calls <- struct{}{}:
		<-s.c.calls
	case <-ctx.Done():
	}
}
