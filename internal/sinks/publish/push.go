package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// claimed is a batch together with its claim.
type claimed struct {
	st    stored
	claim stream.Claim
}

// push is a batch that is sent with this worker's own session.
type push struct {
	claimed
	open   *session
	events []stream.CampaignRange
	born   time.Time
	raw    []byte // valid until the slot starts its next batch
}

// nextBatch takes the session and fills a batch with remaining grants of the call, up to the limits of size and number.
func (p *Publisher) nextBatch(ctx context.Context, s *slot, c *call) (*push, error) {
	born := p.now()
	open, err := p.takeSession(ctx, s, born)
	if err != nil {
		return nil, err
	}
	if err := p.checkEpoch(ctx, c.in, open); err != nil {
		s.keep(open)
		return nil, err
	}
	st := stored{numbers: open.numbers, codec: p.codec, partition: s.partition, ms: born.UnixMilli(), noted: open.end,
		topic: p.cfg.Topic}
	s.batch.start(st.numbers, st.ms)
	var events []stream.CampaignRange
	last := int64(-1)
	for _, i := range c.left {
		g := &c.grants[i]
		if g.Seq == last { // the call contains the grant twice
			continue
		}
		if s.batch.count == c.most || !s.batch.add(g, p.cfg.BatchBytes) {
			break
		}
		last = g.Seq
		st.extend(g)
		events = stream.AppendEvent(events, g.Campaign, g.Seq)
	}
	raw, err := s.batch.pack(st.codec)
	if err != nil {
		return nil, err
	}
	claim := stream.Claim{ID: p.newClaimID(), Events: st.events(), Payload: st.String()}
	return &push{claimed: claimed{st, claim}, open: open, events: events, born: born, raw: raw}, nil
}

// claim stores the claim of the batch. If the answer is granted, the worker may send the batch.
func (p *Publisher) claim(ctx context.Context, c *call, b *push) (*stream.ClaimAnswer, error) {
	answer, err := p.claims.Claim(ctx, c.in, b.claim.ID, b.claim.Events, b.claim.Payload)
	if err != nil {
		return nil, fmt.Errorf("claiming %d grants for %s: %w", b.st.count(), p.where(b.st.partition), err)
	}
	b.claim.Fence = answer.Fence
	return &answer, nil
}

// resolveAll finishes the open claims that blocked a new claim. Events that are already done get their result.
func (p *Publisher) resolveAll(ctx context.Context, s *slot, c *call, a *stream.ClaimAnswer) error {
	c.settle(a.Done, nil)
	for i := range a.Open {
		p.count.takenOver.Add(1)
		if err := c.ownOnly(&a.Open[i], p.resolve(ctx, s, c, a.Open[i])); err != nil {
			return err
		}
	}
	if a.LiveClaims > 0 {
		return hongbao.Waitingf("a live worker has %d claims for %s", a.LiveClaims, p.where(s.partition))
	}
	return nil
}

// complete completes the claim of a batch that is in the log, and keeps the session. Any other end of the batch, except
// a release, discards the session.
func (p *Publisher) complete(ctx context.Context, s *slot, c *call, b *push, base int64) error {
	if err := p.checkOffset(s, &b.st, base); err != nil {
		return err
	}
	n := b.st.count()
	s.last = &ownRecord{base + n - 1, b.st.numbers}
	done, err := p.completeClaim(ctx, c, &b.claim, b.events)
	if err != nil || !done {
		return err
	}
	p.count.batches.Add(1)
	c.widen()
	b.open.sequence += int32(n)
	b.open.end, b.open.known, b.open.announced = max(b.open.end, base+n), p.now(), b.born
	s.keep(b.open)
	return nil
}

// giveBack releases the claim of a batch that is certainly not in the log. If the batch was too large, the next batch
// is half as large.
func (p *Publisher) giveBack(ctx context.Context, s *slot, c *call, b *push, sent sendResult) error {
	released, err := p.releaseClaim(ctx, c, &b.claim)
	switch {
	case err != nil:
		return err
	case sent.outcome != tooMuch:
		return p.sinkError("sending to "+p.where(s.partition), sent.outcome, sent.err)
	case !released:
		return nil
	}
	return p.halve(ctx, s, c, b, sent.err)
}

// halve halves the size of the next batch. If the batch had only one grant, halve sends a probe instead. If the broker
// accepts the probe, the grant gets a Permanent error.
func (p *Publisher) halve(ctx context.Context, s *slot, c *call, b *push, cause error) error {
	p.count.refused.Add(1)
	if n := int(b.st.count()); n > 1 {
		s.keep(b.open)
		c.most = max(1, n/2)
		return nil
	}
	if err := p.probe(ctx, s, b.open); err != nil {
		return fmt.Errorf("the broker refuses a single grant (%w): %w; compare the topic's max.message.bytes", cause, err)
	}
	s.keep(b.open)
	c.widen()
	c.settle(b.st.events(), hongbao.Errorf(hongbao.ClassPermanent,
		"%s accepts a record that is as large as any grant, but not this grant: %w", p.where(b.st.partition), cause))
	return nil
}

// undecided returns the error of a batch that may or may not be in the log. The claim of the batch stays. The error is
// an outage: even if the call ran out of time, no grant caused it, because other shards may have used the partition
// before.
func (p *Publisher) undecided(s *slot, sent sendResult) error {
	return hongbao.Outagef(hongbao.ClassUnknown, "sending to %s: no conclusive answer in time: %w; its claim stays",
		p.where(s.partition), plain(sent.err))
}

// completeClaim marks the events that arrived as done, and ends the claim. It returns false if another worker has taken
// over the claim.
func (p *Publisher) completeClaim(ctx context.Context, c *call, claim *stream.Claim, arrived []stream.CampaignRange) (bool,
	error) {
	err := p.claims.Complete(ctx, c.in, *claim, arrived)
	if errors.Is(err, stream.ErrFenced) {
		p.count.lost.Add(1)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("completing claim %s of shard %d: %w", claim.ID, c.in.Shard, err)
	}
	c.settle(stream.Seqs(arrived), nil)
	return true, nil
}

// releaseClaim removes the claim of a batch that is certainly not in the log. It returns false if another worker has
// taken over the claim.
func (p *Publisher) releaseClaim(ctx context.Context, c *call, claim *stream.Claim) (bool, error) {
	err := p.claims.Release(ctx, c.in, *claim)
	if errors.Is(err, stream.ErrFenced) {
		p.count.lost.Add(1)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("releasing claim %s of shard %d: %w", claim.ID, c.in.Shard, err)
	}
	return true, nil
}
