package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"net/url"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

// ListCampaigns returns the campaigns in the ledger that the caller may see, with their status.
func (l *Local) ListCampaigns(ctx context.Context) ([]model.Campaign, error) {
	page, err := campaigns.Of(l.App).ListCampaigns(ctx, "", math.MaxInt, l.sees())
	if err == nil {
		campaigns.Of(l.App).AddStatus(ctx, page.Campaigns)
	}
	return page.Campaigns, err
}

// ShowCampaign returns a campaign with its state in the ledger and in Redis.
func (l *Local) ShowCampaign(ctx context.Context, id string) (campaigns.Shown, error) {
	return campaigns.Of(l.App).Show(ctx, id)
}

// CampaignPause is the input of PauseCampaign and ResumeCampaign.
type CampaignPause struct {
	Campaign string `json:"-"`
	By       string `json:"-"` // who decides; ignored if the caller has an API key
	Why      string `json:"why,omitempty" maxLength:"500" doc:"The reason for the change. Redis and the ledger store it with the id of the caller's API key."`
}

// Check returns an error if the input is invalid.
func (in *CampaignPause) Check() error {
	if in.Why != "" {
		if err := checkWhy(in.Why); err != nil {
			return err
		}
	}
	return checkPick(in.Campaign, "")
}

// CampaignState is the state of a campaign after a pause or a resume.
type CampaignState struct {
	Campaign string `json:"campaign" doc:"The campaign's id."`
	State    string `json:"state" enum:"open,paused" doc:"State of the campaign after the change."`
	Changed  bool   `json:"changed" doc:"False if the campaign was in this state before the request."`
	// Pause is the decision that Redis has. If Changed is false, it is an earlier one.
	Pause *store.Pause `json:"pause,omitempty" doc:"Who paused the campaign, why and when. If the request changed nothing, this is an earlier pause, which stays. Absent if the campaign is open."`
}

// PauseCampaign pauses a campaign: its grabs get the outcome paused.
func (l *Local) PauseCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return l.turnCampaign(ctx, &in, "paused", campaigns.Of(l.App).Pause)
}

// ResumeCampaign opens a paused campaign again.
func (l *Local) ResumeCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return l.turnCampaign(ctx, &in, "open", campaigns.Of(l.App).Resume)
}

func (l *Local) turnCampaign(ctx context.Context, in *CampaignPause, state string,
	turn func(ctx context.Context, id string, by stream.Decision) (changed bool, err error)) (CampaignState, error) {
	if err := in.Check(); err != nil {
		return CampaignState{}, err
	}
	changed, err := turn(ctx, in.Campaign, stream.Decision{By: l.by(in.By), Why: in.Why})
	if err != nil {
		return CampaignState{}, err
	}
	out := CampaignState{Campaign: in.Campaign, State: state, Changed: changed}
	if now := campaigns.Of(l.App).InRedis(ctx, in.Campaign); now != nil {
		out.Pause = now.Pause
	}
	return out, nil
}

// CampaignEnding returns the status of a closed campaign, with the amount of its refund.
func (l *Local) CampaignEnding(ctx context.Context, id string) (*campaigns.Ending, error) {
	return campaigns.Of(l.App).EndProgress(ctx, id)
}

// CampaignClose is the input of CloseCampaign.
type CampaignClose struct {
	Campaign string `json:"-"`
	Early    bool   `json:"early,omitempty" doc:"True to close the campaign before the end of its window."`
}

// CloseCampaign ends a campaign permanently.
func (l *Local) CloseCampaign(ctx context.Context, in CampaignClose) (*campaigns.Ending, error) {
	return campaigns.Of(l.App).Close(ctx, in.Campaign, in.Early)
}

// CancelCampaign ends a campaign that was never loaded, and returns its money to the sponsor.
func (l *Local) CancelCampaign(ctx context.Context, id string) (*campaigns.Ending, error) {
	return campaigns.Of(l.App).Cancel(ctx, id)
}

// CampaignRefund is the input of RefundCampaign, which returns to the sponsor the amount that no user got.
type CampaignRefund struct {
	Campaign string         `json:"-"`
	Amount   hongbao.Amount `json:"amount" minimum:"0" maximum:"9007199254740991" doc:"Exact amount of the refund, in minor units: the field 'refund_amount' of the campaign's ending."`
	Missing  int64          `json:"missing,omitempty" minimum:"1" doc:"Number of missing grants that a person decided not to pay. It must equal the field 'missing' of the campaign's ending."`
	// Wait is how long RefundCampaign waits for grants that are not settled yet.
	Wait time.Duration `json:"-"`
}

// Check returns an error if the input is invalid.
func (in *CampaignRefund) Check() error {
	switch {
	case in.Missing < 0:
		return &InputError{Field: "missing", Text: "is 0 or more"}
	case in.Wait < 0:
		return &InputError{Field: "wait", Text: "is 0 or more"}
	}
	return nil
}

// RefundCampaign refunds a closed campaign. A second call returns the same result. While grants are still being
// settled, it returns payment.ErrSettling.
func (l *Local) RefundCampaign(ctx context.Context, in CampaignRefund) (*campaigns.Ending, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).Refund(ctx, closing.Order{Campaign: in.Campaign, Amount: in.Amount, Missing: in.Missing, Wait: in.Wait})
}

// RevealCampaign makes the seed of a refunded campaign public.
func (l *Local) RevealCampaign(ctx context.Context, id string) (*campaign.Disclosure, error) {
	return campaigns.Of(l.App).Reveal(ctx, id)
}

// ListCampaigns implements Operations.
func (r *Remote) ListCampaigns(ctx context.Context) (all []model.Campaign, err error) {
	err = r.pages(ctx, "/v1/campaigns", url.Values{}, math.MaxInt, func(get func(to any) error) (int, string, error) {
		var page campaigns.CampaignPage
		err := get(&page)
		all = append(all, page.Campaigns...)
		return len(page.Campaigns), string(page.Next), err
	})
	return all, err
}

// ShowCampaign implements Operations.
func (r *Remote) ShowCampaign(ctx context.Context, id string) (shown campaigns.Shown, err error) {
	if err := checkPick(id, ""); err != nil {
		return shown, err
	}
	err = r.get(ctx, "/v1/campaigns/"+id, nil, &shown)
	return shown, err
}

// PauseCampaign implements Operations.
func (r *Remote) PauseCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return r.turnCampaign(ctx, "pause", in)
}

// ResumeCampaign implements Operations.
func (r *Remote) ResumeCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return r.turnCampaign(ctx, "resume", in)
}

func (r *Remote) turnCampaign(ctx context.Context, what string, in CampaignPause) (out CampaignState, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/campaigns/"+in.Campaign+"/"+what, &in, &out)
	return out, err
}

// CampaignEnding implements Operations.
func (r *Remote) CampaignEnding(ctx context.Context, id string) (e *campaigns.Ending, err error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	e = &campaigns.Ending{}
	return e, r.get(ctx, "/v1/campaigns/"+id+"/ending", nil, e)
}

// CloseCampaign implements Operations.
func (r *Remote) CloseCampaign(ctx context.Context, in CampaignClose) (*campaigns.Ending, error) {
	return r.end(ctx, in.Campaign, "close", &in)
}

// CancelCampaign implements Operations.
func (r *Remote) CancelCampaign(ctx context.Context, id string) (*campaigns.Ending, error) {
	return r.end(ctx, id, "cancel", struct{}{})
}

// end closes or cancels a campaign.
func (r *Remote) end(ctx context.Context, id, how string, in any) (*campaigns.Ending, error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	e := &campaigns.Ending{}
	_, err := r.post(ctx, "/v1/campaigns/"+id+"/"+how, in, e)
	return e, err
}

// RefundCampaign implements Operations.
func (r *Remote) RefundCampaign(ctx context.Context, in CampaignRefund) (*campaigns.Ending, error) {
	if err := cmp.Or(in.Check(), checkPick(in.Campaign, "")); err != nil {
		return nil, err
	}
	e, key := &campaigns.Ending{}, rand.Text()
	for end := time.Now().Add(in.Wait); ; {
		more, err := r.postWith(ctx, key, "/v1/campaigns/"+in.Campaign+"/refund", &in, e)
		switch {
		case err != nil || !more:
			return e, err
		case !time.Now().Before(end) || !retry.Pause(ctx, pollEvery):
			return e, hongbao.Errorf(hongbao.ClassTransient, "%w: grants up to the close are not in the ledger yet: run it "+
				"again, or give --wait", payment.ErrSettling)
		}
	}
}

// RevealCampaign implements Operations.
func (r *Remote) RevealCampaign(ctx context.Context, id string) (*campaign.Disclosure, error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	d := &campaign.Disclosure{}
	_, err := r.post(ctx, "/v1/campaigns/"+id+"/reveal", struct{}{}, d)
	return d, err
}
