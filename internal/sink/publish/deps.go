package publish

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Claims stores what the publisher is about to send. store.Claims implements it on Redis; each method is one atomic
// step there.
type Claims interface {
	// Claim takes the right to push the events, unless any of them is done or covered by another claim. In that case
	// nothing is claimed and the answer has the obstacles. Open claims in the answer were taken over.
	Claim(ctx context.Context, shard int, id string, events []stream.SeqRange, payload string) (stream.ClaimAnswer,
		error)
	// Complete marks the claim's events done and removes it. It returns stream.ErrFenced if the claim was taken over or
	// ended. A lost claim is completed all the same: the batch is in the topic.
	Complete(ctx context.Context, shard int, c stream.Claim) error
	// Release removes the claim of a batch that is certainly not in the topic. It returns stream.ErrFenced in the same
	// cases as Complete.
	Release(ctx context.Context, shard int, c stream.Claim) error
}

// Terms are the facts that never change in a campaign and that a message needs.
type Terms struct {
	// Currency is empty if the campaign's packets have no value.
	Currency string
	// Codes reports whether every packet has a code.
	Codes bool
}

// Campaigns has the data that a grant of the stream may lack. Its methods must be safe for concurrent use.
type Campaigns interface {
	// Terms returns the terms of a campaign that has grants on a shard, and false if the campaign is unknown. It is
	// called for every batch, and should cache.
	Terms(ctx context.Context, shard int, campaign string) (Terms, bool, error)
	// Codes returns the codes of packets that were granted on a shard, in their order; "" for a packet that certainly
	// has none.
	Codes(ctx context.Context, shard int, campaign string, packets []int64) ([]string, error)
}

// Entries reads the stream, to build the batch of a stored claim again.
type Entries interface {
	// Entries returns the entries from firstID to lastID, both included, in order. The ids are EntryIDs of grants that
	// Handle got; the publisher does not parse them. A missing entry is left out.
	Entries(ctx context.Context, shard int, firstID, lastID string) ([]stream.Entry, error)
}
