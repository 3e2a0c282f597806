package consumer

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// sink is a handler that counts its grants. Its refuse function decides which grants fail.
type sink struct {
	mu    sync.Mutex
	calls int
	came  map[string]int // event id -> number of deliveries
	did   map[string]int // event id -> number of deliveries that succeeded
	// refuse returns the errors of a call before its grants count as done; nil accepts every grant. It may block.
	refuse func(ctx context.Context, batch hongbao.Batch) []error
}

func newSink(refuse func(ctx context.Context, batch hongbao.Batch) []error) *sink {
	return &sink{came: map[string]int{}, did: map[string]int{}, refuse: refuse}
}

func (s *sink) Handle(ctx context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	s.mu.Lock()
	s.calls++
	for i := range grants {
		s.came[grants[i].EventID()]++
	}
	s.mu.Unlock()
	var errs []error
	if s.refuse != nil {
		errs = s.refuse(ctx, batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range grants {
		if errs == nil || i < len(errs) && errs[i] == nil {
			s.did[grants[i].EventID()]++
		}
	}
	return errs
}

func (s *sink) numberOfCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// times returns how often an event of shard 0 was delivered, and how often successfully.
func (s *sink) times(seq int64) (came, did int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := "0-" + strconv.FormatInt(seq, 10)
	return s.came[id], s.did[id]
}

func (s *sink) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.did)
}

// onceEach fails the test unless exactly n events were done, each of them once.
func (s *sink) onceEach(t testing.TB, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.did, n)
	for id, times := range s.did {
		require.Equal(t, 1, times, "event %s was done more than once", id)
	}
}

// failing returns a refuse function that fails each grant of shard 0 with the error that of returns for its seq.
func failing(of func(seq int64) error) func(context.Context, hongbao.Batch) []error {
	return func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		errs := make([]error, len(grants))
		for i := range grants {
			errs[i] = of(grants[i].Seq)
		}
		return errs
	}
}
