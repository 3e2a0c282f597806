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
	// of lost events have a Done of their own, because those events are done by the sink's bits. Complete sets the
	// bits of both.
	Done string
	// Trimmed: the sink is a consumer group, whose done bits the trimmer deletes behind the stream. Deleted bits
	// count as done. A replay into the group's own sink has such events. A worker that slept while others finished
	// and trimmed its entries has them too. Trimmed does not apply to the bits of Done, which are never trimmed.
	Trimmed bool
	// Owner names this worker. No other worker ever has the same name.
	Owner string
	// Lease is how long a claim counts as live, in Redis time. 1 ms to 24 h.
	Lease time.Duration
	// TakeLive: claims of live owners are handed over too. It is only for sinks where a second push of the same claim
	// is harmless, as with Kafka's broker. The pending list already decides which worker has the turn.
	TakeLive bool
}

// MaxEvents is the most events that one claim covers.
const MaxEvents = 1 << 16

// Claims keeps the pushes in progress of a sink that cannot detect a repeat by itself. It is safe for concurrent use.
// Each event has one done bit. A claim is written before the push and is gone after it:
//
//	new --claim--> claimed --complete--> done (bits set, claim gone, one script)
//	                  |--release (certainly not sent)--> new
//	                  '--owner dies, or does not know--> open: the next claim of one of its events takes it over
//
// No timer makes an open claim new again. The worker that takes it over gets its payload and finishes it in the sink's
// own way. The publisher, for example, sends the same batch again, and the broker drops the copy. Complete and Release
// compare the claim's fence, as a lock's release compares its token. A worker that was overtaken gets stream.ErrFenced.
//
// An open claim stays until a worker or a person resolves it. Claims never deletes one by itself.
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

// Claim asks for the right to push events. It is granted only if none of them is done or covered by another claim.
// Otherwise nothing is claimed, and the answer has the done events and the claims. Claims that the answer lists as
// open have been taken over, and the caller has to finish them. A second call for a granted claim hands that claim
// over as open.
func (c *Claims) Claim(ctx context.Context, shard int, id string, events []stream.SeqRange,
	payload string) (stream.ClaimAnswer, error) {
	if err := checkClaim(id, events); err != nil {
		return stream.ClaimAnswer{}, hongbao.Errorf(hongbao.ClassPermanent,
			"claim %.80q of shard %d was refused before anything was touched: %w",
			id, shard, err)
	}
	return c.store.Shard(shard).Claim(ctx, &ClaimCall{
		Sink: c.cfg.Sink, Done: c.cfg.Done, ID: id, Owner: c.cfg.Owner, Lease: c.cfg.Lease, TakeLive: c.cfg.TakeLive,
		Trimmed: c.cfg.Trimmed && c.cfg.Done == "", Events: events, Payload: payload,
	})
}

// Complete ends a claim whose push arrived: it marks the events as done and removes the claim, in one step. The error
// is stream.ErrFenced if the claim was taken over; then its new owner finishes it. A claim that Redis has lost
// meanwhile is completed too, unless another claim covers some of its events by now.
func (c *Claims) Complete(ctx context.Context, shard int, claim stream.Claim) error {
	var also []string
	if c.cfg.Done != "" && c.cfg.Done != c.cfg.Sink {
		also = append(also, c.cfg.Done)
	}
	return c.store.Shard(shard).Complete(ctx, c.cfg.Sink, &claim, also...)
}

// Release ends a claim whose push was certainly not sent. The error is stream.ErrFenced if the claim was taken over,
// or is gone.
func (c *Claims) Release(ctx context.Context, shard int, claim stream.Claim) error {
	return c.store.Shard(shard).Release(ctx, c.cfg.Sink, &claim)
}

// checkClaim returns an error for a claim that could not be found, or read back, once it is stored.
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
