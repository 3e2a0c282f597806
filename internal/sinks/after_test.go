package sinks

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// receiver is the sink behind an After. It remembers what it got.
type receiver struct {
	mu   sync.Mutex
	seqs []int64
	errs map[int64]error
}

func (r *receiver) Handle(_ context.Context, b hongbao.Batch) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := make([]error, len(b.Grants))
	for i := range b.Grants {
		r.seqs = append(r.seqs, b.Grants[i].Seq)
		errs[i] = r.errs[b.Grants[i].Seq]
	}
	return errs
}

func (r *receiver) Close()            {}
func (r *receiver) BreakerOpen() bool { return true }

// books is a ledger that has settled the packets that it holds.
type books struct {
	mu      sync.Mutex
	settled []int64
	asked   int
	err     error
	later   func(asked int) // called before each answer, without the lock
}

func (l *books) Settled(_ context.Context, grants []hongbao.Grant) ([]bool, error) {
	l.mu.Lock()
	l.asked++
	asked := l.asked
	l.mu.Unlock()
	if l.later != nil {
		l.later(asked)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]bool, len(grants))
	for i := range grants {
		out[i] = slices.Contains(l.settled, grants[i].Packet)
	}
	return out, l.err
}

func (l *books) settle(packets ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = append(l.settled, packets...)
}

// waiting is an After behind sink balance, on a shard with ten events.
func waiting(t *testing.T) (*After, *books, *receiver) {
	t.Helper()
	st := storetest.Initialized(t, 1)
	require.NoError(t, st.Redis().HSet(t.Context(), st.Shard(0).Keys.Meta(), "seq", 10).Err())
	l, r := &books{}, &receiver{errs: map[int64]error{}}
	return &After{Next: r, Sink: "balance", Settled: l.Settled, Store: st, Patience: 50 * time.Millisecond}, l, r
}

// batch has the grants of the events from first to last, in the present epoch of the shard.
func (a *After) batch(t *testing.T, first, last int64) hongbao.Batch {
	t.Helper()
	head, err := a.Store.Shard(0).Head(t.Context())
	require.NoError(t, err)
	b := hongbao.Batch{Epoch: head.Epoch}
	for seq := first; seq <= last; seq++ {
		b.Grants = append(b.Grants, hongbao.Grant{Seq: seq, Epoch: head.Epoch, Campaign: "rain", Packet: 100 + seq, User: "u"})
	}
	return b
}

// finish sets the done bits of the other sink.
func (a *After) finish(t *testing.T, first, last int64) {
	t.Helper()
	_, err := a.Store.Shard(0).Group(a.Sink).Ack(t.Context(), []stream.SeqRange{{First: first, Last: last}}, nil)
	require.NoError(t, err)
}

// A grant is delivered only once the ledger has settled it. Others wait, and lose no attempt.
func TestAfterTheLedger(t *testing.T) {
	t.Parallel()
	a, l, r := waiting(t)
	l.settle(101, 103)
	r.errs[3] = errors.New("refused")
	errs := a.Handle(t.Context(), a.batch(t, 1, 4))
	require.Equal(t, []int64{1, 3}, r.seqs)
	require.NoError(t, errs[0])
	require.True(t, hongbao.IsWaiting(errs[1]), "%v", errs[1])
	require.EqualError(t, errs[2], "refused")
	require.True(t, hongbao.IsWaiting(errs[3]), "%v", errs[3])
	require.EqualError(t, errs[1], "event 0-2 waits until sink balance has finished it")

	l.settle(102, 104)
	r.seqs = nil
	require.Empty(t, compact(a.Handle(t.Context(), a.batch(t, 2, 2))))
	require.Empty(t, compact(a.Handle(t.Context(), a.batch(t, 4, 4))))
	require.Equal(t, []int64{2, 4}, r.seqs)
}

func compact(errs []error) (out []error) {
	for _, err := range errs {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// The ledger mostly settles some milliseconds later: one call waits for that.
func TestAfterWaits(t *testing.T) {
	t.Parallel()
	a, l, r := waiting(t)
	a.Patience = time.Minute
	l.later = func(asked int) {
		if asked == 3 {
			l.settle(101, 102)
		}
	}
	require.Empty(t, compact(a.Handle(t.Context(), a.batch(t, 1, 2))))
	require.Equal(t, []int64{1, 2}, r.seqs)
	require.Equal(t, 3, l.asked)

	ctx, cancel := context.WithCancel(t.Context())
	l.later = func(asked int) {
		if asked == 5 {
			cancel()
		}
	}
	began := time.Now()
	errs := a.Handle(ctx, a.batch(t, 3, 4))
	require.Len(t, compact(errs), 2)
	require.Less(t, time.Since(began), 30*time.Second, "it does not wait after the end of its context")
	require.Len(t, r.seqs, 2)
}

// A grant that sink balance has finished although the ledger has not settled it is a dead letter there: nobody announces
// it. A grant that was settled while After asked is none.
func TestAfterADeadLetter(t *testing.T) {
	t.Parallel()
	a, l, r := waiting(t)
	a.finish(t, 1, 2)
	a.Patience = time.Nanosecond
	l.later = func(asked int) {
		if asked == 2 {
			l.settle(102)
		}
	}
	errs := a.Handle(t.Context(), a.batch(t, 1, 2))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]))
	require.EqualError(t, errs[0], "sink balance has finished event 0-1, but the ledger has not settled it: it is a dead letter of "+
		"sink balance, or in quarantine. Decide that first, then requeue this letter or drop it")
	require.NoError(t, errs[1])
	require.Equal(t, []int64{2}, r.seqs)
}

// If the other sink has finished none of the grants, it is down when it has finished no later event either. Else only
// these grants wait: one of them must not stop the shard.
func TestAfterAnOutage(t *testing.T) {
	t.Parallel()
	a, l, r := waiting(t)
	errs := a.Handle(t.Context(), a.batch(t, 1, 2))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.ErrorContains(t, errs[1], "sink balance has finished none of these 2 grants and none of the next events")

	errs = a.Handle(t.Context(), a.batch(t, 9, 10))
	require.True(t, hongbao.IsWaiting(errs[0]), "no later event shows that the sink is down: %v", errs[0])

	a.finish(t, 8, 8)
	errs = a.Handle(t.Context(), a.batch(t, 1, 2))
	require.True(t, hongbao.IsWaiting(errs[0]), "%v", errs[0])

	l.err = hongbao.Outagef(hongbao.ClassTransient, "the database is down")
	errs = a.Handle(t.Context(), a.batch(t, 1, 2))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Empty(t, r.seqs)
}

// Without a ledger the done bits of the other sink decide. Those of another epoch may belong to other grants.
func TestAfterTheTopic(t *testing.T) {
	t.Parallel()
	a, _, r := waiting(t)
	a.Settled, a.Sink = nil, "kafka"
	a.finish(t, 1, 2)
	errs := a.Handle(t.Context(), a.batch(t, 1, 3))
	require.Equal(t, []int64{1, 2}, r.seqs)
	require.True(t, hongbao.IsWaiting(errs[2]), "%v", errs[2])

	stale := a.batch(t, 1, 2)
	require.NoError(t, a.Store.Redis().HIncrBy(t.Context(), a.Store.Shard(0).Keys.Meta(), "epoch", 1).Err())
	errs = a.Handle(t.Context(), stale)
	require.ErrorContains(t, errs[0], "epoch")
	require.Equal(t, []int64{1, 2}, r.seqs, "nothing is delivered for a stale batch")
	require.True(t, a.BreakerOpen())
}
