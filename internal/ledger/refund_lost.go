package ledger

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

// RefundLost is like Refund, for a campaign of which Redis has lost data and closes. All money that the ledger has not
// granted goes from the pool to the sponsor, and nothing can be granted afterwards. RefundLost fails while grants of
// the campaign wait in quarantine, or if the amount is not exactly the rest. A repeated call returns the existing
// refund and moves no money, even if another method made the refund.
func (l *Ledger) RefundLost(ctx context.Context, o model.LostRefund) (payment.Refund, error) {
	if err := o.Decision.Check(); err != nil {
		return payment.Refund{}, hongbao.Errorf(hongbao.ClassPermanent, "refund campaign %s, which Redis has lost: %w",
			o.Campaign, err)
	}
	e := &end{campaign: o.Campaign, closes: o.Closes}
	n, err := l.count(ctx, e)
	if err != nil {
		return payment.Refund{}, fmt.Errorf("refund campaign %s: count its grants: %w", o.Campaign, err)
	}
	return l.refundOnce(ctx, e, func(ctx context.Context, t db.Txn, c *StoredCampaign) (payment.Refund, error) {
		if len(o.Closes) != c.Spec.Places() {
			return payment.Refund{}, hongbao.Errorf(hongbao.ClassPermanent, "%d shards are named (%s), the campaign is on %d",
				len(o.Closes), e.name(), c.Spec.Places())
		}
		pool, waiting, err := c.open(ctx, t)
		if err == nil {
			err = c.agrees(&n, pool)
		}
		if err == nil {
			err = nothingPending(ctx, t, o.Campaign)
		}
		r := c.rest()
		switch {
		case err != nil:
		case n.late > 0:
			err = hongbao.Errorf(hongbao.ClassConflict, "the ledger has paid %d grants (packet %d for one) of another shard, "+
				"or after a close (%s): run `hongbao audit --campaign %s`", n.late, n.onePack, e.name(), o.Campaign)
		case waiting > 0:
			err = hongbao.Errorf(hongbao.ClassConflict, "%d of its grants wait in quarantine: decide these first, "+
				"`hongbao quarantine list` shows them", waiting)
		case r.Amount != o.Amount:
			err = hongbao.Errorf(hongbao.ClassPermanent, "the amount is %d minor units, not %d; nothing was moved. Is it the "+
				"right campaign?", r.Amount, o.Amount)
		}
		r.By, r.Why = o.By, o.Why
		return r, err
	})
}
