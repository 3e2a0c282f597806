package ops

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

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
	if _, err := in.tiers(); err != nil {
		return &InputError{Field: "tiers", Text: err.Error()}
	}
	return nil
}

// tiers parses the tiers.
func (in *TopUp) tiers() (list []hongbao.Tier, err error) {
	for _, text := range strings.Fields(in.Tiers) {
		amount, packets, _ := strings.Cut(text, "x")
		a, errA := strconv.ParseInt(amount, 10, 64)
		n, errN := strconv.ParseInt(packets, 10, 64)
		if errA != nil || errN != nil || a < 1 || n < 1 {
			return nil, hongbao.Errorf(hongbao.ClassPermanent, "%.40q is not a tier: want AMOUNTxPACKETS, such as 200x50", text)
		}
		list = append(list, hongbao.Tier{Amount: hongbao.Amount(a), Packets: n})
	}
	return list, nil
}

// order converts a checked input.
func (l *Local) order(in *TopUp) ledger.TopUp {
	tiers, _ := in.tiers()
	return ledger.TopUp{Campaign: in.Campaign, ID: in.ID, Expect: in.Expect, Packets: in.Packets, Total: in.Total,
		Split: hongbao.Split{Tiers: tiers}, Decision: stream.Decision{By: l.by(in.By), Why: in.Why}}
}

// TopUpCampaign funds more packets and loads them into Redis. If the answer has no time Dealt, the packets wait for
// the load of their campaign. A repeated call with the same id changes nothing.
func (l *Local) TopUpCampaign(ctx context.Context, in TopUp) (*model.TopUp, error) {
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
func (l *Local) OrderTopUp(ctx context.Context, in TopUp) (*model.TopUp, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).OrderTopUp(ctx, l.order(&in))
}

// TryTopUp returns the result that a top-up would have, without changing anything.
func (l *Local) TryTopUp(ctx context.Context, in TopUp) (*model.TopUp, error) {
	if err := in.CheckPackets(); err != nil {
		return nil, err
	}
	return campaigns.Of(l.App).TryTopUp(ctx, l.order(&in))
}

// TopUpCampaign implements Operations.
func (r *Remote) TopUpCampaign(ctx context.Context, in TopUp) (*model.TopUp, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	if err := checkPick(in.Campaign, ""); err != nil {
		return nil, err
	}
	in.Why = reason(in.By, in.Why)
	out := &model.TopUp{}
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
		if !out.Dealt.IsZero() || shown.Redis == nil {
			return out, nil
		}
		if !retry.Pause(ctx, pollEvery) {
			return out, context.Cause(ctx)
		}
	}
}

// TryTopUp implements Operations. The API has no endpoint for it.
func (r *Remote) TryTopUp(context.Context, TopUp) (*model.TopUp, error) {
	return nil, &InputError{Field: "expect", Text: "is required at a server: `hongbao campaign show` prints the funding"}
}
