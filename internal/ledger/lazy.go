package ledger

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Lazy returns a Ledger that calls open at its first use. After a failure it tries again once failedFor has passed.
// Concurrent calls share one attempt, and each waits no longer than its context allows. open must use the same config.
func Lazy(config Config, open func(context.Context) (*Ledger, error)) *Ledger {
	l := newLedger(config)
	s := &lazyStore{open: open}
	s.life, s.end = context.WithCancel(context.Background())
	l.tables.Store = s
	return l
}

// Ready opens the ledger unless it is open. It returns the error of the last attempt.
func (l *Ledger) Ready(ctx context.Context) error {
	if lazy, ok := l.tables.Store.(*lazyStore); ok {
		_, err := lazy.ready(ctx)
		return err
	}
	return nil
}

// failedFor is how long a lazyStore returns the error of a failed attempt before it tries again.
const failedFor = time.Second

type lazyStore struct {
	open    func(context.Context) (*Ledger, error)
	opened  atomic.Pointer[Ledger]
	opening singleflight.Group
	life    context.Context //nolint:containedctx // of attempts, which outlive their callers; until close
	end     context.CancelFunc

	mu     turn.Lock // locked by the running attempt and by close
	failed time.Time
	err    error
}

func (s *lazyStore) ready(ctx context.Context) (*Ledger, error) {
	if l := s.opened.Load(); l != nil {
		return l, nil
	}
	// WithoutTogether keeps the attempt out of the caller's Together, which is locked while it waits for the attempt.
	attempt := s.opening.DoChan("", func() (any, error) {
		return s.attempt(tables.WithoutTogether(context.WithoutCancel(ctx)))
	})
	select {
	case r := <-attempt:
		l, _ := r.Val.(*Ledger) // nil with an error
		return l, r.Err
	case <-ctx.Done():
		return nil, hongbao.Outagef(hongbao.ClassTransient, "the ledger was still being opened: %w", ctx.Err())
	}
}

func (s *lazyStore) attempt(ctx context.Context) (*Ledger, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.opened.Load(); l != nil { // another attempt has just succeeded
		return l, nil
	}
	if s.life.Err() != nil {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "the ledger was closed")
	}
	if time.Since(s.failed) < failedFor {
		return nil, s.err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	l, err := s.open(ctx)
	if err != nil {
		s.failed, s.err = time.Now(), err
		return nil, err
	}
	s.opened.Store(l)
	return l, nil
}

// Write opens the ledger unless it is open, and writes to it.
func (s *lazyStore) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	l, err := s.ready(ctx)
	if err != nil {
		return err
	}
	return l.tables.Store.Write(ctx, l.tables.Refusing(ctx, fn))
}

// Read opens the ledger unless it is open, and reads from it.
func (s *lazyStore) Read(ctx context.Context, fn func(db.Txn) error) error {
	l, err := s.ready(ctx)
	if err != nil {
		return err
	}
	return l.tables.Store.Read(ctx, fn)
}

// Close ends a running attempt, and closes the ledger if it is open.
func (s *lazyStore) Close() error {
	s.end() // a running attempt fails; close does not return its error
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.opened.Load(); l != nil {
		return l.tables.Store.Close()
	}
	return nil
}
