package app

import (
	"context"
	"errors"
	"net"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/serve"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/producer"
)

// Serve answers grabs over HTTP until ctx ends.
func (a *App) Serve(ctx context.Context) error {
	cfg := a.Config.ServeConfig()
	if err := errors.Join(cfg.Check(), a.Config.CheckServe()); err != nil {
		return Usage("%w", err)
	}
	if cfg.TLS == nil && a.allows(configs.UnsafeServeListen) {
		a.log.Warn("unsafe.allow: tokens come in clear text to " + cfg.Listen)
	}
	grabs := a.Config.ProducerConfig()
	grabs.Redis, grabs.Space, grabs.Log = a.redis, a.space.Space, a.log
	p, err := producer.New(grabs)
	if err != nil {
		return err
	}
	s, err := serve.New(cfg, serve.Deps{Grabber: p, Reader: campaignReader{a}, KeyFile: a.Config.ServeKeyFile(), Log: a.log})
	if err == nil {
		err = s.Run(ctx, func(public, ops net.Addr) {
			a.log.Info("serving grabs", zap.Stringer("address", public), zap.Bool("tls", cfg.TLS != nil),
				zap.Stringer("ops", ops))
		})
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grabs.CallTimeout)
	defer cancel()
	return errors.Join(err, p.Close(ending))
}

// campaignReader reads campaigns for the server.
type campaignReader struct{ *App }

// Window reads what a campaign shows to everybody.
func (c campaignReader) Window(ctx context.Context, id string) (shards.Window, error) {
	return shards.Of(c.redis, c.space.Home(id)).Window(ctx, id)
}

// Receipts asks Redis, and the ledger, if there is one, once the campaign has left Redis.
func (c campaignReader) Receipts(ctx context.Context, id, user string) (serve.Receipts, error) {
	out := serve.Receipts{Campaign: id, User: user}
	list, err := c.redisReceipts(ctx, id, user)
	if err == nil {
		out.Receipts, out.Currency = serve.ReceiptsOf(list), c.currency(ctx, id)
	}
	if !errors.Is(err, shards.ErrNotInRedis) || c.Config.Ledger.DSN == "" {
		return out, err
	}
	l, err := c.sharedLedger(ctx)
	if err != nil {
		return out, err
	}
	stored, found, err := l.Campaign(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", id, shards.ErrNotInRedis)
	}
	if err != nil {
		return out, err
	}
	if list, err = ledgerReceipts(ctx, l, id, user); err != nil {
		return out, err
	}
	out.Receipts, out.Currency, out.Incomplete = serve.ReceiptsOf(list), stored.Spec.Currency,
		stored.State != ledger.StateRefunded
	return out, nil
}
