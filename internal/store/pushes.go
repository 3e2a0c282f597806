package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// ClaimsConfig configures the claims of one sink.
type ClaimsConfig struct {
	// Sink names the sink and its consumer group.
	Sink string
	// Done is the sink whose done bits show earlier pushes; empty means Sink. A requeue of dead letters and a replay
	// of lost events set a different Done, because the sink's own bits already mark these events as done. Complete
	// sets both sinks' bits.
	Done string
	// Requeues is the sink whose done bits mark the dead letters of Sink that were delivered, or empty. If an event of
	// a claim has become a dead letter meanwhile, Complete marks it there too, so that a requeue does not push it
	// again. Requeues does not apply if Done is set.
	Requeues string
	// Trimmed is for a consumer group: events below the done floor count as done, because the trimmer has deleted
	// their bits. Such events occur in a replay to the group's sink, and in a worker that was suspended while others
	// finished and trimmed its entries. It does not apply to other bits in Done, which are never trimmed. Complete counts
	// what a consumer group has finished by campaign.
	Trimmed bool
	// Owner names this worker. Each worker must have a unique name.
	Owner string
	// Lease is how long a claim's owner counts as live, by the Redis clock: 1 ms to 24 h.
	Lease time.Duration
	// TakeLive means that claims of live owners are taken over too. Set it only if a second push of the same claim is
	// harmless, as with Kafka, whose broker drops copies. The pending list already decides which worker pushes.
	TakeLive bool
}

// MaxEvents is the most events that one claim covers.
const MaxEvents = 1 << 16

// Claims records the pushes in progress to a sink that can't detect repeats. It is safe for concurrent use. Each
// event has one done bit. A claim is stored before the push and removed after it:
//
//	new --claim--> claimed --complete--> done (bits set, claim gone, one script)
//	                  |--release (certainly not sent)--> new
//	                  '--owner dies, or does not know--> open: the next claim of one of its events takes it over
//
// An open claim does not expire. The worker that takes it over gets its payload and finishes the push in a way that
// suits the sink. For example, the publisher sends the same batch again, and the broker drops the copy. Complete and
// Release check the claim's fence, so a worker whose claim was taken over gets stream.ErrFenced.
//
// An open claim stays until a worker or an operator resolves it.
type Claims struct {
	store *Store
	cfg   ClaimsConfig
}

// Claims returns the claims of one sink, or an error for a wrong configuration.
func (s *Store) Claims(cfg ClaimsConfig) (*Claims, error) {
	var errs []error
	if err := hongbao.CheckCampaignID(cfg.Sink); err != nil {
		errs = append(errs, fmt.Errorf("sink %q: %w", cfg.Sink, err))
	}
	if err := hongbao.CheckCampaignID(cfg.Done); cfg.Done != "" && err != nil {
		errs = append(errs, fmt.Errorf("done bits of %q: %w", cfg.Done, err))
	}
	if err := hongbao.CheckID(cfg.Owner); err != nil {
		errs = append(errs, fmt.Errorf("owner %q: %w", cfg.Owner, err))
	}
	if cfg.Lease < time.Millisecond || cfg.Lease > 24*time.Hour {
		errs = append(errs, fmt.Errorf("lease %s: want 1ms to 24h", cfg.Lease))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("claims: %w", errors.Join(errs...))
	}
	return &Claims{store: s, cfg: cfg}, nil
}

// Claim asks for the right to push events. The claim is granted only if no event is done or covered by another claim.
// Otherwise nothing is claimed, and the answer has the done events and the open claims. The call has taken over these
// open claims, and the caller must finish them. If the caller repeats a granted call, the answer has the granted
// claim as an open one.
func (c *Claims) Claim(ctx context.Context, in stream.Opening, id string, events []stream.SeqRange,
	payload string) (stream.ClaimAnswer, error) {
	if err := checkClaim(id, events); err != nil {
		return stream.ClaimAnswer{}, hongbao.Errorf(hongbao.ClassPermanent,
			"claim %.80q of shard %d was refused before anything was touched: %w",
			id, in.Shard, err)
	}
	return c.shard(in).Claim(ctx, &ClaimCall{
		Sink: c.cfg.Sink, Done: c.cfg.Done, ID: id, Owner: c.cfg.Owner, Lease: c.cfg.Lease, TakeLive: c.cfg.TakeLive,
		Trimmed: c.cfg.Trimmed && c.cfg.Done == "", Events: events, Payload: payload,
	})
}

// Complete ends a claim whose push arrived: it marks the events that arrived as done and removes the claim, in one step.
// The error is stream.ErrFenced if the claim was taken over; its new owner then finishes it. A claim that Redis has lost
// is also completed, unless a newer claim covers some of its events.
func (c *Claims) Complete(ctx context.Context, in stream.Opening, claim stream.Claim, arrived []stream.CampaignRange) error {
	also := Also{Sink: c.cfg.Requeues, Letters: c.cfg.Requeues != ""}
	if c.cfg.Done != "" && c.cfg.Done != c.cfg.Sink {
		also = Also{Sink: c.cfg.Done}
	}
	if !c.cfg.Trimmed {
		arrived = stream.OfCampaign("", stream.Seqs(arrived)...)
	}
	return c.shard(in).Group(c.cfg.Sink).Complete(ctx, &claim, arrived, also)
}

// Release ends a claim whose push was certainly not sent. The error is stream.ErrFenced if the claim was taken over
// or no longer exists.
func (c *Claims) Release(ctx context.Context, in stream.Opening, claim stream.Claim) error {
	return c.shard(in).Group(c.cfg.Sink).Release(ctx, &claim)
}

func (c *Claims) shard(in stream.Opening) *Shard { return c.store.Shard(in.Shard).At(in.Epoch) }

// checkClaim returns an error if the stored claim could not be found or parsed later.
func checkClaim(id string, events []stream.SeqRange) error {
	err := hongbao.CheckID(id)
	if err == nil && id[0] == '#' {
		err = errors.New("a claim's id can't begin with #")
	}
	var total int64
	for _, r := range events {
		if r.First < 1 || r.Last < r.First || r.Last > int64(hongbao.MaxAmount) {
			return errors.Join(err, fmt.Errorf("events %d to %d: want 1 <= first <= last < 2^53", r.First, r.Last))
		}
		if total += r.Len(); total > MaxEvents {
			break
		}
	}
	if total < 1 || total > MaxEvents {
		err = errors.Join(err, fmt.Errorf("it covers %d events or more: want 1 to %d", total, MaxEvents))
	}
	return err
}
