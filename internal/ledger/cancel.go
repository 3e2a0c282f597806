package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

// ErrLoadingBegun says that a campaign can't be cancelled, because its packets may be in Redis. Errors that wrap it are
// Permanent.
var ErrLoadingBegun = errors.New("the campaign's loading has begun")

// LoadingBegun returns the error for a campaign that can't be cancelled any more.
func LoadingBegun(campaign string) error {
	return hongbao.Errorf(hongbao.ClassPermanent, "campaign %s can't be cancelled: %w, so its packets may be in Redis. "+
		"`hongbao campaign load %s` finishes the load if it was interrupted; then `hongbao campaign close %s --early` and "+
		"`hongbao campaign refund %s` end it", campaign, ErrLoadingBegun, campaign, campaign, campaign)
}

// BeginLoad records that a campaign's packets may be in Redis from now on, so the campaign can't be cancelled any more.
// For a campaign that is refunded or cancelled it returns an error of ClassPermanent. A repeated call changes nothing.
func (l *Ledger) BeginLoad(ctx context.Context, campaign string) error {
	return l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		c, err := lockCampaign(ctx, t, campaign)
		switch {
		case err != nil:
			return nil, fmt.Errorf("begin to load campaign %s: %w", campaign, err)
		case c.State == model.MoneyRefunded:
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s was refunded or cancelled: it can't be loaded; "+
				"create one with another id", campaign)
		case !c.Loading.IsZero():
			return nil, nil
		}
		return []db.Stmt{{SQL: `UPDATE campaign SET loading_at = $2 WHERE id = $1`,
			Args: []any{campaign, time.Now().UnixMilli()}}}, nil
	})
}

// Cancel ends a campaign whose loading has not begun: all its money returns to the sponsor, and the campaign can't be
// loaded any more. shards are the shards of the campaign's places, in order. If loading has begun, the error is
// ErrLoadingBegun. A repeated call returns the existing refund and moves no money.
func (l *Ledger) Cancel(ctx context.Context, campaign string, shards []int) (refund payment.Refund, err error) {
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		c, err := lockCampaign(ctx, t, campaign)
		if err != nil {
			return nil, fmt.Errorf("cancel campaign %s: %w", campaign, err)
		}
		begun := !c.Loading.IsZero() || c.Grants > 0
		switch {
		case begun && c.State == model.MoneyRefunded:
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s can't be cancelled: it was loaded, and is refunded "+
				"already. Nothing is left to do", campaign)
		case begun:
			return nil, LoadingBegun(campaign)
		case c.State == model.MoneyRefunded:
			var found bool
			refund, found, err = readRefund(ctx, t, campaign)
			return nil, errors.Join(err, mustExist(found, campaign))
		}
		refund = c.rest()
		for _, shard := range shards {
			refund.Closes = append(refund.Closes, payment.Close{Shard: shard})
		}
		return postRefund(&refund), nil
	})
	return refund, err
}
