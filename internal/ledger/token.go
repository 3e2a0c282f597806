package ledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
)

// AddToken stores a token of a client of the balance API. A client may have several, so that a new token can replace an
// old one.
func (l *Ledger) AddToken(ctx context.Context, token payment.ClientToken) error {
	if err := checkToken(&token); err != nil {
		return err
	}
	scopes := make([]string, len(token.Scopes))
	for i, s := range token.Scopes {
		scopes[i] = string(s)
	}
	err := l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		_, found, err := question[string]{sql: `SELECT client FROM credit_token WHERE hash = $1`, args: []any{token.Hash},
			row: text}.first(ctx, t)
		switch {
		case err != nil:
			return nil, err
		case found:
			return nil, hongbao.Errorf(hongbao.ClassConflict,
				"the ledger has this token already, revoked or of another client; make a new one")
		}
		// If a concurrent call stores it, this fails with errAgain.
		return []stmt{{sql: `INSERT INTO credit_token (hash, client, scopes, created_at) VALUES ($1, $2, $3, $4)`,
			args: []any{token.Hash, token.Client, strings.Join(scopes, " "), time.Now().UnixMilli()}}}, nil
	})
	if err != nil {
		return fmt.Errorf("store a token of client %s: %w", token.Client, err)
	}
	return nil
}

func checkToken(token *payment.ClientToken) error {
	var errs []error
	if err := hongbao.CheckID(token.Client); err != nil {
		errs = append(errs, fmt.Errorf("client %.140q: %w", token.Client, err))
	}
	if sum, err := hex.DecodeString(token.Hash); err != nil || len(sum) != 32 ||
		strings.ToLower(token.Hash) != token.Hash {
		errs = append(errs, errors.New("the hash is not a SHA-256 in hex"))
	}
	if len(token.Scopes) == 0 {
		errs = append(errs, errors.New("it has no scope"))
	}
	for _, s := range token.Scopes {
		if all := []payment.Scope{payment.ScopeCredit, payment.ScopeCredits, payment.ScopeAccounts}; !slices.Contains(all,
			s) {
			errs = append(errs, fmt.Errorf("scope %.40q does not exist: want %s, %s or %s", s, all[0], all[1], all[2]))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "the token can't be stored: %w", errors.Join(errs...))
}

// Tokens returns the tokens that are valid, sorted by client and age.
func (l *Ledger) Tokens(ctx context.Context) ([]payment.ClientToken, error) {
	return question[payment.ClientToken]{"read the tokens of the clients",
		`SELECT client, hash, scopes, created_at FROM credit_token WHERE revoked_at = 0
			ORDER BY client, created_at, hash`, nil, func(s scan) (token payment.ClientToken, err error) {
			var scopes string
			var at int64
			err = s(&token.Client, &token.Hash, &scopes, &at)
			for scope := range strings.FieldsSeq(scopes) {
				token.Scopes = append(token.Scopes, payment.Scope(scope))
			}
			token.Created = time.UnixMilli(at).UTC()
			return token, err
		}}.all(ctx, l)
}

// RevokeTokens ends the client's tokens whose hash begins with the text, and returns how many. A running server accepts
// them for one more second.
func (l *Ledger) RevokeTokens(ctx context.Context, client, hash string) (n int64, err error) {
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		return nil, t.run(ctx, stmt{
			sql:     `UPDATE credit_token SET revoked_at = $3 WHERE client = $1 AND substr(hash, 1, $4) = $2 AND revoked_at = 0`,
			args:    []any{client, hash, time.Now().UnixMilli(), int64(len(hash))},
			changed: &n,
		})
	})
	if err != nil {
		return 0, fmt.Errorf("revoke tokens of client %s: %w", client, err)
	}
	return n, nil
}
