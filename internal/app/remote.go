package app

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

// Remote returns the handler that settles at a remote balance system and records the credits in the ledger. The caller
// closes it. The flag again sets Replay of remote.Config, so that a settled grant may be sent again only with its key.
// The parameter word sets Verified and VerifiedAt.
func (a *App) Remote(ctx context.Context, again bool, word OperatorDecision) (*PausingHandler, error) {
	settler, plans, err := a.settler(ctx)
	if err != nil {
		return nil, err
	}
	rc := a.Config.RemoteConfig()
	if a.Allows(configs.UnsafeRemoteToken) && strings.HasPrefix(rc.URL, "http://") {
		a.log.Warn("unsafe.allow: remote.token is sent in clear text")
	}
	rc.Replay, rc.Verified, rc.VerifiedAt = again, word.Outcome, word.At
	h, err := remote.New(rc, &planned{plans, a}, settler)
	if err != nil {
		return nil, err
	}
	return &PausingHandler{h, settler, a}, nil
}

// AuditedRemote lets the audit query the remote. The caller must call stop after the audit.
func (a *App) AuditedRemote(ctx context.Context) (_ *audit.Remote, stop func(), err error) {
	if !a.Config.Remote.Queryable {
		return &audit.Remote{Concurrency: a.Config.Remote.Concurrency}, func() {}, nil
	}
	h, err := a.Remote(ctx, false, OperatorDecision{})
	if err != nil {
		return nil, nil, err
	}
	return &audit.Remote{Concurrency: a.Config.Remote.Concurrency,
		Ask: func(ctx context.Context, campaign string, packet int64) (audit.RemoteCredit, bool, error) {
			c, found, err := h.Credited(ctx, campaign, packet)
			return audit.RemoteCredit{User: c.Account, Currency: c.Currency, Amount: c.Amount}, found, err
		}}, h.Close, nil
}

// PausingHandler pauses a campaign if one of its grants contradicts the plan or the remote. It moves grants of disowned
// campaigns to quarantine.
type PausingHandler struct {
	*remote.Handler
	Settler *ledger.Settler
	app     *App
}

// TendDoubts resolves credits in doubt that will not be delivered again, until ctx ends.
func (a *PausingHandler) TendDoubts(ctx context.Context) {
	for retry.Pause(ctx, a.app.Config.Remote.ClaimTime) {
		if left, err := a.Sweep(ctx); left > 0 || err != nil && ctx.Err() == nil {
			a.app.log.Warn("credits may be booked at the remote, and their state is still unknown", zap.Int("credits", left),
				zap.Error(err))
		}
	}
}

// Handle implements hongbao.Handler.
func (a *PausingHandler) Handle(ctx context.Context, b hongbao.Batch) []error {
	errs := a.Handler.Handle(ctx, b)
	a.putAside(ctx, b, errs)
	for i, err := range errs {
		if !errors.Is(err, remote.ErrContradiction) {
			continue
		}
		const what = "a grant contradicts the plan or the remote, its campaign was paused; `hongbao dead list`"
		g := &b.Grants[i]
		if pauseErr := a.app.pauseFor(ctx, g, what, zap.NamedError("reason", err)); pauseErr != nil {
			errs[i] = pauseErr
		}
	}
	return errs
}

// putAside passes the grants of unknown campaigns to the ledger. If a person has disowned the campaign, they go to
// quarantine.
func (a *PausingHandler) putAside(ctx context.Context, b hongbao.Batch, errs []error) {
	var unknown []hongbao.Grant
	var at []int
	for i, err := range errs {
		if errors.Is(err, ledger.ErrNoCampaign) {
			unknown, at = append(unknown, b.Grants[i]), append(at, i)
		}
	}
	b.Grants = unknown
	for i, err := range a.Settler.PutAside(ctx, b) {
		errs[at[i]] = err
	}
}

// planned provides the remote handler with plans and currencies of campaigns.
type planned struct {
	*campaign.Plans
	app *App
}

// Currency implements remote.Campaigns. It returns an error for a refunded campaign: the sponsor has the rest of the
// money, so no more credits may be sent.
func (p *planned) Currency(ctx context.Context, id string) (string, error) {
	c, err := p.app.Campaign(ctx, id)
	if err == nil && c.State == model.MoneyRefunded {
		err = hongbao.Errorf(hongbao.ClassConflict, "campaign %s was refunded: no more of its credits are sent", id)
	}
	return c.Spec.Currency, err
}

// OperatorDecision is a person's decision about credits at the remote; see remote.Config.
type OperatorDecision struct {
	Outcome remote.CreditOutcome
	At      time.Time
}

// Booked is the decision that the remote has booked the credits.
func Booked() OperatorDecision { return OperatorDecision{Outcome: remote.Done} }

// NotBooked is the decision that the remote had not booked the credits at this time.
func NotBooked(at time.Time) OperatorDecision {
	return OperatorDecision{Outcome: remote.NotSent, At: at}
}
