package publish

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
)

var errStale = errors.New("this process slept: the claim is older than MaxClaimAge")

// sendResult is the result of sending a batch once or several times.
type sendResult struct {
	outcome sendOutcome
	base    int64 // offset of the first record, if appended
	err     error // error of the last response
	// unsure says that an earlier request may have appended the batch, whatever the last response says.
	unsure bool
}

// send sends the batch until a response is conclusive or ctx ends. All requests have exactly the same bytes, so a retry
// can't create a copy.
func (p *Publisher) send(ctx context.Context, s *slot, born time.Time, raw []byte) sendResult {
	r := p.Log.send(ctx, s.partition, raw, func(repeat bool) error {
		if p.tooOld(born) {
			p.count.stale.Add(1)
			return errStale
		}
		if repeat {
			p.count.resends.Add(1)
		}
		return nil
	})
	if r.unsure || r.outcome == again {
		s.batch.forget()
	}
	return r
}

// send sends the batch until a response is conclusive or ctx ends. It calls may before each request, and stops if may
// returns an error.
func (l *Log) send(ctx context.Context, partition int, raw []byte, may func(repeat bool) error) (r sendResult) {
	for wait := retry.Backoff(firstPause, longestPause, 0); ; {
		if err := ctx.Err(); err != nil && r.err == nil {
			r.err = err
			return r
		}
		if err := may(r.err != nil); err != nil {
			r.outcome, r.err = again, err
			return r
		}
		r.base, r.err = l.produce(ctx, partition, raw)
		r.outcome = outcomeOf(r.err)
		switch r.outcome {
		case again:
			r.unsure = true
		case absent:
		default:
			return r
		}
		if !retry.Pause(ctx, wait.NextBackOff()) {
			if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // cancelled: the topic may be absent only briefly
				r.outcome = again
			}
			return r
		}
	}
}
