package payments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Version is one of the two contradicting versions of a grant.
type Version struct {
	Event     string         `json:"event" doc:"Id of the grant's event, as SHARD-SEQ."`
	User      string         `json:"user" doc:"The user who gets the packet in this version of the grant."`
	Amount    hongbao.Amount `json:"amount" doc:"Amount of the packet in this version of the grant, in minor units."`
	Epoch     int64          `json:"epoch" doc:"The shard's epoch when the grant was decided. The epoch rises each time the shard is opened."`
	RequestID string         `json:"request_id,omitempty" doc:"Request id of the grab. Absent if the grab had none."`
	Time      time.Time      `json:"time" doc:"Time when the grant was decided."`
}

func versionOf(g *hongbao.Grant) *Version {
	if g == nil {
		return nil
	}
	return &Version{g.EventID(), g.User, g.Amount, g.Epoch, g.RequestID, g.Time}
}

// Quarantined is a grant in quarantine.
type Quarantined struct {
	ID       int64                  `json:"id" doc:"Number of the grant in the quarantine."`
	Reason   model.QuarantineReason `json:"reason" enum:"exists_with_different_user,exists_with_different_amount,exists_with_different_shard,exists_with_different_seq,amount_not_planned,packet_not_planned,unknown_campaign,over_funded,after_refund" doc:"What the grant contradicts. docs/ledger.md says what to do about each reason."`
	Campaign string                 `json:"campaign" doc:"The campaign's id."`
	Packet   int64                  `json:"packet" doc:"Number of the packet in the campaign."`
	Currency string                 `json:"currency,omitempty" doc:"Currency of the amounts; absent if the ledger does not know it."`
	Came     *Version               `json:"came" doc:"The grant that arrived from Redis and was not paid."`
	// Ledger is the ledger's grant of the same packet at that time; null if there was none.
	Ledger     *Version   `json:"ledger" doc:"The grant of this packet that the ledger already had. Null if it had none."`
	Created    time.Time  `json:"created" doc:"Time when the grant was put into quarantine."`
	Resolved   *time.Time `json:"resolved" doc:"Time of the decision. Null while the grant waits for one."`
	ResolvedBy string     `json:"resolved_by,omitempty" doc:"Person or API key that decided. Absent while the grant waits for a decision."`
	Resolution string     `json:"resolution,omitempty" doc:"The decision and its reason. Absent while the grant waits for a decision."`
}

// Printable returns the form of a quarantined grant that answers show.
func Printable(q *model.Quarantined) Quarantined {
	out := Quarantined{
		ID: q.ID, Reason: q.Reason, Campaign: q.Grant.Campaign, Packet: q.Grant.Packet, Currency: q.Grant.Currency,
		Came: versionOf(&q.Grant), Ledger: versionOf(q.Has),
		Created: q.Created, ResolvedBy: q.ResolvedBy, Resolution: q.Resolution,
	}
	if !q.Resolved.IsZero() {
		out.Resolved = &q.Resolved
	}
	return out
}

// QuarantinePage is a page of the list of grants in quarantine.
type QuarantinePage struct {
	Grants []Quarantined `json:"grants" doc:"The grants of this page, the oldest first. The field 'ledger' is null if the ledger had no grant of the packet."`
	// Next is the start of the next page; nil if there is none.
	Next *int64 `json:"next" doc:"To get the next page, send this value as the parameter 'after'. Null on the last page."`
}

// QuarantineList is a request for a page of grants in quarantine.
type QuarantineList struct {
	After int64 // the number after which the page starts; 0 for the first page
	Limit int
	All   bool // also grants that were already decided
	// Sees, if not nil, reports for each campaign whether its grants are listed.
	Sees func(campaign string) bool
}

// ListQuarantine lists the grants that wait for a decision.
func (a Payments) ListQuarantine(ctx context.Context, q QuarantineList) (p QuarantinePage, err error) {
	read := a.app.Ledger().Quarantine
	if q.All {
		read = a.app.Ledger().QuarantineAll
	}
	p.Grants = []Quarantined{}
	for {
		list, err := read(ctx, q.After, q.Limit)
		if err != nil {
			return p, err
		}
		for i := range list {
			if q.Sees != nil && !q.Sees(list[i].Grant.Campaign) {
				continue
			}
			p.Grants = append(p.Grants, Printable(&list[i]))
			if len(p.Grants) == q.Limit {
				p.Next = &list[i].ID
				return p, nil
			}
		}
		if len(list) < q.Limit {
			return p, nil
		}
		q.After = list[len(list)-1].ID
	}
}

// Quarantined returns a grant in quarantine.
func (a Payments) Quarantined(ctx context.Context, id int64) (out Quarantined, err error) {
	q, found, err := a.app.Ledger().Quarantined(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "%w: there is no grant %d in quarantine; `hongbao quarantine list "+
			"--all` lists all", ledger.ErrNotInQuarantine, id)
	}
	if err != nil {
		return out, err
	}
	return Printable(&q), nil
}

// Decide pays or voids a grant in quarantine, once.
func (a Payments) Decide(ctx context.Context, d ledger.Resolution) (out Quarantined, err error) {
	plans, err := a.app.Plans()
	if err != nil {
		return out, err
	}
	var q model.Quarantined
	err = a.app.InLedger(ctx, app.About(ctx, access.DecideQuarantine, ""), func(ctx context.Context, e *access.Entry) (err error) {
		q, err = a.app.Ledger().Decide(ctx, d, plans)
		e.Campaign = q.Grant.Campaign
		e.Details = map[string]any{"quarantine": d.ID, "pay": d.Pay, "by": d.By, "why": d.Why}
		return err
	})
	switch {
	case errors.Is(err, ledger.ErrNotInQuarantine):
		return out, fmt.Errorf("%w: `hongbao quarantine list` shows the grants in quarantine", err)
	case hongbao.ClassOf(err) == hongbao.ClassUnknown && err != nil:
		return out, fmt.Errorf("%w; run the same command again: it pays only once", err)
	case err != nil:
		return out, err
	}
	return Printable(&q), nil
}

// Disown records that the ledger will never contain a campaign. Grants of the campaign then go to quarantine.
func (a Payments) Disown(ctx context.Context, campaign string, d stream.Decision) error {
	return a.app.InLedger(ctx, app.About(ctx, access.DisownCampaign, campaign), func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"by": d.By, "why": d.Why}
		return a.app.Ledger().Disown(ctx, campaign, d)
	})
}
