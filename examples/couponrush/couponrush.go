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
	UserMax       int64 // coupons for one user, up to hongbao.MaxUserHold
	UserPerDayMax int64 // coupons for one user on one day in the campaign's time zone
}

// Spec returns a campaign with these limits.
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

// Grab grabs a coupon for the user. It returns the coupon's code with Granted. A repeat with the same request id
// returns the same coupon. A user who has reached both limits gets UserLimit, because a later day does not help; the
// classic script returns DayLimit. If the campaign is not open, or nothing was decided yet, Grab returns an error,
// because the classic script has no code for that.
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
	case hongbao.OutcomeAlreadyGranted: // the campaign has one coupon per user
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
