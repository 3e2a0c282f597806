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

// clockSlack is how far the clock of the worker that stored a batch may be ahead of ours.
const clockSlack = 5 * time.Minute

var errGone = errors.New("entries of the batch are not in the stream any more")

// resolve finishes an open claim that was taken over. After nil the claim is completed, released, or taken over by
// another worker.
func (p *Publisher) resolve(ctx context.Context, s *slot, c *call, claim stream.Claim) error {
	st, err := p.readStored(s.partition, &claim)
	if err != nil {
		return err
	}
	if !p.remembered(&st) {
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	}
	born := p.now()
	grants, err := p.rebuild(ctx, c.shard, &st)
	if errors.Is(err, errGone) {
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	}
	if err != nil {
		return err
	}
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	s.batch.startAgain(st.numbers, st.ms)
	for i := range grants {
		s.batch.add(&grants[i], maxRebuilt)
	}
	raw, err := s.batch.pack(st.codec)
	if err != nil {
		return err
	}
	sent := p.send(attempt, s, born, raw)
	switch sent.verdict {
	case appended:
		if err := p.checkOffset(s, &st, sent.base); err != nil {
			return err
		}
		p.count.sentAgain.Add(1)
		_, err := p.completeClaim(ctx, c, &claim)
		return err
	case lookBack, fenced, tooMuch:
		return p.lookBack(ctx, s, c, &claimed{st, claim})
	case refused, absent:
		if errors.Is(sent.err, kafka.InvalidTimestamp) { // too old for the topic's message.timestamp.before.max.ms
			return p.lookBack(ctx, s, c, &claimed{st, claim})
		}
		return p.sinkError("sending a stored batch to "+p.where(s.partition), sent.verdict, sent.err)
	case again:
	}
	return p.undecided(s, sent)
}

// maxRebuilt bounds a rebuilt batch. It is at most as long as the first copy was, whatever BatchBytes is now.
const maxRebuilt = 2 * maxBatchBytes

// readStored reads the claim's payload and compares it with the claim and the configuration.
func (l *Log) readStored(partition int, claim *stream.Claim) (stored, error) {
	st, err := parseStored(claim.Payload)
	if err != nil {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"the payload of open claim %s can't be read: %w; the claim stays for a person", claim.ID, err)
	}
	if st.topic != l.cfg.Topic || st.partition != partition {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"open claim %s was for partition %d of topic %s, but this worker sends the shard to %s: finish it with the old "+
				"configuration first",
			claim.ID, st.partition, st.topic, l.where(partition))
	}
	if !slices.Equal(st.events(), claim.Events) {
		return st, hongbao.Errorf(hongbao.ClassBroken,
			"open claim %s covers %v, but its payload %v; the claim stays for a person",
			claim.ID, claim.Events, st.events())
	}
	return st, nil
}

// remembered reports whether the brokers certainly still know the producer of the batch.
func (p *Publisher) remembered(st *stored) bool {
	age := p.now().Sub(time.UnixMilli(st.ms))
	return age > -clockSlack && age < time.Duration(p.expiration.Load())/2
}

// rebuild reads the batch's grants from the stream, in their order, and their codes, which never change. It returns
// errGone if a grant is missing.
func (p *Publisher) rebuild(ctx context.Context, shard int, st *stored) ([]hongbao.Grant, error) {
	grants := make([]hongbao.Grant, 0, st.count())
	for _, r := range st.runs {
		entries, err := p.entries.Entries(ctx, shard, r.firstEntry, r.lastEntry)
		if err != nil {
			return nil, fmt.Errorf("reading entries %s to %s of shard %d: %w", r.firstEntry, r.lastEntry, shard, err)
		}
		next := r.First
		for i := range entries {
			for _, g := range entries[i].Grants {
				if g.Seq < r.First || g.Seq > r.Last {
					continue
				}
				if g.Seq != next || g.Shard != shard {
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
	if err == nil && len(without) > 0 { // it had one when the batch was stored
		err = errGone
	}
	return grants, err
}

// checkOffset checks that the offset of the batch is possible: at or after the end that was noted before it was sent.
func (p *Publisher) checkOffset(s *slot, st *stored, base int64) error {
	if base >= st.noted || s.knewBack(st) {
		return nil
	}
	return p.wentBack(s, st.noted, fmt.Sprintf("a batch was appended at offset %d", base))
}

// wentBack reports once that the log went back. Then the slot continues with the current log.
func (p *Publisher) wentBack(s *slot, was int64, seen string) error {
	s.back = p.now()
	return hongbao.Errorf(hongbao.ClassBroken,
		"%s went back: %s, but the log was %d long before: the topic was deleted and made again, or the broker lost its "+
			"tail. Grants of the lost part are missing: `hongbao audit` names them, `hongbao replay --to kafka --missing` "+
			"pushes them again; see docs/topic.md, \"When the topic went back\"", p.where(s.partition), seen, was)
}

// knewBack reports whether the batch was stored before the report that the log went back: then its noted offset is in
// the earlier log.
func (s *slot) knewBack(st *stored) bool { return st.ms <= s.back.UnixMilli() }
