package ops

import (
	"context"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
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
