package app

import (
	"context"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
)

// consolePatience is how long a sink that can't be reached is tried again, while a person waits at the screen.
const consolePatience = 10 * time.Second

// PageActions has the actions of the console's buttons: the same as the commands.
type PageActions struct{ *App }

// CheckCampaign reports whether the ledger has a campaign already, and refuses one that can't be created now.
func (c PageActions) CheckCampaign(ctx context.Context, spec hongbao.Campaign) (there bool, err error) {
	_, there, err = c.creatable(ctx, spec)
	return there, err
}

// CreateCampaign funds a campaign and draws its seed.
func (c PageActions) CreateCampaign(ctx context.Context, _ *access.Caller, spec hongbao.Campaign) (isNew bool, err error) {
	created, err := c.CreateFunded(ctx, spec)
	return err == nil && created.Created, err
}

// StoreCodes draws and stores the codes of a campaign that was created, or continues to do so.
func (c PageActions) StoreCodes(ctx context.Context, spec hongbao.Campaign) error {
	return c.App.StoreCodes(ctx, spec, nil)
}

// LoadCampaign loads a campaign into Redis and opens it.
func (c PageActions) LoadCampaign(ctx context.Context, _ *access.Caller, id string) error {
	_, err := c.Load(ctx, id)
	return err
}

// TopUp adds packets to a campaign.
func (c PageActions) TopUp(ctx context.Context, who *access.Caller, o TopUpForm) (text string, err error) {
	order := TopUpOrder{Campaign: o.Campaign, ID: o.ID, Packets: o.Packets, Total: o.Total, Expect: o.Expect,
		Decision: stream.Decision{By: who.Name(), Why: o.Why}}
	if order.Tiers, err = ParseTiers(strings.Fields(o.Tiers)); err != nil {
		return "", err
	}
	out, err := c.App.TopUp(ctx, order)
	if out != nil {
		text = out.Text()
	}
	return text, err
}

// Replay delivers grants once more.
func (c PageActions) Replay(ctx context.Context, _ *access.Caller, o ReplayForm) (text string, err error) {
	if err := c.CheckListed(o.To); err != nil {
		return "", err
	}
	report, err := c.App.Replay(ctx, Replay{Name: o.Name, To: o.To, Filter: replay.Filter{Campaign: o.Campaign},
		Missing: o.Missing, DryRun: o.DryRun, Patience: consolePatience})
	if report != nil {
		var b strings.Builder
		_ = report.Write(&b) // a Builder never fails
		text = b.String()
	}
	return text, err
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

// TopUpForm is a form that adds packets to a campaign. Expect is the funded sum that the page showed. ID was drawn for
// the form, so the same form sent twice has one effect.
type TopUpForm struct {
	Campaign, ID, Tiers, Why string
	Packets                  int64
	Total, Expect            hongbao.Amount
}

// ReplayForm is a form that starts a replay.
type ReplayForm struct {
	Name, To, Campaign string
	Missing, DryRun    bool
}
