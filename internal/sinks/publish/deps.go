package publish

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Claims stores a claim on the events of each batch before the batch is sent. store.Claims implements it with Redis,
// where each method is one atomic step.
type Claims interface {
	// Claim claims the events for this worker. It claims nothing if an event is done or is covered by another claim:
	// then the answer lists these obstacles. Open claims in the answer have been taken over.
	Claim(ctx context.Context, in stream.Opening, id string, events []stream.SeqRange, payload string) (stream.ClaimAnswer,
		error)
	// Complete marks the claim's events that arrived as done and removes the claim. It returns stream.ErrFenced if the
	// claim was taken over or has ended. If Redis has lost the claim, Complete still marks the events done, because they
	// are in the topic.
	Complete(ctx context.Context, in stream.Opening, c stream.Claim, arrived []stream.CampaignRange) error
	// Release removes the claim of a batch that is certainly not in the topic. It returns stream.ErrFenced in the same
	// cases as Complete.
	Release(ctx context.Context, in stream.Opening, c stream.Claim) error
}

// Entries reads the stream. The publisher needs it to rebuild the batch of a stored claim.
type Entries interface {
	// Entries returns the entries from firstID to lastID, both included, in order. It leaves out missing entries. The
	// ids are EntryIDs of grants that Handle received; the publisher does not parse them.
	Entries(ctx context.Context, in stream.Opening, firstID, lastID string) ([]stream.Entry, error)
}
