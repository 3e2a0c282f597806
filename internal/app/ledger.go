package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// newLedger returns a ledger that connects at its first use. It then refuses a ledger that was not initialized for this
// deployment.
func (a *App) newLedger() *ledger.Ledger {
	return ledger.Lazy(a.LedgerConfig(), func(ctx context.Context) (*ledger.Ledger, error) {
		l, err := a.reachLedger(ctx)
		if err != nil {
			return nil, err
		}
		has, err := l.Deployment(ctx)
		if err == nil {
			err = has.Is(a.Config.DeploymentRow())
		}
		if err == nil {
			err = a.founded.asLedger(has.Founding)
		}
		if err != nil {
			return nil, withHint("ledger.dsn", errors.Join(err, l.Close()))
		}
		return l, nil
	})
}

// reachLedger connects to a ledger whose tables exist, whichever deployment it belongs to.
func (a *App) reachLedger(ctx context.Context) (*ledger.Ledger, error) {
	if err := a.hasLedger(); err != nil {
		return nil, err
	}
	l, err := ledger.Open(ctx, a.LedgerConfig())
	if err != nil {
		return nil, a.atLedger(err)
	}
	return l, nil
}

// Migrate creates the ledger's tables or brings them up to date, and returns the names of the migrations that it ran.
func (a *App) Migrate(ctx context.Context) ([]string, error) {
	if err := a.hasLedger(); err != nil {
		return nil, err
	}
	steps, err := ledger.Migrate(ctx, a.LedgerConfig())
	if err != nil {
		return nil, a.atLedger(err)
	}
	return steps, nil
}

// atLedger adds to an error which ledger is meant, or what to do about a ledger that does not answer.
func (a *App) atLedger(err error) error {
	if errors.Is(err, ledger.ErrUnreleased) {
		return fmt.Errorf("the ledger %s: %w", a.Config.Ledger.Place(), err)
	}
	return withHint("ledger.dsn", err)
}

// LedgerConfig returns the configuration of the ledger, with the log and the hook of this process.
func (a *App) LedgerConfig() ledger.Config {
	cfg := a.Config.LedgerConfig()
	cfg.Log, cfg.Observe = a.log, a.hooks.Ledger
	return cfg
}

// hasLedger returns an error if ledger.dsn is empty. There is no default file, because its path would depend on the
// working directory.
func (a *App) hasLedger() error {
	if a.Config.Ledger.DSN == "" {
		return Usage("ledger.dsn is empty: set it to the path of an SQLite file, or set ledger.driver too and a connection " +
			"string of PostgreSQL or MySQL")
	}
	return nil
}

// LedgerAgrees returns an error if the ledger contradicts itself. If someone has deleted a row, its grant looks
// unsettled, and a replay would credit the user again.
func (a *App) LedgerAgrees(ctx context.Context) error {
	differences, err := a.Books().CheckConservation(ctx)
	if err == nil && len(differences) > 0 {
		err = hongbao.Errorf(hongbao.ClassConflict, "the ledger does not agree with itself (%s; %d differences), and a grant whose row "+
			"was deleted by hand would be paid again: `hongbao audit` shows the differences and what to do; no money was moved",
			differences[0], len(differences))
	}
	return err
}

// Plans returns a cache for the plans of campaigns in the ledger.
func (a *App) Plans() (*campaign.Plans, error) {
	cfg := a.Config.Plans
	cfg.Source = a.ledger.Plan
	return campaign.NewPlans(cfg)
}

// Campaign returns a campaign of the ledger. A missing campaign is an error.
func (a *App) Campaign(ctx context.Context, id string) (ledger.StoredCampaign, error) {
	c, found, err := a.ledger.Campaign(ctx, id)
	if err == nil && !found {
		err = a.NoCampaign(ctx, id)
	}
	return c, err
}

// CampaignWithTopUps returns a campaign of the ledger with its top-ups. A missing campaign is an error.
func (a *App) CampaignWithTopUps(ctx context.Context, id string) (ledger.StoredCampaign, []ledger.StoredTopUp, error) {
	c, stored, err := a.ledger.CampaignWithTopUps(ctx, id)
	if errors.Is(err, ledger.ErrNoCampaign) {
		err = a.NoCampaign(ctx, id)
	}
	return c, stored, err
}

// NoCampaign returns the error of a campaign that the ledger does not have. For the user of this process it suggests the
// most similar id. A caller with an API key may not see all campaigns, and so gets no suggestion.
func (a *App) NoCampaign(ctx context.Context, id string) error {
	hint := ""
	if access.IsLocal(ctx) && a.ledger != nil {
		hint = knob.Hint(id, a.someCampaigns(ctx))
	}
	return hongbao.Errorf(hongbao.ClassPermanent,
		"campaign %.80q: %w%s: `hongbao campaign create` creates it, `hongbao campaign list` shows the existing campaigns", id,
		ledger.ErrNoCampaign, hint)
}

// someCampaigns returns the ids of at most 1000 campaigns, and none if the ledger does not answer.
func (a *App) someCampaigns(ctx context.Context) (ids []string) {
	for c, err := range a.ledger.EachCampaign(ctx, "") {
		if err != nil || len(ids) == 1000 {
			break
		}
		ids = append(ids, c.Spec.ID)
	}
	return ids
}

// SomeHas returns an error for the first campaign that neither the ledger nor Redis has, so that work on a mistyped id does
// not look as if it was done.
func (a *App) SomeHas(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		_, found, err := a.ledger.Campaign(ctx, id)
		if err == nil && !found {
			_, found, err = a.store.Campaign(id).Status(ctx)
		}
		if err == nil && !found {
			err = a.NoCampaign(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// OpenBook opens the database of `hongbao balance`, which replaces the deployment's ledger. Call OpenBook before any
// method that uses this database. Migrate creates the tables.
func (a *App) OpenBook(ctx context.Context) error {
	l, err := a.reachLedger(ctx)
	if errors.Is(err, ledger.ErrNotInitialized) {
		return hongbao.Errorf(hongbao.ClassBroken,
			"the database of ledger.dsn has no tables of Hongbao: %w; correct ledger.dsn, or create them: `hongbao init` does "+
				"for a deployment, `hongbao balance migrate` for `hongbao balance` alone", ledger.ErrNotInitialized)
	}
	if errors.Is(err, ledger.ErrOldSchema) {
		return fmt.Errorf("%w; if no deployment uses the database, run `hongbao balance migrate`", err)
	}
	if err != nil {
		return err
	}
	a.ledger = l
	a.atEnd(l.Close)
	return nil
}
