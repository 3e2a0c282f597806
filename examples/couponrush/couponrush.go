package couponrush

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/producer"
)

// Code is an answer of the classic script.
type Code int

// The classic codes.
const (
	Granted   Code = 0
	DayLimit  Code = 1
	UserLimit Code = 2
	NoneLeft  Code = 3
)

// Limits are the classic script's parameters.
type Limits struct {
	Max           int64 // coupons in all
	UserMax       int64 // of one user, up to hongbao.MaxUserHold
	UserPerDayMax int64 // of one user on one day of the campaign's time zone
}

// Spec is a campaign with these limits.
func Spec(id string, l Limits, from, to time.Time, zone string) hongbao.Campaign {
	return campaign.Complete(hongbao.Campaign{
		ID: id, Name: "Coupon rush", Kind: hongbao.KindCoupon, Packets: l.Max, Split: hongbao.Split{Mode: hongbao.SplitEven},
		From: from, To: to, TimeZone: zone, Sponsor: "acme", Codes: &hongbao.Codes{Pattern: "SPRING-####-????"},
		Limits: []hongbao.Limit{
			{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: l.UserMax},
			{By: hongbao.ByUser, Per: hongbao.PerDay, Max: l.UserPerDayMax},
		},
	})
}

// Rush grabs coupons of a campaign that Spec made.
type Rush struct {
	Producer *producer.Producer
	Campaign string
}

// Grab asks for a coupon for the user; with Granted comes its code. The same request id again gets the same coupon. A
// user who reached both limits gets UserLimit, because no later day brings another coupon; the classic script says
// DayLimit. An answer that the classic script does not know is an error: the campaign is not open, or nothing was
// decided yet.
func (r *Rush) Grab(ctx context.Context, user, request string) (Code, string, error) {
	a, err := r.Producer.Grab(ctx, &hongbao.Grab{Campaign: r.Campaign, User: user, RequestID: request})
	if err != nil {
		return -1, "", err
	}
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		return Granted, a.Receipts[0].Code, nil
	case hongbao.OutcomeSoldOut:
		return NoneLeft, "", nil
	case hongbao.OutcomeAlreadyGranted: // the campaign gives one coupon a user, and the user has it
		return UserLimit, "", nil
	case hongbao.OutcomeLimitReached:
		if a.Limit.Limit.Per == hongbao.PerDay {
			return DayLimit, "", nil
		}
		return UserLimit, "", nil
	default:
		return -1, "", fmt.Errorf("campaign %s answered %s to user %s: the classic script has no code for it", r.Campaign,
			a.Outcome, user)
	}
}
