package app

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// PageActions has the actions of the console's buttons. They do the same as the commands.
type PageActions struct{ *App }

// CheckCampaign reports whether the ledger has a campaign already, and refuses one that can't be created now.
func (c PageActions) CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error) {
	_, there, err = c.creatable(ctx, spec)
	return there, err
}

// Audit compares Redis, ledger and topic.
func (c PageActions) Audit(ctx context.Context, _ *access.Caller) (r *audit.Report, err error) {
	err = c.recorded(ctx, about(ctx, access.RunAudit, ""), func(ctx context.Context, e *access.Entry) error {
		if r, err = c.App.Audit(ctx, audit.Options{}); err == nil {
			e.Details = map[string]any{"verdict": r.Verdict, "differences": len(r.Differences)}
		}
		return err
	})
	return r, err
}
