package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/store"
)

// CampaignCreate is the input of CreateCampaign.
type CampaignCreate struct {
	Spec hongbao.Campaign
	// Codes are the coupon codes from the file that the specification names, or nil.
	Codes []string
}

// Check returns an error if the specification names a file of codes that was not read. The specification itself
// is checked later, with data from the stores.
func (in *CampaignCreate) Check() error {
	if c := in.Spec.Codes; c != nil && c.File != "" && in.Codes == nil {
		return &InputError{Field: "codes.file", Code: "specification_invalid", Text: "names a file. Only " +
			"`hongbao campaign create` without --server can read it: give codes.pattern"}
	}
	return nil
}

// CreateCampaign funds a campaign, draws its seed and stores its codes. A repeated call changes nothing.
func (l *Local) CreateCampaign(ctx context.Context, in CampaignCreate) (*campaigns.Created, error) {
	if err := l.mayCreate(&in); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).Create(ctx, in.Spec, in.Codes)
}

// FundCampaign is the first step of CreateCampaign, a single transaction of the ledger. StoreCodes is the second
// step.
func (l *Local) FundCampaign(ctx context.Context, in CampaignCreate) (*campaigns.Created, error) {
	if err := l.mayCreate(&in); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).CreateFunded(ctx, in.Spec)
}

// StoreCodes stores the codes of a funded campaign. It continues where an earlier call stopped.
func (l *Local) StoreCodes(ctx context.Context, in CampaignCreate) error {
	return campaigns.Of(l.App).StoreCodes(ctx, in.Spec, in.Codes)
}

func (l *Local) mayCreate(in *CampaignCreate) error {
	if err := in.Check(); err != nil {
		return err
	}
	return l.checkAllowed(access.CreateCampaign, in.Spec.ID)
}

// CreateCampaign implements Operations.
func (r *Remote) CreateCampaign(ctx context.Context, in CampaignCreate) (*campaigns.Created, error) {
	in.Codes = nil // codes from a file can't be sent to the server
	if err := in.Check(); err != nil {
		return nil, err
	}
	out := &campaigns.Created{}
	return out, r.postAll(ctx, "/v1/campaigns", &in.Spec, out)
}

// Loaded is the result of LoadCampaign.
type Loaded struct {
	Campaign string    `json:"campaign" doc:"The campaign's id."`
	Packets  int64     `json:"packets" doc:"Number of packets in the specification, without the packets of top-ups."`
	From     time.Time `json:"from" doc:"Start of the campaign's window for grabs."`
	To       time.Time `json:"to" doc:"End of the campaign's window for grabs."`
	TimeZone string    `json:"time_zone" doc:"The campaign's time zone, an IANA name."`
	Loading  bool      `json:"loading" doc:"True while the load continues. To see its progress, GET the campaign."`
	Already  bool      `json:"already_loaded" doc:"True if the campaign was loaded before the request."`
}

// LoadedOf returns the result for a campaign.
func LoadedOf(c *hongbao.Campaign, loading bool) Loaded {
	return Loaded{Campaign: c.ID, Packets: c.Packets, From: c.From.UTC(), To: c.To.UTC(), TimeZone: c.TimeZone, Loading: loading}
}

// LoadCampaign loads a campaign's packets into Redis and opens it. It continues where an earlier call stopped.
func (l *Local) LoadCampaign(ctx context.Context, id string) (Loaded, error) {
	before := campaigns.Of(l.App).InRedis(ctx, id)
	c, err := campaigns.Of(l.App).Load(ctx, id)
	out := LoadedOf(&c, false)
	out.Already = before != nil && slices.Contains([]string{store.StateOpen, store.StatePaused, store.StateClosed,
		store.StateRefunded}, before.State)
	return out, err
}

// LoadCampaign implements Operations.
func (r *Remote) LoadCampaign(ctx context.Context, id string) (out Loaded, err error) {
	if err := checkPick(id, ""); err != nil {
		return out, err
	}
	err = r.postAll(ctx, "/v1/campaigns/"+id+"/load", struct{}{}, &out)
	return out, err
}

// TopUp is the input of TopUpCampaign, which adds packets to a campaign.
type TopUp struct {
	Campaign string         `json:"-"`
	ID       string         `json:"id" minLength:"1" maxLength:"128" doc:"Id of the order, chosen by the caller. Sending the same order again changes nothing."`
	Packets  int64          `json:"packets" minimum:"1" maximum:"10000000" doc:"Number of packets to add."`
	Total    hongbao.Amount `json:"total" minimum:"0" maximum:"9007199254740991" doc:"Sum of the added packets, in minor units."`
	Expect   hongbao.Amount `json:"expect" minimum:"0" maximum:"9007199254740991" doc:"What the campaign's sponsor has paid in before this order, in minor units: the field 'ledger.funded' of the campaign."`
	Tiers    string         `json:"tiers,omitempty" doc:"The added packets as AMOUNTxPACKETS, separated by spaces. Only for a campaign whose specification has tiers."`
	By       string         `json:"-"` // who decides; ignored if the caller has an API key
	Why      string         `json:"why" minLength:"1" maxLength:"500" doc:"The reason for the order. It is stored with the order."`
}

// Check returns an error if the input is invalid.
func (in *TopUp) Check() error {
	if hongbao.CheckID(in.ID) != nil {
		return &InputError{Field: "id", Text: "is required: 1 to 128 printable ASCII characters without spaces"}
	}
	if err := in.CheckPackets(); err != nil {
		return err
	}
	return checkWhy(in.Why)
}

// CheckPackets returns an error if the number of packets or the tiers are invalid. These are all that TryTopUp
// needs.
func (in *TopUp) CheckPackets() error {
	if in.Packets < 1 || in.Packets > hongbao.MaxPackets {
		return &InputError{Field: "packets", Text: fmt.Sprintf("is required, from 1 to %d", hongbao.MaxPackets)}
	}
	if _, err := campaigns.ParseTiers(strings.Fields(in.Tiers)); err != nil {
		return &InputError{Field: "tiers", Text: err.Error()}
	}
	return nil
}

// order converts a checked input.
func (l *Local) order(in *TopUp) campaigns.TopUpOrder {
	tiers, _ := campaigns.ParseTiers(strings.Fields(in.Tiers))
	return campaigns.TopUpOrder{Campaign: in.Campaign, ID: in.ID, Packets: in.Packets, Total: in.Total, Expect: in.Expect,
		Tiers: tiers, Decision: stream.Decision{By: l.by(in.By), Why: in.Why}}
}

// TopUpCampaign funds more packets and loads them into Redis. If the answer has no time Dealt, the packets wait for
// the load of their campaign. A repeated call with the same id changes nothing.
func (l *Local) TopUpCampaign(ctx context.Context, in TopUp) (*campaigns.TopUp, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	out, err := campaigns.Of(l.App).TopUp(ctx, l.order(&in))
	if out != nil && campaigns.TopUpWaits(err) {
		err = nil
	}
	return out, err
}

// OrderTopUp is the first step of TopUpCampaign, a single transaction of the ledger. Campaigns.DealTopUps is the second
// step.
func (l *Local) OrderTopUp(ctx context.Context, in TopUp) (*campaigns.TopUp, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).OrderTopUp(ctx, l.order(&in))
}

// TryTopUp returns the result that a top-up would have, without changing anything.
func (l *Local) TryTopUp(ctx context.Context, in TopUp) (*campaigns.TopUp, error) {
	if err := in.CheckPackets(); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).TryTopUp(ctx, l.order(&in))
}

// TopUpCampaign implements Operations.
func (r *Remote) TopUpCampaign(ctx context.Context, in TopUp) (*campaigns.TopUp, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	if err := checkPick(in.Campaign, ""); err != nil {
		return nil, err
	}
	in.Why = reason(in.By, in.Why)
	out := &campaigns.TopUp{}
	if _, err := r.post(ctx, "/v1/campaigns/"+in.Campaign+"/top-ups", &in, out); err != nil {
		return nil, err
	}
	for { // the answer does not contain the time Dealt
		shown, err := r.ShowCampaign(ctx, in.Campaign)
		if err != nil {
			return out, err
		}
		if at := out.Generation - 2; at < len(shown.TopUps) {
			out = &shown.TopUps[at]
		}
		if out.Dealt != nil || shown.Redis == nil {
			return out, nil
		}
		if !retry.Pause(ctx, pollEvery) {
			return out, context.Cause(ctx)
		}
	}
}

// TryTopUp implements Operations. The API has no endpoint for it.
func (r *Remote) TryTopUp(context.Context, TopUp) (*campaigns.TopUp, error) {
	return nil, &InputError{Field: "expect", Text: "is required at a server: `hongbao campaign show` prints the funding"}
}
