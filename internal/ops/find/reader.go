package find

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Reader reads campaigns and receipts for the server.
type Reader struct {
	*app.App

	joined *sharedWaits // readers of receipts that wait until these are durable
}

// NewReader returns a Reader.
func NewReader(a *app.App) Reader {
	return Reader{App: a, joined: &sharedWaits{}}
}

// Window reads the public data of a campaign.
func (c Reader) Window(ctx context.Context, id string) (model.PublicView, error) {
	w, err := c.Store().Campaign(id).Window(ctx)
	if errors.Is(err, store.ErrNotInRedis) {
		err = errors.Join(c.whole(ctx, c.Store().Home(id)), err)
	}
	return w, err
}

// whole returns an error if a campaign may exist although a shard does not have it. Either this is another deployment's
// Redis, or Redis has lost the marks of the deployment. It does not check for a frozen shard, because the reads
// themselves do so.
func (c Reader) whole(ctx context.Context, k store.Place) error {
	return k.Belongs(ctx)
}

// held reads a user's receipts on each of the campaign's shards from Redis. It waits until they are as durable as
// receipts in the answer to a grab, and remembers them as reported to the user.
func (c Reader) held(ctx context.Context, id, user string) ([]store.UserReceipts, error) {
	list, err := c.Store().Campaign(id).UserReceipts(ctx, user)
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
			err = c.durable(ctx, user, &list[i])
		}
		if err == nil && len(list[i].Receipts) > 0 {
			err = list[i].Report(ctx, user)
		}
	}
	if err != nil {
		return list, err
	}
	return list, Of(c.App).fillCodes(ctx, list)
}

// durable waits until a user's receipts on a shard are as durable as the campaign promises.
func (c Reader) durable(ctx context.Context, user string, h *store.UserReceipts) error {
	if h.Class == hongbao.DurabilityFast {
		return nil
	}
	return c.joined.durable(ctx, h.Place, store.DurableCall{Class: h.Class,
		Timeout: c.Config.Producer.DurabilityTimeout, Replicas: c.Config.Producer.Replicas,
		Users: []string{user}, Receipts: [][]hongbao.Receipt{h.Receipts}})
}

// Receipts returns a user's receipts from Redis. If the campaign is not in Redis and there is a ledger, it reads them
// from the ledger.
func (c Reader) Receipts(ctx context.Context, id, user string) (model.Receipts, error) {
	out := model.Receipts{Campaign: id, User: user, Source: "redis"}
	held, err := c.held(ctx, id, user)
	if err == nil {
		out.Receipts, out.Currency = store.ReceiptsOf(held), held[0].Currency
	}
	if !errors.Is(err, store.ErrNotInRedis) || errors.Is(err, store.ErrFrozen) || c.Config.Ledger.DSN == "" {
		return out, err
	}
	found, err := Of(c.App).receiptsFromLedger(ctx, &out)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", id, store.ErrNotInRedis)
	}
	return out, err
}
