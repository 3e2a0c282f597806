package app

import (
	"context"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// Authority says who a caller with an API key or a session is. The ledger is opened when the first one comes. All
// listeners of a process share it.
func (a *App) Authority() *access.Authority {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.authority == nil {
		a.authority = access.NewAuthority(accessBook{a})
	}
	return a.authority
}

// Once does a request under an Idempotency-Key once; see ledger.Ledger.
func (a *App) Once(ctx context.Context, r access.Request, do func(context.Context) ([]byte, error)) (answer []byte,
	again bool, err error) {
	l, err := a.sharedLedger(ctx)
	if err != nil {
		return nil, false, err
	}
	return l.Once(ctx, r, do)
}

// accessBook has the keys and sessions in the ledger of a long-lived process.
type accessBook struct{ app *App }

// Live implements access.Source.
func (b accessBook) Live(ctx context.Context) (live access.Live, err error) {
	l, err := b.app.sharedLedger(ctx)
	if err != nil {
		return live, err
	}
	return l.Live(ctx)
}

// AddSession implements access.Source.
func (b accessBook) AddSession(ctx context.Context, s access.Session) error {
	l, err := b.app.sharedLedger(ctx)
	if err != nil {
		return err
	}
	return l.AddSession(ctx, s)
}

// EndSession implements access.Source.
func (b accessBook) EndSession(ctx context.Context, hash string) error {
	l, err := b.app.sharedLedger(ctx)
	if err != nil {
		return err
	}
	return l.EndSession(ctx, hash)
}
