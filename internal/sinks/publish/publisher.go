package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// maxIdleRounds limits the consecutive rounds in which Handle settles no grant.
const maxIdleRounds = 5

// Publisher is a hongbao.Handler that writes grants to the topic. Handle may be called concurrently for different
// shards. Calls for shards of the same partition wait for each other.
type Publisher struct {
	*Log
	codec   kafka.Compression
	claims  Claims
	entries Entries
	slots   []slot
	count   counters

	claimName  string // random, so that no process ever uses another one's claim ids
	claimCount atomic.Int64

	now func() time.Time // replaced by tests
}

var _ hongbao.Handler = (*Publisher)(nil)

// New returns a Publisher. It does not connect to the brokers. Call Check before the first call of Handle, and Close at
// the end.
func New(cfg Config, claims Claims, entries Entries) (*Publisher, error) {
	log, err := NewLog(cfg)
	if !knob.IsName(cfg.Worker) {
		err = errors.Join(err, fmt.Errorf("publisher configuration: Worker %.70q: want 1 to 64 of a-z A-Z 0-9 . _ -",
			cfg.Worker))
	}
	if claims == nil || entries == nil {
		err = errors.Join(err, errors.New("publisher configuration: Claims and Entries are required"))
	}
	if err != nil {
		return nil, err
	}
	codec, err := parseCodec(cfg.Compression)
	if err != nil {
		return nil, fmt.Errorf("publisher configuration: Compression: %w", err)
	}
	var nonce [6]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("publish: no random bytes for the names of claims: %w", err)
	}
	p := &Publisher{
		Log: log, codec: codec, claims: claims, entries: entries, slots: make([]slot, cfg.Partitions),
		claimName: cfg.Worker + "." + hex.EncodeToString(nonce[:]) + ".", now: time.Now,
	}
	for i := range p.slots {
		p.slots[i] = slot{partition: i, turn: make(chan struct{}, 1), batch: newBatch(p.source)}
		p.slots[i].batch.addFounding(cfg.Founding)
	}
	return p, nil
}

func (p *Publisher) newClaimID() string {
	return p.claimName + strconv.FormatInt(p.claimCount.Add(1), 10)
}

// Handle writes the grants to the topic. See the package comment for the protocol, and hongbao.Handler for the
// contract.
//
// Its errors are of these kinds:
//
// Outage: the brokers or Campaigns did not answer in time, or the partition was not free in time. A stored claim stays
// for the next worker. Waiting: a live worker is processing the same grants. Permanent: a grant has invalid fields, its
// campaign is unknown, its coupon has no code, or the broker refuses it although it accepts a record as large as any
// grant. Conflict: retention has deleted the place where a batch would be. Broken: the topic and the claims contradict
// each other, or the broker refuses everything.
func (p *Publisher) Handle(ctx context.Context, b hongbao.Batch) []error {
	if err := stream.CheckBatch(&b); err != nil {
		return slices.Repeat([]error{err}, len(b.Grants))
	}
	c := newCall(&b, p.cfg.BatchGrants)
	if len(c.left) == 0 {
		return c.result()
	}
	if err := p.addTerms(ctx, c); err != nil {
		c.fail(err)
		return c.result()
	}
	s := &p.slots[p.Partition(c.in.Shard)]
	if !s.lock(ctx) {
		c.fail(hongbao.Outagef(hongbao.ClassTransient, "waiting for %s, which other shards use: %w", p.where(s.partition),
			ctx.Err()))
		return c.result()
	}
	defer s.unlock()
	for idle := 0; len(c.left) > 0; idle++ {
		if idle == maxIdleRounds {
			c.fail(hongbao.Waitingf("claims of %s change owners too fast: gave up after %d rounds", p.where(s.partition),
				maxIdleRounds))
			break
		}
		before, most := len(c.left), c.most
		if err := p.publish(ctx, s, c); err != nil {
			c.fail(err)
			break
		}
		if len(c.left) < before || c.most < most {
			idle = -1
		}
	}
	return c.result()
}

// publish sends the next batch of the call, or finishes the claims that block it. An error concerns every remaining
// grant. If the error is nil, the caller continues with the remaining grants.
func (p *Publisher) publish(ctx context.Context, s *slot, c *call) error {
	attempt, cancel := context.WithTimeout(ctx, p.cfg.AttemptTime)
	defer cancel()
	b, err := p.nextBatch(attempt, s, c)
	if err != nil {
		return err
	}
	answer, err := p.claim(ctx, c, b)
	if err != nil {
		return err
	}
	if !answer.Granted() {
		// Discard the session. If the client lost the response of the claim script and ran it again, the first run may
		// have stored our claim. It is then one of the open claims, and finishing it uses the session's sequence.
		return p.resolveAll(ctx, s, c, answer)
	}
	sent := p.send(attempt, s, b.born, b.raw)
	switch {
	case sent.outcome == appended:
		return p.complete(ctx, s, c, b, sent.base)
	case sent.outcome == lookBack:
		return c.ownOnly(&b.claim, p.lookBack(ctx, s, c, &b.claimed))
	case sent.outcome == fenced: // another worker has the claim; the next round shows its state
		return nil
	case !sent.unsure && (sent.outcome == tooMuch || sent.outcome == refused || sent.outcome == absent):
		return p.giveBack(ctx, s, c, b, sent)
	}
	return p.undecided(s, sent)
}
