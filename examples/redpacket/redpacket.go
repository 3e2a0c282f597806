package redpacket

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/producer"
)

// Code is an answer of the classic program.
type Code string

// The classic codes.
const (
	Granted  Code = "0"
	Already  Code = "1"
	NoneLeft Code = "-1"
)

// Receipt is the grant that the classic script keeps and returns.
type Receipt struct {
	ID     int64  `json:"id"`
	Money  int64  `json:"money"`
	UserID string `json:"userId"`
}

// Grabber grabs packets of a campaign that has one packet for each user.
type Grabber struct {
	Producer *producer.Producer
	Campaign string
}

// Grab grabs a packet for the user. It returns a receipt only with Granted, like the classic script. If the campaign is
// not open, or nothing was decided yet, Grab returns an error, because the script has no code for that.
func (g *Grabber) Grab(ctx context.Context, user string) (Code, *Receipt, error) {
	a, err := g.Producer.Grab(ctx, &hongbao.Grab{Campaign: g.Campaign, User: user})
	if err != nil {
		return "", nil, err
	}
	switch a.Outcome {
	case hongbao.OutcomeGranted:
		r := &a.Receipts[0]
		return Granted, &Receipt{ID: r.Packet, Money: int64(r.Amount), UserID: user}, nil
	case hongbao.OutcomeAlreadyGranted:
		return Already, nil, nil
	case hongbao.OutcomeSoldOut:
		return NoneLeft, nil, nil
	default:
		return "", nil, fmt.Errorf("campaign %s answered %s to user %s: the classic script has no code for it", g.Campaign,
			a.Outcome, user)
	}
}
