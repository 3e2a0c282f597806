package remote

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Claims is where the handler notes what it is about to send. Package dedup implements it on Redis; each method is one
// atomic step there. Claims of live owners must not be handed over.
type Claims interface {
	// Claim takes the right to push the events, unless any of them is done or covered by another claim: then nothing is
	// claimed and the answer tells what stands in the way. Open claims in the answer were taken over.
	Claim(ctx context.Context, shard int, id string, events []hongbao.SeqRange, payload string) (hongbao.ClaimAnswer, error)
	// Complete marks the claim's events done and removes it; hongbao.ErrFenced if it was taken over or is gone.
	Complete(ctx context.Context, shard int, c hongbao.Claim) error
	// Release removes a claim whose events are certainly not pushed; hongbao.ErrFenced as above.
	Release(ctx context.Context, shard int, c hongbao.Claim) error
	// Narrow marks the claim's events done and leaves it with only the events left; hongbao.ErrFenced as above.
	Narrow(ctx context.Context, shard int, c hongbao.Claim, left []hongbao.SeqRange) error
	// Note keeps for ever that the remote has credited the events, although their claim can't be completed yet.
	Note(ctx context.Context, shard int, events []hongbao.SeqRange) error
	// Noted gives those of the events that Note was told of.
	Noted(ctx context.Context, shard int, events []hongbao.SeqRange) ([]hongbao.SeqRange, error)
}

// Ledger holds what the remote has credited, and what is about to be sent to a remote that is not idempotent. Package settlement's Settler is one.
type Ledger interface {
	// Handler is handed the grants that the remote has certainly credited; nil from it means that it holds them durably, and
	// a repeat changes nothing there.
	hongbao.Handler
	// Recorded gives what the ledger holds of the grants' packets, in any order: whoever has them there, or the very same grants
	// that it put aside for a person.
	Recorded(ctx context.Context, grants []hongbao.Grant) ([]hongbao.Grant, error)
	// Intend notes durably that the grant's credit is about to be sent under a claim, unless it was noted before. It gives the claim
	// of the note that stands, and since when it does. After an error it may stand or not.
	Intend(ctx context.Context, g *hongbao.Grant, claim string) (by string, since time.Time, err error)
	// Forget removes the note, if it is that of the claim.
	Forget(ctx context.Context, g *hongbao.Grant, claim string) error
}

// Campaigns tells what was planned. It must be safe for use by many workers at once.
type Campaigns interface {
	// Amount gives the planned amount of a packet, and false if the plan has no such packet.
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
	// Currency gives the campaign's currency.
	Currency(ctx context.Context, campaign string) (string, error)
}
