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

// lookBack settles a claim whose batch the broker can't identify by its numbers any more. It reads the log from the
// offset that the claim noted, or from the first record with the batch's time: in a topic that was made again, the
// batch may be before that offset. If all events are there, it completes the claim. If none is, it sends a fence record
// with the next epoch, so that the broker refuses every late copy. All in-sync replicas acknowledge the fence record,
// so after it no earlier record can be hidden. If the events are still missing, it releases the claim, and the events
// are claimed again. If some are there, other batches had them: a batch is stored whole or not at all, so the broker
// refused this one, and Redis has lost what happened since. It marks these events as done, and releases the others.
//
// If this worker dies meanwhile, the next worker starts over. If only this call runs out of time, the next call
// continues to read where this call stopped.
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
		if p.tooOld(born) { // the claim may have a new owner by now: claim again, then read on
			return nil
		}
		err = p.releaseMissing(ctx, s, c, o, progress, born)
	}
	if err == nil {
		delete(s.searches, o.claim.ID)
	}
	return err
}

// releaseMissing releases the claim of a batch that was not found. First it makes sure that no copy of the batch is in
// the log or can still arrive.
func (p *Publisher) releaseMissing(ctx context.Context, s *slot, c *call, o *claimed, progress *search, born time.Time) error {
	st := &o.st
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	n := numbers{producer: st.producer, epoch: st.epoch + 1}
	ms := born.UnixMilli()
	s.batch.start(n, ms)
	s.batch.addFence(n, ms)
	sent := p.send(attempt, s, born, s.batch.finish())
	switch sent.outcome {
	case appended:
	case refused, absent:
		return p.sinkError("sending a fence record to "+p.where(s.partition), sent.outcome, sent.err)
	case lookBack, fenced, tooMuch:
		return hongbao.Errorf(hongbao.ClassBroken,
			"%s refuses the fence record for producer %d, epoch %d: %w; the claim %s stays until a person decides",
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
	if len(progress.seen) > 0 {
		_, err := p.completeClaim(ctx, c, &o.claim, progress.found(&o.st))
		return err
	}
	released, err := p.releaseClaim(ctx, c, &o.claim)
	if released {
		p.count.releasedMissing.Add(1)
	}
	return err
}

// search is the progress of searching the log for the batch of one claim. The slot keeps it, so that several calls of
// Handle can share the reading of a long log.
type search struct {
	next int64            // every offset from the first one of the search up to this one was read
	back bool             // next was compared with the batch's time
	seen map[int64]string // seqs of the batch that were found, with their campaigns
}

// found returns the events of the batch that were found.
func (s *search) found(st *stored) (events []stream.CampaignRange) {
	for _, r := range st.runs {
		for seq := r.First; seq <= r.Last; seq++ {
			if campaign, found := s.seen[seq]; found {
				events = stream.AppendEvent(events, campaign, seq)
			}
		}
	}
	return events
}

// maxSearches limits the searches that a slot keeps. If other workers settle the claims, their searches would stay
// forever.
const maxSearches = 64

func (s *slot) searchFor(o *claimed) *search {
	progress := s.searches[o.claim.ID]
	if progress == nil {
		if s.searches == nil || len(s.searches) == maxSearches {
			s.searches = make(map[string]*search)
		}
		progress = &search{next: o.st.noted, seen: make(map[int64]string)}
		s.searches[o.claim.ID] = progress
	}
	return progress
}

// reach checks that the log still contains everything that the search must read.
func (p *Publisher) reach(ctx context.Context, s *slot, o *claimed, progress *search) (bounds, error) {
	st := &o.st
	b, err := p.ends(ctx, st.partition)
	if err != nil {
		return b, err
	}
	if b.end < progress.next {
		if !s.knewBack(st) {
			return b, p.logWentBackError(s, progress.next, "its end is at offset "+decimal(b.end))
		}
		*progress = search{next: b.start, back: true, seen: make(map[int64]string)} // it may be anywhere in the new log
	}
	if b.start > progress.next {
		return b, p.waits(o, "the log begins at offset "+decimal(b.start)+
			" only: retention removed the part that may have contained it")
	}
	if !progress.back {
		first, err := p.offsetAt(ctx, st.partition, time.UnixMilli(st.ms), b)
		if err != nil {
			return b, err
		}
		progress.next, progress.back = min(progress.next, first), true
	}
	return b, nil
}

// waits returns the error of a claim of which neither the broker nor the log shows whether its batch was appended.
func (p *Publisher) waits(o *claimed, why string) error {
	return hongbao.Undecidedf("a batch of %d grants for %s, noted at offset %d: %s; a person has to decide: `hongbao claim "+
		"list` shows claim %s, `hongbao claim settle` ends it", o.st.count(), p.where(o.st.partition), o.st.noted, why,
		o.claim.ID)
}

// ownOnly handles an error of resolving a claim. If only a person can decide the claim, only the claim's own grants get
// the error, and the call continues. It returns any other error, which concerns the whole call.
func (c *call) ownOnly(claim *stream.Claim, err error) error {
	if !hongbao.IsUndecided(err) {
		return err
	}
	c.settle(claim.Events, err)
	return nil
}

// find searches the log up to end for the batch's events. It returns true if it has found all of them. It has then
// tried to complete the claim.
func (p *Publisher) find(ctx context.Context, c *call, o *claimed, progress *search, end int64) (bool, error) {
	st := &o.st
	events := st.events()
	err := p.read(ctx, st.partition, bounds{progress.next, end}, func(r *record) error {
		progress.next = r.offset + 1
		e, err := topic.DecodeMessage(r.headers, r.key, r.value)
		if errors.Is(err, topic.ErrForeign) || e.Source != p.source || p.anothers(r) || e.Grant.Shard != c.in.Shard {
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // a record that can't be read is not this batch's: it was encoded here
		}
		if covers(events, e.Grant.Seq) {
			progress.seen[e.Grant.Seq] = e.Grant.Campaign
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("looking for a batch of %d grants, up to offset %d of %d so far: %w", st.count(),
			progress.next, end, err)
	}
	progress.next = max(progress.next, end)
	if int64(len(progress.seen)) < st.count() {
		return false, nil
	}
	p.count.foundInLog.Add(1)
	_, err = p.completeClaim(ctx, c, &o.claim, progress.found(st))
	return true, err
}
