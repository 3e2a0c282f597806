package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

// lookBack settles a claim whose batch the broker can't judge by its numbers: it reads the log from the noted offset.
// If all events are there, it completes the claim. If none is, a fence record under the next epoch makes the broker
// refuse every late copy. All in-sync replicas acknowledge that record, so it also shows that nothing before it is
// hidden. If the events are not there even then, the claim is released and the events are claimed again. If this worker
// dies in between, the next one does it all again. If only the time of this call ends, the next call continues reading
// where this one stopped.
func (p *Publisher) lookBack(ctx context.Context, s *slot, c *call, o *claimed) error {
	born := p.now()
	progress := s.searchFor(o)
	b, err := p.reach(ctx, s, o, progress)
	if err != nil {
		return err
	}
	all, err := p.find(ctx, c, o, progress, b.end)
	if err != nil {
		return err
	}
	if !all {
		if p.tooOld(born) { // such a long log: go round, see who has the claim by now, and read what has come since
			return nil
		}
		err = p.letGo(ctx, s, c, o, progress, born)
	}
	if err == nil {
		delete(s.searches, o.claim.ID)
	}
	return err
}

// letGo makes sure that no copy of the missing batch is in the log or can still come, and releases its claim.
func (p *Publisher) letGo(ctx context.Context, s *slot, c *call, o *claimed, progress *search, born time.Time) error {
	st := &o.st
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
		return hongbao.Errorf(hongbao.ClassBroken,
			"%s refuses the fence record for producer %d, epoch %d: %w; the claim %s stays for a person",
			p.where(s.partition), n.producer, n.epoch, sent.err, o.claim.ID)
	case again:
		return p.undecided(s, sent)
	}
	if sent.base < st.noted { // the producer was fenced before this claim was made, or the log went back
		if _, err := p.reach(ctx, s, o, progress); err != nil {
			return err
		}
	}
	p.count.fences.Add(1)
	if all, err := p.find(ctx, c, o, progress, sent.base); err != nil || all {
		return err
	}
	released, err := p.releaseClaim(ctx, c, &o.claim)
	if released {
		p.count.letGo.Add(1)
	}
	return err
}

// search is the progress of reading the log for the batch of one claim. The slot keeps it, so a log that takes longer
// than one call of Handle may take is read in several calls.
type search struct {
	next int64              // every offset from the noted one up to here was read
	seen map[int64]struct{} // the batch's events that were found
}

// maxSearches bounds the searches that a slot remembers: searches of claims that others settled are never used again.
const maxSearches = 64

func (s *slot) searchFor(o *claimed) *search {
	progress := s.searches[o.claim.ID]
	if progress == nil {
		if s.searches == nil || len(s.searches) == maxSearches {
			s.searches = make(map[string]*search)
		}
		progress = &search{next: o.st.noted, seen: make(map[int64]struct{})}
		s.searches[o.claim.ID] = progress
	}
	return progress
}

// reach makes sure that the log still has everything that must be read.
func (p *Publisher) reach(ctx context.Context, s *slot, o *claimed, progress *search) (bounds, error) {
	st := &o.st
	b, err := p.ends(ctx, st.partition)
	if err != nil {
		return b, err
	}
	if b.end < progress.next {
		if !s.knewBack(st) {
			return b, p.wentBack(s, progress.next, "its end is at offset "+decimal(b.end))
		}
		*progress = search{next: b.start, seen: make(map[int64]struct{})} // anywhere in the new log, or nowhere
	}
	if b.start > progress.next {
		return b, p.waits(o, "the log begins at offset "+decimal(b.start)+
			" only: retention removed the part that may have contained it")
	}
	return b, nil
}

// errUndecidable says that neither the broker nor the log can say whether the batch of a claim arrived.
var errUndecidable = errors.New("a person has to decide")

func (p *Publisher) waits(o *claimed, why string) error {
	return hongbao.Errorf(hongbao.ClassConflict,
		"a batch of %d grants for %s, noted at offset %d: %s; %w: `hongbao claim list` shows claim %s, `hongbao claim settle` "+
			"ends it", o.st.count(), p.where(o.st.partition), o.st.noted, why, errUndecidable, o.claim.ID)
}

// ownOnly handles the error of a claim that only a person can decide. The claim's own grants get the error, and the
// others continue. Any other error concerns the whole call.
func (c *call) ownOnly(claim *stream.Claim, err error) error {
	if !errors.Is(err, errUndecidable) {
		return err
	}
	c.settle(claim.Events, err)
	return nil
}

// find looks for the batch's events up to end. It returns true if all are there and the claim is settled.
func (p *Publisher) find(ctx context.Context, c *call, o *claimed, progress *search, end int64) (bool, error) {
	st := &o.st
	err := p.read(ctx, st.partition, bounds{progress.next, end}, func(r *record) error {
		progress.next = r.offset + 1
		e, err := topic.DecodeMessage(r.headers, r.key, r.value)
		if errors.Is(err, topic.ErrForeign) || e.Source != p.source || p.anothers(r) || e.Grant.Shard != c.shard {
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // a record that can't be read is not this batch's: it was encoded here
		}
		if covers(o.claim.Events, e.Grant.Seq) {
			progress.seen[e.Grant.Seq] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("looking for a batch of %d grants, up to offset %d of %d so far: %w", st.count(),
			progress.next, end, err)
	}
	progress.next = max(progress.next, end)
	switch int64(len(progress.seen)) {
	case 0:
		return false, nil
	case st.count():
		p.count.foundInLog.Add(1)
		_, err := p.completeClaim(ctx, c, &o.claim)
		return true, err
	}
	return false, p.waits(o, decimal(int64(len(progress.seen)))+
		" of its events are in the log, though a batch is stored whole or not at all")
}
