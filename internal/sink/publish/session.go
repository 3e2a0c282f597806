package publish

import (
	"context"
	"math"
	"time"
)

// slot is a partition's place: one batch in flight at a time.
type slot struct {
	partition int
	turn      chan struct{}
	// session is nil while a batch is on its way, so whatever goes wrong there ends it.
	session *session
	batch   *batch
	// searches are those that are not at their end, by claim.
	searches map[string]*search
	checked  time.Time // when the last record of the partition was not of another founding
	back     time.Time // when Handle last reported that the log went back
}

// session is a producer id whose next sequence is certainly unused: its last claim, if it had any, ended with this
// worker's own complete or release. In any other case whoever took the claim over may have used the sequence up, and
// the broker would drop another batch of that sequence and size as a copy.
type session struct {
	numbers
	end   int64 // the log was at least this long
	known time.Time
}

// lock waits for the slot; it tells whether it got it before ctx ended.
func (s *slot) lock(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slot) unlock() { <-s.turn }

// takeSession gives the slot's session, or opens one, and leaves the slot without: put it back with keep.
func (p *Publisher) takeSession(ctx context.Context, s *slot) (*session, error) {
	if err := p.checkFounding(ctx, s); err != nil {
		return nil, err
	}
	open := s.session
	s.session = nil
	if open == nil || int(open.sequence) > math.MaxInt32-maxBatchGrants {
		open = &session{}
		err := p.ask(ctx, "taking a producer id", func(ctx context.Context) (err error) {
			open.numbers, err = p.newProducer(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		p.count.sessions.Add(1)
	}
	if p.tooOld(open.known) {
		return open, p.refresh(ctx, s, open)
	}
	return open, nil
}

// refresh asks for the end of the log. An old end would make a read-back long, or reach below what retention keeps.
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

// keep puts a session back whose sequence is certainly unused.
func (s *slot) keep(open *session) { s.session = open }

// tooOld tells whether a claim that was written at born must not be acted on any more. Both clocks count: the monotonic
// one stands still while the machine sleeps, the wall clock can be set back.
func (p *Publisher) tooOld(born time.Time) bool {
	now := p.now()
	age := max(now.Sub(born), now.Round(0).Sub(born.Round(0)))
	return age > p.cfg.MaxClaimAge
}
