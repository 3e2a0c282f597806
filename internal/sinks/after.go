// Package sinks has what the sinks of a deployment share.
package sinks

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// After is a Handler that delivers a grant only after another sink has finished it. It is for sinks that can neither be
// fenced nor read back, such as a webhook: what they were told can't be taken back. Without it they could announce a
// grant that Redis loses, and recovery would give the packet to another user. Recovery restores each grant that the
// other sink has.
type After struct {
	// Next is the sink.
	Next hongbao.Handler
	// Sink is the name of the other sink.
	Sink string
	// Settled reports which grants the ledger has settled: see ledger.Ledger. It is nil if the other sink is not the
	// ledger. Then the sink's done bits decide, and a dead letter counts as finished.
	Settled func(ctx context.Context, grants []hongbao.Grant) ([]bool, error)
	// Replicated returns once no promotion of the ledger's standby takes back what Settled has returned: see ledger.Ledger.
	// It is nil without Settled.
	Replicated func(ctx context.Context) error
	// Marks reads the other sink's done bits of events of a shard, and the shard's last event. It returns an error if the
	// shard is not in that epoch.
	Marks func(ctx context.Context, shard int, epoch int64, events ...stream.SeqRange) (Marks, error)
	// Patience is how long a call waits for the other sink.
	Patience time.Duration
}

// Marks are done bits of a sink.
type Marks struct {
	// Has reports whether the sink has finished an event that the caller asked for.
	Has func(seq int64) bool
	// Last is the shard's last event.
	Last int64
}

// Patience is the usual After.Patience. The other sink mostly needs some milliseconds.
const Patience = 2 * time.Second

// Close closes the sink.
func (a *After) Close() { Close(a.Next) }

// BreakerOpen reports whether the sink has a circuit breaker that is open.
func (a *After) BreakerOpen() bool {
	b, ok := a.Next.(interface{ BreakerOpen() bool })
	return ok && b.BreakerOpen()
}

// Handle waits until the other sink has finished the grants, and delivers them. After Patience it delivers those that
// are finished. The others wait, and lose no attempt. If the other sink has finished none of them and no later event,
// that is an outage: it is down, paused or behind, and the shard need not set each grant aside.
//
// A grant is Permanent if the other sink has finished it although the ledger has not settled it: it is a dead letter
// there, or in quarantine.
func (a *After) Handle(ctx context.Context, b hongbao.Batch) []error {
	if err := stream.CheckBatch(&b); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	errs := make([]error, len(b.Grants))
	left := make([]int, len(b.Grants))
	for i := range left {
		left[i] = i
	}
	wait := retry.Backoff(10*time.Millisecond, 250*time.Millisecond, a.Patience)
	for {
		var err error
		if left, err = a.unfinished(ctx, &b, left); err != nil {
			return slices.Repeat([]error{err}, len(b.Grants))
		}
		pause := wait.NextBackOff()
		if len(left) == 0 || pause == wait.Stop || !retry.Pause(ctx, pause) {
			break
		}
	}
	if err := a.explain(ctx, &b, left, errs); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	return a.deliver(ctx, &b, errs)
}

// unfinished returns those of the indexes whose grants the other sink has not finished.
func (a *After) unfinished(ctx context.Context, b *hongbao.Batch, indexes []int) (left []int, err error) {
	if a.Settled == nil {
		return a.unmarked(ctx, b, indexes)
	}
	settled, err := a.Settled(ctx, pick(b.Grants, indexes))
	for i, index := range indexes {
		if err == nil && !settled[i] {
			left = append(left, index)
		}
	}
	return left, err
}

// unmarked returns those of the indexes whose events have no done bit of the other sink, in the epoch of the batch.
func (a *After) unmarked(ctx context.Context, b *hongbao.Batch, indexes []int) (left []int, err error) {
	var runs []stream.SeqRange
	for _, index := range indexes {
		runs = stream.AppendSeq(runs, b.Grants[index].Seq)
	}
	marks, err := a.Marks(ctx, b.Shard, b.Epoch, runs...)
	if err != nil {
		return nil, err
	}
	for _, index := range indexes {
		if !marks.Has(b.Grants[index].Seq) {
			left = append(left, index)
		}
	}
	return left, nil
}

// explain sets the errors of the grants that are not finished.
func (a *After) explain(ctx context.Context, b *hongbao.Batch, left []int, errs []error) error {
	if len(left) == 0 {
		return nil
	}
	for _, index := range left {
		errs[index] = hongbao.Waitingf("event %s waits until sink %s has finished it", b.Grants[index].EventID(), a.Sink)
	}
	unmarked, refused := left, []int(nil)
	if a.Settled != nil {
		var err error
		if unmarked, err = a.unmarked(ctx, b, left); err != nil {
			return err
		}
		marked := slices.DeleteFunc(slices.Clone(left), func(i int) bool { return slices.Contains(unmarked, i) })
		if refused, err = a.unfinished(ctx, b, marked); err != nil { // asked again: it may have been settled in between
			return err
		}
		for _, index := range marked {
			errs[index] = nil
		}
	}
	for _, index := range refused {
		errs[index] = hongbao.Errorf(hongbao.ClassPermanent, "sink %[1]s has finished event %[2]s, but the ledger has not settled "+
			"it: it is a dead letter of sink %[1]s, or in quarantine. Decide that first, then requeue this letter or drop it", a.Sink,
			b.Grants[index].EventID())
	}
	if len(unmarked) == len(errs) {
		return a.outage(ctx, b)
	}
	return nil
}

// ahead is how many events after a batch outage looks at.
const ahead = 1000

// outage returns an error if the other sink has finished none of the next events, although there are some.
func (a *After) outage(ctx context.Context, b *hongbao.Batch) error {
	last := slices.MaxFunc(b.Grants, func(x, y hongbao.Grant) int { return cmp.Compare(x.Seq, y.Seq) }).Seq
	next := stream.SeqRange{First: last + 1, Last: last + ahead}
	marks, err := a.Marks(ctx, b.Shard, b.Epoch, next)
	if err != nil || marks.Last <= last {
		return err
	}
	for seq := next.First; seq <= next.Last; seq++ {
		if marks.Has(seq) {
			return nil
		}
	}
	return hongbao.Outagef(hongbao.ClassTransient, "sink %s has finished none of these %d grants and none of the next events: it is "+
		"down, paused or behind", a.Sink, len(b.Grants))
}

// deliver delivers the grants that have no error yet.
func (a *After) deliver(ctx context.Context, b *hongbao.Batch, errs []error) []error {
	var ready []int
	for i, err := range errs {
		if err == nil {
			ready = append(ready, i)
		}
	}
	if len(ready) > 0 && a.Replicated != nil {
		if err := a.Replicated(ctx); err != nil {
			return slices.Repeat([]error{err}, len(errs))
		}
	}
	if len(ready) == len(errs) {
		return a.Next.Handle(ctx, *b)
	}
	if len(ready) > 0 {
		part := *b
		part.Grants = pick(b.Grants, ready)
		for i, err := range a.Next.Handle(ctx, part) {
			errs[ready[i]] = err
		}
	}
	return errs
}

// pick returns the grants at the indexes.
func pick(grants []hongbao.Grant, indexes []int) []hongbao.Grant {
	if len(indexes) == len(grants) {
		return grants
	}
	out := make([]hongbao.Grant, len(indexes))
	for i, index := range indexes {
		out[i] = grants[index]
	}
	return out
}
