package app

import (
	"context"
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// openLedger connects, and refuses a ledger that was not founded as this deployment's. It writes nothing.
func (a *App) openLedger(ctx context.Context) (err error) {
	if a.parent != nil {
		a.ledger, err = a.parent.sharedLedger(ctx)
		return err
	}
	a.ledger, err = a.newLedger(ctx)
	return err
}

// ledgerFailedFor is how long sharedLedger remembers that the ledger could not be opened.
const ledgerFailedFor = time.Second

// sharedLedger opens the ledger when it is first asked for, and again after a failure, but not at once. Calls may come
// at once: they share one attempt, and wait no longer than they want to.
func (a *App) sharedLedger(ctx context.Context) (*ledger.Ledger, error) {
	opened := a.opening.DoChan("", func() (any, error) {
		o := &a.shared // one call at a time is here
		if o.ledger == nil && time.Since(o.failed) > ledgerFailedFor {
			if o.ledger, o.err = a.newLedger(context.WithoutCancel(ctx)); o.err != nil {
				o.failed = time.Now()
			}
		}
		return o.ledger, o.err
	})
	select {
	case r := <-opened:
		l, _ := r.Val.(*ledger.Ledger) // nil with an error
		return l, r.Err
	case <-ctx.Done():
		return nil, hongbao.Outagef(hongbao.ClassTransient, "the ledger was still being opened: %w", ctx.Err())
	}
}

// opened is what came of the last attempt to open the ledger.
type opened struct {
	ledger *ledger.Ledger
	err    error
	failed time.Time
}

func (a *App) newLedger(ctx context.Context) (*ledger.Ledger, error) {
	l, err := a.reachLedger(ctx)
	if err != nil {
		return nil, err
	}
	has, err := l.Deployment(ctx)
	if err == nil {
		err = has.Is(a.deployment())
	}
	if err == nil {
		err = a.founded.asLedger(has.Founding)
	}
	if err != nil {
		return nil, away("ledger.dsn", errors.Join(err, l.Close()))
	}
	a.atEnd(l.Close)
	return l, nil
}

// reachLedger connects to a ledger that has its tables, whoever it belongs to.
func (a *App) reachLedger(ctx context.Context) (*ledger.Ledger, error) {
	cfg, err := a.ledgerConfig()
	if err != nil {
		return nil, err
	}
	l, err := ledger.Open(ctx, cfg)
	if err != nil {
		return nil, away("ledger.dsn", err)
	}
	return l, nil
}

// ledgerConfig refuses a ledger that nobody has named: a file in the working directory would be another one each time.
func (a *App) ledgerConfig() (ledger.Config, error) {
	cfg := a.Config.LedgerConfig()
	cfg.Log = a.log
	if a.measures != nil {
		cfg.Observe = a.measures.ledger
	}
	if cfg.DSN == "" {
		return cfg, Usage("ledger.dsn is empty: give the path of an SQLite file, or with ledger.driver a connection string " +
			"of PostgreSQL or MySQL")
	}
	return cfg, nil
}

// ledgerAgrees refuses a ledger that does not agree with itself. Where a row was deleted by hand, its grant looks as if it
// had never been settled, and its user would be credited once more.
func (a *App) ledgerAgrees(ctx context.Context) error {
	differences, err := a.ledger.CheckConservation(ctx)
	if err == nil && len(differences) > 0 {
		err = hongbao.Errorf(hongbao.ClassConflict, "the ledger does not agree with itself (%s; %d differences), and a grant "+
			"whose row was deleted by hand would be paid again: `hongbao audit` names what differs and what to do; nothing was "+
			"moved", differences[0], len(differences))
	}
	return err
}

// deployment is what the configuration says that this is.
func (a *App) deployment() ledger.Deployment {
	return ledger.Deployment{ID: a.Config.Deployment.ID, KeyPrefix: a.Config.Deployment.KeyPrefix,
		Shards: a.Config.Deployment.Shards}
}

// plans keeps the plans of the ledger's campaigns.
func (a *App) plans() (*campaign.Plans, error) {
	cfg := a.Config.Plans
	cfg.Source = func(ctx context.Context, id string) (hongbao.Campaign, campaign.Seed, error) {
		c, found, err := a.ledger.Campaign(ctx, id)
		if err == nil && !found { // with a remote: no attempt is lost, as in the settler
			err = hongbao.Heldf("campaign %s: %w, its grants wait: is it the right ledger, and not an older copy?", id,
				ledger.ErrNoCampaign)
		}
		return c.Spec, c.Seed, err
	}
	cfg.TopUps = func(ctx context.Context, id string) ([]campaign.TopUp, error) { return topUps(ctx, a.ledger, id) }
	return campaign.NewPlans(cfg)
}

// campaign reads a campaign that must be in the ledger.
func (a *App) campaign(ctx context.Context, id string) (ledger.StoredCampaign, error) {
	c, found, err := a.ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = errNoCampaign(id)
	}
	return c, err
}

// campaignWithTopUps is campaign that also reads the top-ups.
func (a *App) campaignWithTopUps(ctx context.Context, id string) (ledger.StoredCampaign, []ledger.StoredTopUp, error) {
	c, stored, err := a.ledger.CampaignWithTopUps(ctx, id)
	if errors.Is(err, ledger.ErrNoCampaign) {
		err = errNoCampaign(id)
	}
	return c, stored, err
}

func errNoCampaign(id string) error {
	return hongbao.Errorf(hongbao.ClassPermanent,
		"campaign %.80q: %w: `hongbao campaign create` makes it, `hongbao campaign list` shows those that are there", id,
		ledger.ErrNoCampaign)
}
