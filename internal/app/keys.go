package app

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao/internal/access"
)

// NewKey is an API key that was made or got a new secret.
type NewKey struct {
	access.Key
	// OldUntil is until when the secret before is good, too.
	OldUntil time.Time `json:"old_until,omitzero"`
	// Text is what its owner sends. It is shown this once.
	Text string `json:"key"`
}

// CreateKey makes an API key; its id, hash and time are set here.
func (a *App) CreateKey(ctx context.Context, want access.Key) (*NewKey, error) {
	k, text := access.NewKey(want.Role, want.Campaigns)
	k.Expires, k.Note = want.Expires, want.Note
	stored, err := a.ledger.AddKey(ctx, k)
	if err != nil {
		return nil, err
	}
	return &NewKey{Key: stored, Text: text}, nil
}

// Keys lists the API keys; with all, those that are revoked or expired, too.
func (a *App) Keys(ctx context.Context, all bool) ([]access.Key, error) {
	if all {
		return a.ledger.Keys(ctx)
	}
	return a.ledger.LiveKeys(ctx)
}

// RevokeKey ends an API key, and the sessions that were begun with it.
func (a *App) RevokeKey(ctx context.Context, id string) (access.Key, error) {
	return a.ledger.RevokeKey(ctx, id)
}

// RotateKey gives an API key a new secret; the old one is good for the overlap, too.
func (a *App) RotateKey(ctx context.Context, id string, overlap time.Duration) (*NewKey, error) {
	text, hash := access.NewSecret(id)
	k, err := a.ledger.RotateKey(ctx, id, hash, overlap)
	if err != nil {
		return nil, err
	}
	return &NewKey{Key: k, OldUntil: k.OldUntil, Text: text}, nil
}
