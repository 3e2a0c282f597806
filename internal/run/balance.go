package run

import (
	"context"
	"net"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/bank"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// Balance serves the balance API until ctx ends. It needs no Redis.
func Balance(ctx context.Context, cfg *configs.Config) (err error) {
	server := cfg.BalanceConfig()
	if err := server.Check(); err != nil {
		return app.Usage("%w", err)
	}
	p, err := newProcess(cfg, "balance", server.OpsListen != "")
	if err != nil {
		return err
	}
	defer p.stop(ctx, &err)
	if server.TLS == nil && p.Allows(configs.UnsafeBalanceListen) {
		p.Log().Warn("unsafe.allow: API keys are sent in clear text to " + server.Listen)
	}
	if err := p.trace(ctx, 0); err != nil {
		return err
	}
	if err := p.OpenBook(ctx); err != nil {
		return err
	}
	b, err := bank.NewBalance(server, bank.Deps{Book: p.Ledger(), Reader: p.Ledger(), Keys: p.Authority(), Denied: p.Denied,
		HasRead: p.HasRead, Log: p.Log(), Wrap: p.watchRequests})
	if err != nil {
		return err
	}
	var serving atomic.Bool
	parts := []group.Part{{Name: "balance", Run: func(ctx context.Context) error {
		return b.Run(ctx, func(at net.Addr) {
			serving.Store(true)
			p.Log().Info("serving balances", zap.Stringer("address", at), zap.Bool("tls", server.TLS != nil))
		})
	}}}
	if p.set != nil {
		p.set.Keys(p.Authority().Ends)
		parts = append([]group.Part{p.opsPart(func() error {
			if !serving.Load() {
				return web.ErrOpening
			}
			return nil
		})}, parts...)
	}
	return group.Run(ctx, parts...)
}
