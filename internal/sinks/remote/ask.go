package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Booked is a credit as the remote has booked it.
type Booked struct {
	Account, Currency string
	Amount            hongbao.Amount
}

// Credited queries the remote for the credit of a packet; found is false if there is none. It retries an inconclusive
// query up to Config.Repeats times. It is safe for concurrent use. Its requests count towards Config.Concurrency, and
// wait for Config.AuditRate.
func (h *Handler) Credited(ctx context.Context, campaign string, packet int64) (b Booked, found bool, err error) {
	reference := Key(h.cfg.Deployment, campaign, packet)
	if !h.cfg.Queryable {
		return b, false, hongbao.Errorf(hongbao.ClassPermanent,
			"query credit %s: the remote can't be queried, remote.queryable is false", reference)
	}
	pause := h.cfg.Pause
	for try := 0; ; try++ {
		if limited := h.auditRate.Wait(ctx); limited != nil {
			return b, false, errors.Join(err, fmt.Errorf("query credit %s: wait for audit.rate: %w", reference,
				cmp.Or(context.Cause(ctx), limited)))
		}
		if b, found, err = h.booked(ctx, reference); err == nil || try == h.cfg.Repeats {
			return b, found, err
		}
		if !retry.Pause(ctx, pause) {
			return b, false, errors.Join(err, context.Cause(ctx))
		}
		pause *= 2
	}
}

func (h *Handler) booked(ctx context.Context, reference string) (b Booked, found bool, err error) {
	unread := func(err error) (Booked, bool, error) {
		return Booked{}, false, hongbao.Outagef(hongbao.ClassTransient, "ask for credit %s: %w", reference, err)
	}
	body, r := h.get(ctx, reference)
	switch r.outcome {
	case NotSent:
		return b, false, nil
	case Unknown:
		return unread(r.err)
	case Done, Rejected, Wait:
	}
	o, err := flatjson.Parse(body, "", 0)
	if err != nil {
		return unread(fmt.Errorf("%w: %w", errBody, err))
	}
	has, _ := o.Text("reference")
	b.Account, _ = o.Text("account")
	b.Currency, _ = o.Text("currency")
	amount, err := o.Integer("amount", int64(hongbao.MaxAmount))
	if err != nil || b.Account == "" || b.Currency == "" {
		return unread(fmt.Errorf("%w: account, currency or amount is missing", errBody))
	}
	if has != reference {
		return unread(errEcho)
	}
	b.Amount = hongbao.Amount(amount)
	return b, true, nil
}
