package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var errGone = errors.New("entries of the batch are not in the stream any more")

// resolve finishes an open claim that this worker has taken over. If it returns nil, the claim was completed or
// released, or another worker has taken it over.
func (p *Publisher) resolve(ctx context.Context, s *slot, c *call, claim stream.Claim) error {
	st, err := p.readStored(s.partition, &claim)
	if err != nil {
		return err
	}
	if !p.remembered(&st) {
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	}
	born := p.now()
	grants, err := p.rebuild(ctx, c.in, &st)
	if errors.Is(err, errGone) {
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	}
	if err != nil {
		return err
	}
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	s.batch.start(st.numbers, st.ms)
	for i := range grants {
		s.batch.add(&grants[i], maxRebuilt)
	}
	raw, err := s.batch.pack(st.codec)
	if err != nil {
		return err
	}
	sent := p.send(attempt, s, born, raw)
	switch sent.outcome {
	case appended:
		if err := p.checkOffset(s, &st, sent.base); err != nil {
			return err
		}
		p.count.sentAgain.Add(1)
		_, err := p.completeClaim(ctx, c, &claim, stream.EventsOf(grants))
		return err
	case lookBack, fenced, tooMuch:
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	case refused, absent:
		if errors.Is(sent.err, kafka.InvalidTimestamp) { // older than message.timestamp.before.max.ms
			return p.lookBack(ctx, s, c, &claimed{st, claim})
		}
		return p.sinkError("sending a stored batch to "+p.where(s.partition), sent.outcome, sent.err)
	case again:
	}
	return p.undecided(s, sent)
}

// maxRebuilt limits the size of a rebuilt batch. It does not depend on BatchBytes, which may have been higher when the
// batch was first sent.
const maxRebuilt = 2 * maxBatchBytes

// readStored parses the claim's payload, and checks it against the claim and the configuration.
func (l *Log) readStored(partition int, claim *stream.Claim) (stored, error) {
	st, err := parseStored(claim.Payload)
	if err != nil {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"the payload of open claim %s can't be read: %w; the claim stays until a person decides", claim.ID, err)
	}
	if st.topic != l.cfg.Topic || st.partition != partition {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"open claim %s was for partition %d of topic %s, but this worker sends the shard to %s: finish it with the old "+
				"configuration first",
			claim.ID, st.partition, st.topic, l.where(partition))
	}
	if !slices.Equal(st.events(), claim.Events) {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"open claim %s covers %v, but its payload %v; the claim stays until a person decides",
			claim.ID, claim.Events, st.events())
	}
	return st, nil
}

// remembered reports whether the brokers certainly still remember the producer of the batch.
func (p *Publisher) remembered(st *stored) bool {
	age := p.now().Sub(time.UnixMilli(st.ms))
	return age > -stream.ClockSkew && age < time.Duration(p.expiration.Load())/2
}

// rebuild reads the batch's grants from the stream, in their original order, and adds their codes, which never change.
// It returns errGone if a grant is missing.
func (p *Publisher) rebuild(ctx context.Context, in stream.Opening, st *stored) ([]hongbao.Grant, error) {
	grants := make([]hongbao.Grant, 0, st.count())
	for _, r := range st.runs {
		entries, err := r.read(ctx, p.entries, in)
		if err != nil {
			return nil, err
		}
		next := r.First
		for i := range entries {
			for _, g := range entries[i].Grants {
				if g.Seq < r.First || g.Seq > r.Last {
					continue
				}
				if g.Seq != next || g.Shard != in.Shard {
					return nil, errGone
				}
				grants = append(grants, g)
				next++
			}
		}
		if next != r.Last+1 {
			return nil, errGone
		}
	}
	grants, without, err := p.withTerms(ctx, grants)
	if err == nil && len(without) > 0 { // each grant had terms and a code when the batch was stored
		err = errGone
	}
	return grants, err
}

// checkOffset returns an error if the batch has an impossible offset: one before the end of the log that was noted
// before the batch was sent.
func (p *Publisher) checkOffset(s *slot, st *stored, base int64) error {
	if base >= st.noted || s.knewBack(st) {
		return nil
	}
	return p.logWentBackError(s, st.noted, fmt.Sprintf("a batch was appended at offset %d", base))
}

// logWentBackError returns the error that the log went back. Its time is kept, so that the slot reports this once and
// then continues with the current log.
func (p *Publisher) logWentBackError(s *slot, was int64, seen string) error {
	s.back, s.last = p.now(), nil
	return hongbao.Errorf(hongbao.ClassBroken,
		"%s went back: %s, but the log was %d long before: the topic was deleted and created again, or the broker lost its "+
			"tail. Grants of the lost part are missing: `hongbao audit` names them, `hongbao replay --to kafka --missing` "+
			"pushes them again; see docs/kafka.md, \"When the topic went back\"", p.where(s.partition), seen, was)
}

// knewBack reports whether the batch was stored before the slot reported that the log went back. The batch's noted
// offset then belongs to the earlier log.
func (s *slot) knewBack(st *stored) bool { return st.ms <= s.back.UnixMilli() }
