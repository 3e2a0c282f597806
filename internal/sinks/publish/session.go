package publish

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// slot is the publisher's state for one partition. It has at most one batch in flight.
type slot struct {
	partition int
	turn      chan struct{}
	// session is nil while a batch is in flight. So after any failure the session is not used again.
	session *session
	batch   *batch
	// searches has the unfinished searches, by claim id.
	searches map[string]*search
	checked  time.Time  // last time that checkFounding accepted the partition
	back     time.Time  // last time that Handle reported that the log went back
	last     *ownRecord // nil if this worker has appended nothing to the present log
}

// ownRecord is the last record that this worker has appended to a partition. If the log has another record
// there, the topic was created again, or a broker lost the end of the log.
type ownRecord struct {
	offset int64
	batch  numbers
}

// session is a producer id whose next sequence is certainly unused: this worker itself completed or released the
// session's last claim, if there was one. Otherwise the worker that took over the claim may have used the sequence. The
// broker would then drop another batch with that sequence and size as a copy.
type session struct {
	numbers
	end       int64 // known minimum of the log's end
	known     time.Time
	announced time.Time    // time of its last record, as stored in the record; zero before the first one
	asked     map[int]bool // shards whose epoch was checked since the last call of announce
}

// AnnouncedFor is the maximum age of a session's last record when the session makes a claim. Fence relies on it to find
// every session by its records.
const AnnouncedFor = 30 * time.Second

// lock waits for the slot. It returns false if ctx ends first.
func (s *slot) lock(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *slot) unlock() { <-s.turn }

// takeSession takes the session out of the slot, or opens a new session. keep puts it back. born is the time of the
// next batch. If the session's last record is then older than AnnouncedFor, takeSession first sends a fence record.
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
		if stream.Age(born, open.announced) <= AnnouncedFor {
			return open, nil
		}
		if err := p.announce(ctx, s, open); !errors.Is(err, errProducer) { // Fence may have fenced it while it was idle
			return open, err
		}
	}
	open = &session{}
	if s.last != nil { // much may have happened since the last session failed
		if err := p.refresh(ctx, s, open); err != nil {
			return nil, err
		}
	}
	err := p.ask(ctx, "taking a producer id", func(ctx context.Context) (err error) {
		open.numbers, err = p.newProducer(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.count.sessions.Add(1)
	return open, p.announce(ctx, s, open)
}

var errProducer = errors.New("the broker refuses the producer id")

// announce sends the smallest possible record: a fence record with the session's own numbers. It makes the session
// visible to Fence.
func (p *Publisher) announce(ctx context.Context, s *slot, open *session) error {
	return p.sendFence(ctx, s, open, "a minimal record", s.batch.addFence)
}

// probe sends a record that is as large as the largest grant. It tells a grant that the broker rejects from a broker
// that rejects everything, or everything of this size.
func (p *Publisher) probe(ctx context.Context, s *slot, open *session) error {
	return p.sendFence(ctx, s, open, "a probe as large as the largest grant", s.batch.addProbe)
}

func (p *Publisher) sendFence(ctx context.Context, s *slot, open *session, what string,
	add func(numbers, int64)) error {
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	born := p.now()
	s.batch.start(open.numbers, born.UnixMilli())
	add(open.numbers, born.UnixMilli())
	sent := p.send(attempt, s, born, s.batch.finish())
	switch {
	case sent.outcome == appended:
		s.last = &ownRecord{sent.base, open.numbers}
		open.sequence++
		open.end, open.known = max(open.end, sent.base+1), p.now()
		open.announced, open.asked = born, map[int]bool{}
		return nil
	case sent.outcome == lookBack || sent.outcome == fenced:
		return hongbao.Outagef(hongbao.ClassTransient, "%w; the next attempt uses a new one: %w", errProducer, sent.err)
	case sent.outcome == again || sent.unsure:
		return hongbao.Outagef(hongbao.ClassUnknown, "sending %s to %s: no conclusive answer in time: %w", what,
			p.where(s.partition), plain(sent.err))
	}
	return p.sinkError("sending "+what+" to "+p.where(s.partition), sent.outcome, sent.err)
}

// checkEpoch returns an error if the ledger has a later epoch of the shard than the batch. Two cases are safe. A
// session that is older than the fence of the new epoch has sent a record, so it was fenced. A newer session reads the
// new epoch here before its first claim.
func (p *Publisher) checkEpoch(ctx context.Context, in stream.Opening, open *session) error {
	shard, epoch := in.Shard, in.Epoch
	if p.cfg.Epoch == nil || open.asked[shard] {
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

// refresh reads the end of the log, and checks that it is still the same log. With an outdated end, a later look back
// would have to read too much, or would start at an offset that retention has deleted.
func (p *Publisher) refresh(ctx context.Context, s *slot, open *session) error {
	known := p.now()
	b, err := p.ends(ctx, s.partition)
	if err != nil {
		return err
	}
	if b.end < open.end {
		return p.logWentBackError(s, open.end, "its end is at offset "+decimal(b.end))
	}
	if err := p.checkLast(ctx, s, b); err != nil {
		return err
	}
	open.end, open.known = b.end, known
	return nil
}

// checkLast returns an error if the log no longer has this worker's last record at its offset. Nothing is known if the
// record has expired.
func (p *Publisher) checkLast(ctx context.Context, s *slot, b bounds) error {
	if s.last == nil || s.last.offset < b.start {
		return nil
	}
	found, at := false, s.last.offset
	err := p.read(ctx, s.partition, bounds{at, min(at+1, b.end)}, func(r *record) error {
		found = r.batch == s.last.batch
		return nil
	})
	if err == nil && !found {
		err = p.logWentBackError(s, at+1, "offset "+decimal(at)+" no longer has the record that this worker appended there")
	}
	return err
}

// keep puts a session back into the slot. Its next sequence must certainly be unused.
func (s *slot) keep(open *session) { s.session = open }

// tooOld reports whether a claim from the time born is too old to act on.
func (p *Publisher) tooOld(born time.Time) bool { return stream.Age(p.now(), born) > p.cfg.MaxClaimAge }
