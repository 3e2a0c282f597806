package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/httpapi"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/payment"
)

// OpenBook opens the database that `hongbao balance` books in. It needs no deployment; its tables are made with the first client.
func (a *App) OpenBook(ctx context.Context) error {
	l, err := a.reachLedger(ctx)
	if errors.Is(err, ledger.ErrNotFounded) {
		return hongbao.Errorf(hongbao.ClassBroken, "the database of ledger.dsn has no tables of Hongbao; let it name the right one, or "+
			"`hongbao balance client add` makes them with the first client")
	}
	if err != nil {
		return err
	}
	a.Ledger = l
	a.AtEnd(l.Close)
	return nil
}

// AddClient makes a token for a client of the balance server, and the client with its first one; and the tables, if the database
// has none. The text is empty if the token is the configuration's.
func (a *App) AddClient(ctx context.Context, client string, scopes []payment.Scope) (token payment.ClientToken, text string, err error) {
	text, drawn, err := a.tokenText()
	if err != nil {
		return token, "", err
	}
	sum := sha256.Sum256([]byte(text))
	token = payment.ClientToken{Client: client, Hash: hex.EncodeToString(sum[:]), Scopes: scopes}
	cfg, err := a.ledgerConfig()
	if err != nil {
		return token, "", err
	}
	if _, err := ledger.Migrate(ctx, cfg); err != nil {
		return token, "", away("ledger.dsn", err)
	}
	if err := a.OpenBook(ctx); err != nil {
		return token, "", err
	}
	if !drawn {
		text = ""
	}
	return token, text, a.Ledger.AddToken(ctx, token)
}

// tokenText is the token of the configuration, or else a new one.
func (a *App) tokenText() (text string, drawn bool, err error) {
	switch text = a.Config.Balance.Token.Reveal(); {
	case text == "":
		return drawToken(), true, nil
	case len(text) < 32 || len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		// The error does not repeat it.
		return "", false, Usage("balance.token is not 32 to 512 printable ASCII characters: unset it to have one drawn")
	}
	return text, false, nil
}

func drawToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ServeBalance serves the balance API until ctx ends.
func (a *App) ServeBalance(ctx context.Context) error {
	cfg := a.Config.BalanceConfig()
	if err := cfg.Check(); err != nil {
		return Usage("%w", err)
	}
	if cfg.TLS == nil && a.allows(configs.UnsafeBalanceListen) {
		a.Log.Warn("unsafe.allow: tokens come in clear text to " + cfg.Listen)
	}
	if err := a.OpenBook(ctx); err != nil {
		return err
	}
	b, err := httpapi.NewBalance(cfg, a.Ledger, a.Ledger, a.Log)
	if err != nil {
		return err
	}
	return b.Run(ctx, func(at net.Addr) {
		a.Log.Info("serving balances", zap.Stringer("address", at), zap.Bool("tls", cfg.TLS != nil))
	})
}
