package app

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Receipts is what `hongbao receipts` tells.
type Receipts struct {
	Campaign string            `json:"campaign"`
	User     string            `json:"user"`
	Source   string            `json:"source"` // redis, or ledger
	Currency string            `json:"currency,omitempty"`
	Receipts []hongbao.Receipt `json:"receipts"`
	// Incomplete: the campaign is not in Redis and was not refunded, so the ledger may not have all.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Receipts asks Redis, and the ledger if the campaign is not there.
func (a *App) Receipts(ctx context.Context, id, user string) (Receipts, error) {
	out := Receipts{Campaign: id, User: user, Source: "redis", Receipts: []hongbao.Receipt{}}
	h, err := a.redisReceipts(ctx, id, user)
	if err == nil {
		out.Receipts, out.Currency = append(out.Receipts, h.Receipts...), h.Currency
	}
	if !errors.Is(err, shards.ErrNotInRedis) {
		return out, err
	}
	if err := a.openLedger(ctx); err != nil {
		return out, err
	}
	c, err := a.campaign(ctx, id)
	if err != nil {
		return out, err
	}
	list, err := ledgerReceipts(ctx, a.ledger, id, user)
	out.Source, out.Incomplete, out.Currency = "ledger", c.State != ledger.StateRefunded, c.Spec.Currency
	out.Receipts = append(out.Receipts, list...)
	return out, err
}

// ledgerReceipts reads a user's receipts from the ledger.
func ledgerReceipts(ctx context.Context, l *ledger.Ledger, id, user string) ([]hongbao.Receipt, error) {
	grants, err := l.UserGrants(ctx, id, user)
	list := make([]hongbao.Receipt, len(grants))
	for i := range grants {
		g := &grants[i]
		list[i] = hongbao.Receipt{
			Packet: g.Packet, Amount: g.Amount, Shard: g.Shard, Seq: g.Seq, Time: g.Time, RequestID: g.RequestID, Code: g.Code,
		}
	}
	return list, err
}

// redisReceipts reads what a user holds by Redis, with the codes; also of a frozen shard, since an operator asks.
func (a *App) redisReceipts(ctx context.Context, id, user string) (shards.Held, error) {
	shard := shards.Of(a.redis, a.space.Home(id))
	h, err := shard.UserHeld(ctx, id, user)
	if err != nil {
		return h, err
	}
	return h, fillCodes(ctx, shard, id, &h)
}

// fillCodes adds the codes of packets that have some.
func fillCodes(ctx context.Context, shard *shards.Shard, id string, h *shards.Held) error {
	if !h.Codes || len(h.Receipts) == 0 {
		return nil
	}
	missing, err := shard.FillCodes(ctx, id, h.Receipts)
	return errors.Join(append(missing, err)...)
}
