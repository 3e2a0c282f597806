package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/httpapi"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/remote"
)

func balanceCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "balance", Short: "Serve an HTTP balance system over the ledger: credits, balances, statements",
		Long: "Serves the balance API of docs/openapi-balance.yaml on balance.listen, over the database of ledger.dsn, until SIGTERM or SIGINT;\n" +
			"then it takes no more and answers what is under way. It is what a team without a balance system of its own runs, and the\n" +
			"other end of settlement.kind=remote. `hongbao balance client add` makes the tables and a client with its token, and\n" +
			"`hongbao balance fund` fills what the client's credits come from. Redis is not needed.",
		Example: "  hongbao balance --balance.listen=127.0.0.1:8081 --ledger.dsn=balance.db",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{}, func(d *deps) error { return d.serveBalance(cmd) })
		},
	}
	cmd.AddCommand(balanceClientCmd(), balanceFundCmd(), balanceCheckCmd())
	return cmd
}

func (d *deps) serveBalance(cmd *cobra.Command) error {
	cfg := d.cfg.BalanceConfig()
	if err := cfg.Check(); err != nil {
		return usageError{err}
	}
	if cfg.TLS == nil && d.allows(configs.UnsafeBalanceListen) {
		d.log.Warn("unsafe.allow: tokens come in clear text to " + cfg.Listen)
	}
	if err := d.openBook(cmd.Context()); err != nil {
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

// remote makes the handler that settles at a remote balance system and records it in the ledger. again and word: see remote.Config.
func (d *deps) remote(ctx context.Context, again bool, word told) (*remote.Handler, error) {
	plans, err := d.plans()
	if err != nil {
		return nil, err
	}
	settler, err := d.settler(ctx)
	if err != nil {
		return nil, err
	}
	rc := d.cfg.RemoteConfig()
	if d.allows(configs.UnsafeRemoteToken) && strings.HasPrefix(rc.URL, "http://") {
		d.log.Warn("unsafe.allow: remote.token is sent in clear text")
	}
	rc.Again, rc.Told, rc.ToldAt = again, word.verdict, word.at
	h, err := remote.New(rc, &planned{plans, d}, settler)
	if err != nil {
		return nil, err
	}
	d.atEnd(func() error { h.Close(); return nil })
	return h, nil
}

// atRemote is the handler for what does not come from the stream: dead letters, on a person's word or not, and replays. What a replay brings
// was settled; it is repeated under its key, never sent anew.
func (d *deps) atRemote(ctx context.Context, again bool, word told) (hongbao.Handler, error) {
	if err := d.openLedger(ctx); err != nil {
		return nil, err
	}
	h, err := d.remote(ctx, again, word)
	if err != nil {
		return nil, err
	}
	return &alarmed{h, d}, nil
}

// auditedRemote shows the remote to the audit.
func (d *deps) auditedRemote(ctx context.Context) (*audit.Remote, error) {
	if !d.cfg.Remote.Queryable {
		return &audit.Remote{Concurrency: d.cfg.Remote.Concurrency}, nil
	}
	h, err := d.remote(ctx, false, told{})
	if err != nil {
		return nil, err
	}
	return &audit.Remote{Concurrency: d.cfg.Remote.Concurrency, Ask: func(ctx context.Context, campaign string, packet int64) (audit.RemoteCredit, bool, error) {
		c, found, err := h.Credited(ctx, campaign, packet)
		return audit.RemoteCredit{User: c.Account, Currency: c.Currency, Amount: c.Amount}, found, err
	}}, nil
}

// alarmed pauses a campaign of which a grant contradicts the plan or the remote: something else than Hongbao decides grabs,
// or Redis went back in time, and a person has to look.
type alarmed struct {
	*remote.Handler
	d *deps
}

// sweep finds out about credits in doubt whose events come no more, until ctx ends.
func (a *alarmed) sweep(ctx context.Context) {
	for pause(ctx, a.d.cfg.Remote.ClaimTime) {
		if left, err := a.Sweep(ctx); left > 0 || err != nil && ctx.Err() == nil {
			a.d.log.Warn("credits may be booked at the remote, and it does not tell yet", zap.Int("credits", left), zap.Error(err))
		}
	}
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
		a.d.log.Error("ALARM: a grant contradicts the plan or the remote, its campaign was paused; `hongbao dead list` shows it, `hongbao campaign resume` opens the campaign again",
			zap.String("code", "campaign_paused"), zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet),
			zap.NamedError("reason", err), zap.Error(failed))
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

// Currency implements remote.Campaigns. What a refunded campaign had left is the sponsor's again: nothing of it is sent any more.
func (p *planned) Currency(ctx context.Context, id string) (string, error) {
	c, err := p.d.campaign(ctx, id)
	if err == nil && c.State == ledger.StateRefunded {
		err = hongbao.Errorf(hongbao.Conflict, "campaign %s was refunded: nothing of it is sent any more", id)
	}
	return c.Spec.Currency, err
}
