package app

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/access"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
)

// Access returns the API keys, the sessions and the journal in the ledger.
func (a *App) Access() kept.Access { return kept.Of(a.ledger.Tables()) }

// Authority returns the authority that identifies callers by their API key or session. All listeners share it.
func (a *App) Authority() *access.Authority {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.authority == nil {
		a.authority = access.NewAuthority(a.Access())
	}
	return a.authority
}

// Once runs a request at most once per Idempotency-Key; see ledger.Ledger.
func (a *App) Once(ctx context.Context, r access.Request, do func(context.Context) ([]byte, error)) (answer []byte,
	again bool, err error) {
	return a.ledger.Once(ctx, r, do)
}
