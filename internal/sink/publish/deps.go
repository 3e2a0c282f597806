package publish

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Claims is where the publisher notes what it is about to send. Package claims implements it on Redis; each method is
// one atomic step there.
type Claims interface {
	// Claim takes the right to push the events, unless any of them is done or covered by another claim: then nothing is
	// claimed and the answer tells what stands in the way. Open claims in the answer were taken over.
	Claim(ctx context.Context, shard int, id string, events []stream.SeqRange, payload string) (stream.ClaimAnswer,
		error)
	// Complete marks the claim's events done and removes it; stream.ErrFenced if it was taken over or ended. One that was
	// lost is completed all the same: the batch is in the topic.
	Complete(ctx context.Context, shard int, c stream.Claim) error
	// Release removes the claim of a batch that is certainly not in the topic; stream.ErrFenced as above.
	Release(ctx context.Context, shard int, c stream.Claim) error
}

// Terms are what never changes in a campaign, and what a message needs of it.
type Terms struct {
	// Currency is empty if the campaign's packets have no value.
	Currency string
	// Codes says that every packet has a code.
	Codes bool
}

// Campaigns has what a grant of the stream may lack. Its methods may be called at once.
type Campaigns interface {
	// Terms gives the terms of a campaign that has grants on a shard, and false if nobody knows the campaign. It is asked
	// for every batch, and should remember.
	Terms(ctx context.Context, shard int, campaign string) (Terms, bool, error)
	// Codes gives the codes of packets that were granted on a shard, in their order; "" for a packet that certainly has
	// none.
	Codes(ctx context.Context, shard int, campaign string, packets []int64) ([]string, error)
}

// Entries reads the stream, to build the batch of a stored claim again.
type Entries interface {
	// Entries gives the entries from firstID to lastID, both included, in order. The ids are EntryIDs of grants that
	// were handed to Handle; the publisher does not look into them. An entry that is gone is left out.
	Entries(ctx context.Context, shard int, firstID, lastID string) ([]stream.Entry, error)
}
