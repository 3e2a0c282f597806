package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// OpenBook opens the database in which `hongbao balance` books, in place of a deployment's ledger. Call OpenBook before
// any method that uses the database. AddClient creates the tables with the first client.
func (a *App) OpenBook(ctx context.Context) error {
	l, err := a.reachLedger(ctx)
	if errors.Is(err, ledger.ErrNotFounded) {
		return hongbao.Errorf(hongbao.ClassBroken,
			"the database of ledger.dsn has no tables of Hongbao: %w; correct ledger.dsn, or run "+
				"`hongbao balance client add`, which creates them with the first client", ledger.ErrNotFounded)
	}
	if errors.Is(err, ledger.ErrOldSchema) {
		return fmt.Errorf("%w; if no deployment uses the database, run `hongbao balance migrate`", err)
	}
	if err != nil {
		return err
	}
	a.ledger = l
	a.atEnd(l.Close)
	return nil
}

// MigrateBook creates the tables of the database in which `hongbao balance` books, or updates them. It returns the
// names of the steps that were missing.
func (a *App) MigrateBook(ctx context.Context) ([]string, error) {
	if err := a.hasLedger(); err != nil {
		return nil, err
	}
	steps, err := ledger.Migrate(ctx, a.ledgerConfig())
	if err != nil {
		return nil, away("ledger.dsn", err)
	}
	return steps, nil
}

// AddClient makes a token for a client of the balance server. With the client's first token it makes the client. It
// also makes the tables, if the database has none. The text is empty if the token is the configuration's.
func (a *App) AddClient(ctx context.Context, client string, scopes []payment.Scope) (token payment.ClientToken,
	text string, err error) {
	text, drawn, err := a.tokenText()
	if err != nil {
		return token, "", err
	}
	sum := sha256.Sum256([]byte(text))
	token = payment.ClientToken{Client: client, Hash: hex.EncodeToString(sum[:]), Scopes: scopes}
	// Programs of an older build may use a database that has tables. So only an explicit command migrates it.
	if err = a.OpenBook(ctx); errors.Is(err, ledger.ErrNotFounded) {
		if _, err = a.MigrateBook(ctx); err == nil {
			err = a.OpenBook(ctx)
		}
	}
	if err != nil {
		return token, "", err
	}
	if !drawn {
		text = ""
	}
	err = a.inLedger(ctx, about(ctx, access.ManageClients, ""), func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"add": client, "scopes": scopes}
		return a.ledger.AddToken(ctx, token)
	})
	return token, text, err
}

// tokenText returns the token of the configuration, or else a new one.
func (a *App) tokenText() (text string, drawn bool, err error) {
	switch text = a.Config.Balance.Token.Reveal(); {
	case text == "":
		return drawToken(), true, nil
	case len(text) < 32 || len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		// The error does not repeat the token.
		return "", false, Usage("balance.token is not 32 to 512 printable ASCII characters: unset it to have one drawn")
	}
	return text, false, nil
}

func drawToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Clients returns the valid tokens of the balance server, and the funds of its clients.
func (a *App) Clients(ctx context.Context) ([]payment.ClientToken, []ledger.Fund, error) {
	if err := a.OpenBook(ctx); err != nil {
		return nil, nil, err
	}
	tokens, err := a.ledger.Tokens(ctx)
	if err != nil {
		return nil, nil, err
	}
	funds, err := a.ledger.Funds(ctx)
	return tokens, funds, err
}

// RevokeTokens revokes a client's token, or all of them if id is empty, and returns how many it revoked.
func (a *App) RevokeTokens(ctx context.Context, client, id string) (int64, error) {
	if err := a.OpenBook(ctx); err != nil {
		return 0, err
	}
	var n int64
	err := a.inLedger(ctx, about(ctx, access.ManageClients, ""), func(ctx context.Context, e *access.Entry) (err error) {
		n, err = a.ledger.RevokeTokens(ctx, client, id)
		e.Details = map[string]any{"revoke": client, "tokens": n}
		return err
	})
	if err == nil && n == 0 {
		err = hongbao.Errorf(hongbao.ClassPermanent,
			"client %.80q has no such token; `hongbao balance client list` shows those that are valid", client)
	}
	return n, err
}

// Fund adds money to the fund that pays a client's credits, once for each id.
func (a *App) Fund(ctx context.Context, f ledger.Funding) (ledger.Fund, error) {
	if err := a.OpenBook(ctx); err != nil {
		return ledger.Fund{}, err
	}
	var fund ledger.Fund
	err := a.inLedger(ctx, about(ctx, access.FundClient, ""), func(ctx context.Context, e *access.Entry) (err error) {
		e.Details = map[string]any{"client": f.Client, "id": f.ID, "amount": f.Amount, "currency": f.Currency, "by": f.By,
			"why": f.Why}
		fund, err = a.ledger.Fund(ctx, f)
		return err
	})
	return fund, err
}

// CheckBook compares balances and funds with the credits.
func (a *App) CheckBook(ctx context.Context) ([]ledger.Difference, error) {
	if err := a.OpenBook(ctx); err != nil {
		return nil, err
	}
	return a.ledger.CheckCredits(ctx)
}
