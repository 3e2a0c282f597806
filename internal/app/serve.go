package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/producer"
)

// Serving is what the caller of Serve adds; each field may be nil.
type Serving struct {
	// Control is what the control listener serves; nil: it is not opened.
	Control http.Handler
	// Guard stands in front of what every listener serves.
	Guard func(http.Handler) http.Handler
	// Ready is called once all listeners are open.
	Ready func(serve.Addresses)
}

// CheckServe says what is wrong with the configuration of a server, before anything is opened.
func (a *App) CheckServe() error {
	cfg := a.Config.ServeConfig()
	if err := errors.Join(cfg.Check(), a.Config.CheckServe()); err != nil {
		return Usage("%w", err)
	}
	return nil
}

// Serve answers grabs over HTTP until ctx ends. Redis is open.
func (a *App) Serve(ctx context.Context, with Serving) error {
	if err := a.CheckServe(); err != nil {
		return err
	}
	cfg := a.Config.ServeConfig()
	if cfg.TLS == nil && a.allows(configs.UnsafeServeListen) {
		a.log.Warn("unsafe.allow: tokens come in clear text to " + cfg.Listen)
	}
	if cfg.ControlTLS == nil && a.allows(configs.UnsafeControlListen) {
		a.log.Warn("unsafe.allow: API keys come in clear text to " + cfg.ControlListen)
	}
	grabs := a.Config.ProducerConfig()
	grabs.Redis, grabs.Space, grabs.Log = a.redis, a.store.Space(), a.log
	counts := a.measureServe(&grabs)
	if err := a.trace(ctx, "serve", a.Config.Tracing.OneIn); err != nil {
		return err
	}
	a.traceCalls(&grabs)
	p, err := producer.New(grabs)
	if err != nil {
		return err
	}
	grabber := a.traceGrabs(&measuredGrabber{p, counts, &a.outcomes})
	deps := serve.Deps{Grabber: grabber, Wrap: a.watchRequests, Metrics: a.measures.set.Handler(), Pprof: a.measures.pprof,
		Reader: campaignReader{a}, KeyFile: a.Config.ServeKeyFile(), GatewayKeyFile: a.Config.ServeGatewayKeyFile(),
		Control: with.Control, Guard: with.Guard, Log: a.log,
		Connections: a.measures.set.Connections()}
	if a.Config.Ledger.DSN != "" {
		deps.Keys, deps.Denied = a.Authority(), a.Denied
	}
	s, err := serve.New(cfg, deps)
	if err == nil {
		defer a.TendJournal(ctx)()
		err = s.Run(ctx, func(at serve.Addresses) {
			fields := []zap.Field{zap.Stringer("address", at.Public), zap.Bool("tls", cfg.TLS != nil),
				zap.Stringer("ops", at.Ops)}
			if at.Control != nil {
				fields = append(fields, zap.Stringer("control", at.Control), zap.Bool("control_tls", cfg.ControlTLS != nil))
			}
			a.log.Info("serving grabs", fields...)
			if with.Ready != nil {
				with.Ready(at)
			}
		})
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grabs.CallTimeout)
	defer cancel()
	return errors.Join(err, p.Close(ending))
}

// campaignReader reads campaigns for the server.
type campaignReader struct{ *App }

// Window reads what a campaign shows to everybody.
func (c campaignReader) Window(ctx context.Context, id string) (store.Window, error) {
	w, err := c.store.Campaign(id).Window(ctx)
	if errors.Is(err, store.ErrNotInRedis) {
		err = errors.Join(c.whole(ctx, c.store.Home(id)), err)
	}
	return w, err
}

// whole tells whether it says anything that a campaign is not on a shard: this must be the deployment's Redis, and have
// all of its marks. Of a frozen shard the reads say so themselves.
func (c campaignReader) whole(ctx context.Context, k *store.Shard) error {
	pipe := c.redis.Pipeline()
	belongs := k.AskBelongs(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("look whose Redis this is: %w", store.Classify(err))
	}
	return belongs(c.Config.Deployment.ID)
}

// held gives what a user may be told that he holds by Redis, on each of the campaign's shards: it is durable, as the
// answer to a grab is.
func (c campaignReader) held(ctx context.Context, id, user string) ([]store.Held, error) {
	list, err := c.store.Campaign(id).Held(ctx, user)
	for i := range list {
		if list[i].Open != nil {
			return list, list[i].Open
		}
	}
	if errors.Is(err, store.ErrNotInRedis) {
		for i := range list {
			err = errors.Join(c.whole(ctx, list[i].Place), err)
		}
	}
	for i := range list {
		if err == nil && len(list[i].Receipts) > 0 {
			err = c.durable(ctx, id, user, &list[i])
		}
	}
	if err != nil {
		return list, err
	}
	return list, c.fillCodes(ctx, id, list)
}

// durable waits until what a user holds on a shard is as durable as the campaign promises.
func (c campaignReader) durable(ctx context.Context, id, user string, h *store.Held) error {
	shard := h.Place
	err := shard.Durable(ctx, &store.DurableCall{Campaign: id, Class: h.Class,
		Timeout: c.Config.Producer.DurabilityTimeout, Replicas: c.Config.Producer.Replicas, Users: []string{user}, Receipts: [][]hongbao.Receipt{h.Receipts}})
	if store.NoWaitAOF(err) {
		err = c.durableByItself(ctx, shard, h.Class)
	}
	return err
}

// durableByItself refuses a server that knows no WAITAOF and answers before the disk has the write.
func (c campaignReader) durableByItself(ctx context.Context, shard *store.Shard, class hongbao.Durability) error {
	node, err := shard.Node(ctx)
	if err != nil {
		return err
	}
	servers, err := store.Inspect(ctx, node)
	if err != nil {
		return err
	}
	return servers[0].Check(class)
}

// Receipts asks Redis, and the ledger, if there is one, once the campaign has left Redis.
func (c campaignReader) Receipts(ctx context.Context, id, user string) (serve.Receipts, error) {
	out := serve.Receipts{Campaign: id, User: user}
	held, err := c.held(ctx, id, user)
	if err == nil {
		out.Receipts, out.Currency = serve.ReceiptsOf(store.ReceiptsOf(held)), held[0].Currency
	}
	if !errors.Is(err, store.ErrNotInRedis) || errors.Is(err, store.ErrFrozen) || c.Config.Ledger.DSN == "" {
		return out, err
	}
	stored, found, err := c.ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", id, store.ErrNotInRedis)
	}
	if err != nil {
		return out, err
	}
	list, err := ledgerReceipts(ctx, c.ledger, id, user)
	if errors.Is(err, ledger.ErrArchived) {
		err = fmt.Errorf("%w: %w", serve.ErrArchived, err)
	}
	if err != nil {
		return out, err
	}
	out.Receipts, out.Currency, out.Incomplete = serve.ReceiptsOf(list), stored.Spec.Currency,
		stored.State != ledger.StateRefunded
	return out, nil
}
