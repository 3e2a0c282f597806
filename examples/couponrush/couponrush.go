package couponrush

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/producer"
)

// Code is what the classic script answers.
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
	Redis    redis.UniversalClient
	Space    *shards.Layout
	Campaign hongbao.Campaign
}

// Grab asks for a coupon for the user; with Granted comes its code. The same request id again gets the same coupon.
// What the classic script has no word for is an error: a campaign that is not open, and whatever says that nothing was
// decided yet.
func (r *Rush) Grab(ctx context.Context, user, request string) (Code, string, error) {
	a, err := r.Producer.Grab(ctx, &hongbao.Grab{Campaign: r.Campaign.ID, User: user, RequestID: request})
	if err != nil {
		return -1, "", err
	}
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		return Granted, a.Receipts[0].Code, nil
	case hongbao.OutcomeSoldOut:
		return NoneLeft, "", nil
	case hongbao.OutcomeAlreadyGranted: // one coupon a user: the receipts are told
		code, err := r.whichLimit(a.Receipts, a.Time)
		return code, "", err
	case hongbao.OutcomeLimitReached:
		if a.Limit.Limit.Per == hongbao.PerDay {
			return DayLimit, "", nil
		}
		receipts, err := shards.Of(r.Redis, r.Space.Home(r.Campaign.ID)).UserReceipts(ctx, r.Campaign.ID, user)
		if err != nil {
			return -1, "", err
		}
		code, err := r.whichLimit(receipts, a.Time)
		return code, "", err
	default:
		return -1, "", fmt.Errorf("campaign %s answered %s to user %s: the classic script has no word for it", r.Campaign.ID,
			a.Outcome, user)
	}
}

// whichLimit tells what the classic script would have told a user who holds as many as he may: it looks at the day
// first. Receipts of such a user change no more, so they may be read after the answer.
func (r *Rush) whichLimit(receipts []hongbao.Receipt, now time.Time) (Code, error) {
	zone, err := campaign.Transitions(r.Campaign)
	if err != nil {
		return -1, err
	}
	today, _ := campaign.Bucket(zone, hongbao.PerDay, now.UnixMilli())
	left := r.perDay()
	for i := range receipts {
		if day, _ := campaign.Bucket(zone, hongbao.PerDay, receipts[i].Time.UnixMilli()); day == today {
			left--
		}
	}
	if left <= 0 {
		return DayLimit, nil
	}
	return UserLimit, nil
}

func (r *Rush) perDay() int64 {
	for _, l := range r.Campaign.Limits {
		if l.By == hongbao.ByUser && l.Per == hongbao.PerDay {
			return l.Max
		}
	}
	return hongbao.MaxUserHold + 1 // none that could be reached
}
