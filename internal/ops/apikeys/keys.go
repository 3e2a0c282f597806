package apikeys

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

// NewKey is an API key that was created or that got a new secret.
type NewKey struct {
	access.Key
	// OldUntil is when the previous secret expires.
	OldUntil time.Time `json:"old_until,omitzero"`
	// Text is the secret that the key's owner sends. It is shown only once.
	Text string `json:"key"`
}

// CreateKey creates an API key. It sets the key's id, hash and time.
func (a Keys) CreateKey(ctx context.Context, want access.Key) (*NewKey, error) {
	k, text := access.NewKey(want.Role, want.Campaigns)
	k.Client, k.Expires, k.Note, k.Spending = want.Client, want.Expires, want.Note, want.Spending
	err := a.app.InLedger(ctx, app.About(ctx, access.ManageKeys, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"create": k.ID, "role": k.Role, "campaigns": k.Campaigns, "expires": k.End()}
		if k.Client != "" {
			e.Details["client"] = k.Client
		}
		if len(k.Sponsors) > 0 {
			e.Details["sponsors"] = k.Sponsors
		}
		if k.LargestTotal > 0 {
			e.Details["largest_total"] = k.LargestTotal
		}
		k, err = a.app.Access().AddKey(ctx, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &NewKey{Key: k, Text: text}, nil
}

// Keys returns the valid API keys, or with all also the revoked and expired keys.
func (a Keys) Keys(ctx context.Context, all bool) ([]access.Key, error) {
	if all {
		return a.app.Access().Keys(ctx)
	}
	return a.app.Access().LiveKeys(ctx)
}

// RevokeKey revokes an API key, and ends the sessions that began with it.
func (a Keys) RevokeKey(ctx context.Context, id string) (access.Key, error) {
	var k access.Key
	err := a.app.InLedger(ctx, app.About(ctx, access.ManageKeys, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"revoke": id}
		k, err = a.app.Access().RevokeKey(ctx, id)
		return err
	})
	return k, err
}

// RotateKey gives an API key a new secret. The previous secret stays valid for the overlap. If expires is not nil, it
// becomes the key's end; the zero time means no end.
func (a Keys) RotateKey(ctx context.Context, id string, overlap time.Duration, expires *time.Time) (*NewKey, error) {
	text, hash := access.NewSecret(id)
	var k access.Key
	err := a.app.InLedger(ctx, app.About(ctx, access.ManageKeys, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"rotate": id, "overlap": overlap.String()}
		k, err = a.app.Access().RotateKey(ctx, id, access.Rotation{Hash: hash, Overlap: overlap, Expires: expires})
		if err == nil {
			e.Details["expires"] = k.End()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &NewKey{Key: k, OldUntil: k.OldUntil, Text: text}, nil
}
