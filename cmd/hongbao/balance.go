package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/audit"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/httpapi"
	"github.com/hongbao-project/hongbao/replay"
	"github.com/hongbao-project/hongbao/settlement/remote"
)

func balanceCmd() *cobra.Command {
	return &cobra.Command{
		Use: "balance", Short: "Serve an HTTP balance system over the ledger: credits, balances, statements",
		Long: "Serves the balance API of docs/openapi-balance.yaml on balance.listen, over the ledger of ledger.dsn, until SIGTERM or SIGINT;\n" +
			"then it takes no more and answers what is under way. It is what a team without a balance system of its own runs, and the\n" +
			"other end of settlement.kind=remote. Callers send the token of HONGBAO_BALANCE_TOKEN (or ..._FILE). Redis is not needed.",
		Example: "  HONGBAO_BALANCE_TOKEN_FILE=/run/secrets/balance hongbao balance --balance.listen=127.0.0.1:8081 --ledger.dsn=balance.db",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{}, func(d *deps) error { return d.serveBalance(cmd) })
		},
	}
}

func (d *deps) serveBalance(cmd *cobra.Command) error {
	if d.cfg.Balance.Token == "" {
		return usage("balance.token is empty, and anybody could book: set HONGBAO_BALANCE_TOKEN or HONGBAO_BALANCE_TOKEN_FILE (see `%s --help`)", cmd.CommandPath())
	}
	cfg := d.cfg.BalanceConfig()
	if err := cfg.Check(); err != nil {
		return usageError{err}
	}
	if err := d.openLedger(cmd.Context()); err != nil {
		return err
	}
	b, err := httpapi.NewBalance(cfg, d.ledger, d.ledger, d.log)
	if err != nil {
		return err
	}
	return b.Run(cmd.Context(), func(a net.Addr) {
		d.log.Info("serving balances", zap.Stringer("address", a), zap.Bool("tls", cfg.TLS != nil))
	})
}

// remote makes the handler that settles at a remote balance system; needs Redis for its claims, and the ledger for the plans.
// done, if not empty, is the sink whose done bits say what is settled, instead of sink balance's.
func (d *deps) remote(done string) (*remote.Handler, error) {
	plans, err := d.plans()
	if err != nil {
		return nil, err
	}
	cc := d.cfg.RemoteClaimsConfig()
	cc.Redis, cc.Space, cc.Owner, cc.Done = d.redis, d.space, d.worker, done
	claims, err := dedup.NewClaims(cc)
	if err != nil {
		return nil, err
	}
	h, err := remote.New(d.cfg.RemoteConfig(), claims, &planned{plans, d})
	if err != nil {
		return nil, err
	}
	d.atEnd(func() error { h.Close(); return nil })
	return h, nil
}

// requeueAtRemote is what dead letters go to: sink balance's own done bits count them as finished.
func (d *deps) requeueAtRemote(ctx context.Context, sink string) (hongbao.Handler, error) {
	if err := d.openLedger(ctx); err != nil {
		return nil, err
	}
	h, err := d.remote(replay.RequeueSink(sink))
	return &alarmed{h, d}, err
}

// auditedRemote shows the remote to the audit.
func (d *deps) auditedRemote() (*audit.Remote, error) {
	if !d.cfg.Remote.Queryable {
		return &audit.Remote{Concurrency: d.cfg.Remote.Concurrency}, nil
	}
	h, err := d.remote("")
	if err != nil {
		return nil, err
	}
	return &audit.Remote{Concurrency: d.cfg.Remote.Concurrency, Ask: func(ctx context.Context, campaign string, packet int64) (audit.RemoteCredit, bool, error) {
		c, found, err := h.Credited(ctx, campaign, packet)
		return audit.RemoteCredit{User: c.Account, Currency: c.Currency, Amount: c.Amount}, found, err
	}}, nil
}

// atLedger refuses what only a ledger can do, because the money is at a remote.
func (d *deps) atLedger(what string) error {
	if d.cfg.Settlement.Kind != configs.SettleRemote {
		return nil
	}
	return fmt.Errorf("%s works on the grants in the ledger, and settlement.kind is remote: the money is at %s, see docs/remote-balance.md", what, d.cfg.Remote.URL)
}

// alarmed pauses a campaign of which a grant contradicts the plan or the remote: something else than Hongbao decides grabs,
// or Redis went back in time, and a person has to look.
type alarmed struct {
	hongbao.Handler
	d *deps
}

// Handle implements hongbao.Handler. While the campaign can't be paused because Redis is out of reach the grant comes again.
func (a *alarmed) Handle(ctx context.Context, grants []hongbao.Grant) []error {
	errs := a.Handler.Handle(ctx, grants)
	for i, err := range errs {
		if !errors.Is(err, remote.ErrContradiction) {
			continue
		}
		g := &grants[i]
		store, failed := a.d.store()
		if failed == nil {
			failed = store.Pause(context.WithoutCancel(ctx), g.Campaign)
		}
		a.d.log.Error("ALARM: a grant contradicts the plan or the remote, its campaign was paused; look at it, then resume it",
			zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), zap.NamedError("reason", err), zap.Error(failed))
		if hongbao.IsOutage(failed) {
			errs[i] = failed
		}
	}
	return errs
}

// planned is what the remote handler asks about campaigns.
type planned struct {
	*campaign.Plans
	d *deps
}

// Currency implements remote.Campaigns.
func (p *planned) Currency(ctx context.Context, id string) (string, error) {
	c, err := p.d.campaign(ctx, id)
	return c.Spec.Currency, err
}
