package sinks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

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
	behind  error           // of the standby
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

func (l *books) replicated(context.Context) error { return l.behind }

func (l *books) settle(packets ...int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settled = append(l.settled, packets...)
}

// other is the other sink: it has finished the events in done, on a shard with ten events in epoch 3.
type other struct {
	done  []int64
	epoch int64
}

func (o *other) marks(_ context.Context, shard int, epoch int64, events ...stream.SeqRange) (m Marks, err error) {
	if shard != 0 || epoch != o.epoch {
		return m, fmt.Errorf("shard 0 is in epoch %d", o.epoch)
	}
	return Marks{Last: 10, Has: func(seq int64) bool {
		if !slices.ContainsFunc(events, func(r stream.SeqRange) bool { return r.Has(seq) }) {
			panic(fmt.Sprintf("event %d was not asked for", seq))
		}
		return slices.Contains(o.done, seq)
	}}, nil
}

// waiting is an After behind sink balance.
func waiting() (*After, *other, *books, *receiver) {
	o, l, r := &other{epoch: 3}, &books{}, &receiver{errs: map[int64]error{}}
	return &After{Next: r, Sink: "balance", Settled: l.Settled, Replicated: l.replicated, Marks: o.marks, Patience: 50 * time.Millisecond}, o, l, r
}

// batch has the grants of the events from first to last.
func batch(first, last int64) hongbao.Batch {
	b := hongbao.Batch{Epoch: 3}
	for seq := first; seq <= last; seq++ {
		b.Grants = append(b.Grants, hongbao.Grant{Seq: seq, Epoch: 3, Campaign: "rain", Packet: 100 + seq, User: "u"})
	}
	return b
}

// A grant is delivered only once the ledger has settled it. Others wait, and lose no attempt.
func TestAfterTheLedger(t *testing.T) {
	t.Parallel()
	a, _, l, r := waiting()
	l.settle(101, 103)
	r.errs[3] = errors.New("refused")
	errs := a.Handle(t.Context(), batch(1, 4))
	require.Equal(t, []int64{1, 3}, r.seqs)
	require.NoError(t, errs[0])
	require.True(t, hongbao.IsWaiting(errs[1]), "%v", errs[1])
	require.EqualError(t, errs[2], "refused")
	require.True(t, hongbao.IsWaiting(errs[3]), "%v", errs[3])
	require.EqualError(t, errs[1], "event 0-2 waits until sink balance has finished it")

	l.settle(102, 104)
	r.seqs = nil
	require.Empty(t, compact(a.Handle(t.Context(), batch(2, 2))))
	require.Empty(t, compact(a.Handle(t.Context(), batch(4, 4))))
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
	a, _, l, r := waiting()
	a.Patience = time.Minute
	l.later = func(asked int) {
		if asked == 3 {
			l.settle(101, 102)
		}
	}
	require.Empty(t, compact(a.Handle(t.Context(), batch(1, 2))))
	require.Equal(t, []int64{1, 2}, r.seqs)
	require.Equal(t, 3, l.asked)

	ctx, cancel := context.WithCancel(t.Context())
	l.later = func(asked int) {
		if asked == 5 {
			cancel()
		}
	}
	began := time.Now()
	errs := a.Handle(ctx, batch(3, 4))
	require.Len(t, compact(errs), 2)
	require.Less(t, time.Since(began), 30*time.Second, "it does not wait after the end of its context")
	require.Len(t, r.seqs, 2)
}

// A grant that sink balance has finished although the ledger has not settled it is a dead letter there: nobody announces
// it. A grant that was settled while After asked is none.
func TestAfterADeadLetter(t *testing.T) {
	t.Parallel()
	a, o, l, r := waiting()
	o.done = []int64{1, 2}
	a.Patience = time.Nanosecond
	l.later = func(asked int) {
		if asked == 2 {
			l.settle(102)
		}
	}
	errs := a.Handle(t.Context(), batch(1, 2))
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
	a, o, l, r := waiting()
	errs := a.Handle(t.Context(), batch(1, 2))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.ErrorContains(t, errs[1], "sink balance has finished none of these 2 grants and none of the next events")

	errs = a.Handle(t.Context(), batch(9, 10))
	require.True(t, hongbao.IsWaiting(errs[0]), "no later event shows that the sink is down: %v", errs[0])

	o.done = []int64{8}
	errs = a.Handle(t.Context(), batch(1, 2))
	require.True(t, hongbao.IsWaiting(errs[0]), "%v", errs[0])

	l.err = hongbao.Outagef(hongbao.ClassTransient, "the database is down")
	errs = a.Handle(t.Context(), batch(1, 2))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Empty(t, r.seqs)

	l.err, l.behind = nil, hongbao.Outagef(hongbao.ClassTransient, "no standby confirms")
	l.settle(101)
	errs = a.Handle(t.Context(), batch(1, 1))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Empty(t, r.seqs, "a promotion could take the payment back")
}

// Without a ledger the done bits of the other sink decide. Those of another epoch may belong to other grants.
func TestAfterTheTopic(t *testing.T) {
	t.Parallel()
	a, o, _, r := waiting()
	a.Settled, a.Replicated, a.Sink, o.done = nil, nil, "kafka", []int64{1, 2}
	errs := a.Handle(t.Context(), batch(1, 3))
	require.Equal(t, []int64{1, 2}, r.seqs)
	require.True(t, hongbao.IsWaiting(errs[2]), "%v", errs[2])

	o.epoch = 4
	errs = a.Handle(t.Context(), batch(1, 2))
	require.ErrorContains(t, errs[0], "epoch")
	require.Equal(t, []int64{1, 2}, r.seqs, "nothing is delivered for a stale batch")
	require.True(t, a.BreakerOpen())
}
