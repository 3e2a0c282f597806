package find

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Receipts returns a user's receipts from Redis. If the campaign is not in Redis, it reads them from the ledger. The
// journal records the read.
func (a Find) Receipts(ctx context.Context, id, user string) (model.Receipts, error) {
	out, err := a.receipts(ctx, id, user)
	if err == nil {
		a.app.HasRead(ctx, access.Read{Action: access.ReadGrants, Campaign: id, User: user})
	}
	return out, err
}

func (a Find) receipts(ctx context.Context, id, user string) (model.Receipts, error) {
	out := model.Receipts{Campaign: id, User: user, Source: "redis", Receipts: []hongbao.Receipt{}}
	held, currency, err := a.redisReceipts(ctx, id, user)
	if err == nil {
		out.Receipts, out.Currency = append(out.Receipts, held...), currency
	}
	if !errors.Is(err, store.ErrNotInRedis) {
		return out, err
	}
	found, err := a.receiptsFromLedger(ctx, &out)
	if err == nil && !found {
		err = a.app.NoCampaign(ctx, id)
	}
	return out, err
}

// receiptsFromLedger adds the receipts of a campaign that is no longer in Redis to out; false if the ledger does not
// have the campaign.
func (a Find) receiptsFromLedger(ctx context.Context, out *model.Receipts) (found bool, err error) {
	currency, state, found, err := a.app.Ledger().CampaignState(ctx, out.Campaign)
	if err != nil || !found {
		return false, err
	}
	out.Source, out.Currency, out.Incomplete = "ledger", currency, state != model.MoneyRefunded
	grants, err := a.app.Ledger().UserGrants(ctx, out.Campaign, out.User)
	for i := range grants {
		g := &grants[i]
		out.Receipts = append(out.Receipts, hongbao.Receipt{
			Packet: g.Packet, Amount: g.Amount, Shard: g.Shard, Seq: g.Seq, Time: g.Time, RequestID: g.RequestID, Code: g.Code,
		})
	}
	return true, err
}

// redisReceipts reads a user's receipts from Redis, with their codes and the campaign's currency. It also reads a
// frozen shard, because an operator needs the data.
func (a Find) redisReceipts(ctx context.Context, id, user string) (list []hongbao.Receipt, currency string, err error) {
	held, err := a.app.Store().Campaign(id).UserReceipts(ctx, user)
	if err == nil {
		err = a.fillCodes(ctx, held)
	}
	return store.ReceiptsOf(held), held[0].Currency, err
}

// fillCodes adds the codes to the receipts. It reads each code from the shard of the packet.
func (a Find) fillCodes(ctx context.Context, held []store.UserReceipts) error {
	for i := range held {
		h := &held[i]
		if !h.Codes || len(h.Receipts) == 0 {
			continue
		}
		missing, err := h.Place.FillCodes(ctx, h.Receipts)
		if err = errors.Join(append(missing, err)...); err != nil {
			return err
		}
	}
	return nil
}
