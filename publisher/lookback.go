package publisher

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
)

// lookBack settles a claim whose batch the broker can't judge by its numbers: it reads the log from the noted offset.
// All events there: complete. None: a fence record under the next epoch makes the broker refuse every late copy, and being
// acknowledged by all in-sync replicas it also shows that nothing before it is hidden; if they are not there even then,
// the claim is released and the events are claimed anew. If this worker dies in between, the next one does it all again.
func (p *Publisher) lookBack(ctx context.Context, s *slot, c *call, o *claimed) error {
	st := &o.st
	born := p.now()
	b, err := p.reach(ctx, st)
	if err != nil {
		return err
	}
	all, err := p.find(ctx, c, o, b.end)
	if err != nil || all {
		return err
	}
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	n := numbers{producer: st.producer, epoch: st.epoch + 1}
	ms := born.UnixMilli()
	s.batch.start(n, ms)
	s.batch.addFence(n, ms)
	sent := p.send(attempt, s, born, s.batch.finish())
	switch sent.verdict {
	case appended:
	case refused, absent:
		return p.sinkError("sending a fence record to "+p.where(s.partition), sent.verdict, sent.err)
	case lookBack, fenced, tooMuch:
		return hongbao.Errorf(hongbao.Broken, "%s refuses the fence record for producer %d, epoch %d: %w; the claim %s stays for a person",
			p.where(s.partition), n.producer, n.epoch, sent.err, o.claim.ID)
	case again:
		return p.undecided(ctx, s, sent)
	}
	if err := p.checkOffset(st, sent.base); err != nil {
		return err
	}
	p.count.fences.Add(1)
	if all, err = p.find(ctx, c, o, sent.base); err != nil || all {
		return err
	}
	released, err := p.release(ctx, c, &o.claim)
	if released {
		p.count.letGo.Add(1)
	}
	return err
}

// reach makes sure that the log still holds everything from the noted offset on.
func (p *Publisher) reach(ctx context.Context, st *stored) (bounds, error) {
	b, err := p.ends(ctx, st.partition)
	if err != nil {
		return b, err
	}
	if b.end < st.noted {
		return b, p.wentBack(st, "its end is at offset "+decimal(b.end))
	}
	if b.start > st.noted {
		return b, p.waits(st, "the log begins at offset "+decimal(b.start)+" only: retention removed what may have held it")
	}
	return b, nil
}

func (p *Publisher) waits(st *stored, why string) error {
	return hongbao.Errorf(hongbao.Conflict, "a batch of %d grants for %s, noted at offset %d: %s; it waits for a person",
		st.count(), p.where(st.partition), st.noted, why)
}

// find looks for the batch's events from the noted offset up to end. True: all are there and the claim is settled.
func (p *Publisher) find(ctx context.Context, c *call, o *claimed, end int64) (bool, error) {
	st := &o.st
	seen := make(map[int64]struct{})
	err := p.read(ctx, st.partition, bounds{st.noted, end}, func(r *record) error {
		e, err := DecodeMessage(r.headers, r.key, r.value)
		if errors.Is(err, ErrForeign) || e.Source != p.source || e.Grant.Shard != c.shard {
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // a record that can't be read is not this batch's: it was encoded here
		}
		if covers(o.claim.Events, e.Grant.Seq) {
			seen[e.Grant.Seq] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	switch int64(len(seen)) {
	case 0:
		return false, nil
	case st.count():
		p.count.foundInLog.Add(1)
		_, err := p.complete(ctx, c, &o.claim)
		return true, err
	}
	return false, p.waits(st, decimal(int64(len(seen)))+" of its events are in the log, though a batch is stored whole or not at all")
}
