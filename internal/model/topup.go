package model

import (
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

// TopUp is a generation of packets that was added to a campaign, or that an order would add.
type TopUp struct {
	Campaign   string         `json:"campaign" doc:"The campaign's id."`
	ID         string         `json:"id" doc:"Id of the order, which the caller chose."`
	Generation int            `json:"generation" doc:"Number of the top-up's generation: 2 for the first top-up. The packets of the specification are generation 1."`
	First      int64          `json:"first_packet" doc:"Number of the top-up's first packet in the campaign."`
	Packets    int64          `json:"packets" doc:"Number of added packets."`
	Total      hongbao.Amount `json:"total" doc:"Sum of the added packets, in minor units."`
	Currency   string         `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217; absent for coupons without a value."`
	// Funded is the campaign's funding after the top-up.
	Funded hongbao.Amount `json:"funded" doc:"Amount that the sponsor has paid in after the top-up, in minor units."`
	Hash   string         `json:"plan_hash,omitempty" doc:"Hash that commits to the draw of the added packets. Publish it. Absent in a dry run."`
	// Canonical is the draw as Hash covers it.
	Canonical string `json:"canonical,omitempty" doc:"The top-up as text. The hash covers exactly these bytes, and the seed. Publish it. Absent in a dry run."`
	By        string `json:"by" doc:"Person or API key that ordered the top-up."`
	Why       string `json:"why" doc:"The reason for the order."`
	// Dealt is the time when all packets were in Redis; zero before.
	Created time.Time `json:"created,omitzero" doc:"Time of the order."`
	Dealt   time.Time `json:"dealt,omitzero" doc:"Time when all packets of the top-up were in Redis. Absent before."`
}

// Text describes a top-up for a person. If the packets wait for the campaign's load, it says what to do.
func (t *TopUp) Text() string {
	last := "next: hongbao campaign load " + t.Campaign
	if !t.Dealt.IsZero() {
		last = "dealt " + t.Dealt.Format(time.RFC3339)
	}
	return fmt.Sprintf("campaign %s has generation %d: packets %d to %d, %s; it is funded with %s\n"+
		"plan hash %s (publish it)\n%s\n", t.Campaign, t.Generation, t.First, t.First+t.Packets-1,
		money.Text(t.Total, t.Currency), money.Text(t.Funded, t.Currency), t.Hash, last)
}
