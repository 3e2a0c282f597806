package publish

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// slot is the state of a partition: one batch in flight at a time.
type slot struct {
	partition int
	turn      chan struct{}
	// session is nil while a batch is in flight, so any failure discards it.
	session *session
	batch   *batch
	// searches are the unfinished ones, by claim.
	searches map[string]*search
	checked  time.Time // when the last record of the partition was not of another founding
	back     time.Time // when Handle last reported that the log went back
}

// session is a producer id whose next sequence is certainly unused: its last claim, if any, ended with this worker's
// own complete or release. In any other case the worker that took the claim over may have used the sequence up. The
// broker would then drop another batch of that sequence and size as a copy.
type session struct {
	numbers
	end   int64 // the log was at least this long
	known time.Time
	shown time.Time    // when its last record was sent, as the record says; zero before the first one
	asked map[int]bool // the shards whose epoch was asked for since its last record
}

// ShownFor is the maximum age of a session's last record when it claims. Fence finds the sessions by their records.
const ShownFor = 30 * time.Second

// lock waits for the slot, and reports whether it got the slot before ctx ended.
func (s *slot) lock(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slot) unlock() { <-s.turn }

// takeSession takes the session out of the slot, or opens one; keep puts it back. The session's last record was sent at
// most ShownFor before the batch was born.
func (p *Publisher) takeSession(ctx context.Context, s *slot, born time.Time) (*session, error) {
	if err := p.checkFounding(ctx, s); err != nil {
		return nil, err
	}
	open := s.session
	s.session = nil
	if open != nil && int(open.sequence) <= math.MaxInt32-maxBatchGrants {
		if p.tooOld(open.known) {
			if err := p.refresh(ctx, s, open); err != nil {
				return nil, err
			}
		}
		if !older(born, open.shown, ShownFor) {
			return open, nil
		}
		if err := p.show(ctx, s, open); !errors.Is(err, errProducer) { // a fence may have raised its epoch while it was idle
			return open, err
		}
	}
	open = &session{}
	err := p.ask(ctx, "taking a producer id", func(ctx context.Context) (err error) {
		open.numbers, err = p.newProducer(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.count.sessions.Add(1)
	return open, p.show(ctx, s, open)
}

var errProducer = errors.New("the broker refuses the producer id")

// show sends the smallest possible record, a fence record under the session's own numbers. A worker that fences the
// partition reads the record and knows the session. The record also distinguishes a grant that the broker rejects from
// a broker that rejects everything.
func (p *Publisher) show(ctx context.Context, s *slot, open *session) error {
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	born := p.now()
	s.batch.start(open.numbers, born.UnixMilli())
	s.batch.addFence(open.numbers, born.UnixMilli())
	sent := p.send(attempt, s, born, s.batch.finish())
	switch {
	case sent.verdict == appended:
		open.sequence++
		open.end, open.known = max(open.end, sent.base+1), p.now()
		open.shown, open.asked = born, map[int]bool{}
		return nil
	case sent.verdict == lookBack || sent.verdict == fenced:
		return hongbao.Outagef(hongbao.ClassTransient, "%w, the next try takes another: %w", errProducer, sent.err)
	case sent.verdict == again || sent.unsure:
		return hongbao.Outagef(hongbao.ClassUnknown, "sending a minimal record to %s: no answer in time that decides: %w",
			p.where(s.partition), sent.err)
	}
	return p.sinkError("sending a minimal record to "+p.where(s.partition), sent.verdict, sent.err)
}

// checkEpoch refuses a claim in a shard for which the ledger has a later epoch than the batch. A session from before
// the fence of that epoch was fenced, because it had sent a record; one from after it asks here first.
func (p *Publisher) checkEpoch(ctx context.Context, shard int, open *session) error {
	epoch, ok := stream.EpochOf(ctx)
	if p.cfg.Epoch == nil || !ok || open.asked[shard] {
		return nil
	}
	latest, err := p.cfg.Epoch(ctx, shard)
	if err != nil {
		return hongbao.Outagef(hongbao.ClassTransient, "asking for the epoch of shard %d, nothing was claimed: %w", shard, err)
	}
	if latest > epoch {
		return hongbao.Outagef(hongbao.ClassTransient,
			"shard %d continues elsewhere: the ledger has epoch %d of it, and this batch is of epoch %d; nothing was claimed",
			shard, latest, epoch)
	}
	open.asked[shard] = true
	return nil
}

// refresh asks for the end of the log. With an outdated end a read-back would be long, or would start at an offset
// that retention has deleted already.
func (p *Publisher) refresh(ctx context.Context, s *slot, open *session) error {
	known := p.now()
	return p.ask(ctx, "asking for the end of the log", func(ctx context.Context) error {
		b, err := p.bounds(ctx, s.partition)
		if err != nil {
			return err
		}
		if b.end < open.end {
			return p.wentBack(s, open.end, "its end is at offset "+decimal(b.end))
		}
		open.end, open.known = b.end, known
		return nil
	})
}

// keep puts a session whose sequence is certainly unused back into the slot.
func (s *slot) keep(open *session) { s.session = open }

// tooOld reports whether a claim that was written at born is too old to act on. Both clocks count: the monotonic one
// stops while the machine sleeps, the wall clock can be set back.
func (p *Publisher) tooOld(born time.Time) bool { return older(p.now(), born, p.cfg.MaxClaimAge) }

func older(now, then time.Time, most time.Duration) bool {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0))) > most
}
