package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// Version is one side of a contradiction.
type Version struct {
	Event     string         `json:"event"`
	User      string         `json:"user"`
	Amount    hongbao.Amount `json:"amount"`
	Epoch     int64          `json:"epoch"`
	RequestID string         `json:"request_id,omitempty"`
	Time      time.Time      `json:"time"`
}

func versionOf(g *hongbao.Grant) *Version {
	if g == nil {
		return nil
	}
	return &Version{g.EventID(), g.User, g.Amount, g.Epoch, g.RequestID, g.Time}
}

// Quarantined is a grant in quarantine.
type Quarantined struct {
	ID       int64         `json:"id"`
	Reason   ledger.Reason `json:"reason"`
	Campaign string        `json:"campaign"`
	Packet   int64         `json:"packet"`
	Currency string        `json:"currency,omitempty"` // of the amounts; empty if the ledger does not have the campaign
	Came     *Version      `json:"came"`
	// Ledger is what the ledger had of the packet when the grant came; null if it had nothing.
	Ledger     *Version   `json:"ledger"`
	Created    time.Time  `json:"created"`
	Resolved   *time.Time `json:"resolved"`
	ResolvedBy string     `json:"resolved_by,omitempty"`
	Resolution string     `json:"resolution,omitempty"`
}

func printable(q *ledger.Quarantined, currency string) Quarantined {
	out := Quarantined{
		ID: q.ID, Reason: q.Reason, Campaign: q.Grant.Campaign, Packet: q.Grant.Packet, Currency: currency,
		Came: versionOf(&q.Grant), Ledger: versionOf(q.Has),
		Created: q.Created, ResolvedBy: q.ResolvedBy, Resolution: q.Resolution,
	}
	if !q.Resolved.IsZero() {
		out.Resolved = &q.Resolved
	}
	return out
}

// QuarantinePage is a page of the list.
type QuarantinePage struct {
	Grants []Quarantined `json:"grants"`
	// Next is where the next page begins; 0 if there is none.
	Next int64 `json:"next"`
}

// QuarantineList is a question for a page of the list.
type QuarantineList struct {
	After int64 // the number to go on after; 0 begins
	Limit int
	All   bool // those that were decided, too
	// Sees, if not nil, tells for each campaign whether its grants are listed.
	Sees func(campaign string) bool
}

// ListQuarantine lists the grants that wait for a decision.
func (a *App) ListQuarantine(ctx context.Context, q QuarantineList) (p QuarantinePage, err error) {
	read := a.ledger.Quarantine
	if q.All {
		read = a.ledger.QuarantineAll
	}
	c := newCurrencies(a.ledgerCurrency)
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
			p.Grants = append(p.Grants, printable(&list[i], c.of(ctx, list[i].Grant.Campaign)))
			if len(p.Grants) == q.Limit {
				p.Next = list[i].ID
				return p, nil
			}
		}
		if len(list) < q.Limit {
			return p, nil
		}
		q.After = list[len(list)-1].ID
	}
}

// Quarantined gives a grant in quarantine.
func (a *App) Quarantined(ctx context.Context, id int64) (out Quarantined, err error) {
	q, found, err := a.ledger.Quarantined(ctx, id)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassPermanent, "%w: there is no grant %d in quarantine; `hongbao quarantine list "+
			"--all` shows those that there are", ledger.ErrNotInQuarantine, id)
	}
	if err != nil {
		return out, err
	}
	return printable(&q, a.ledgerCurrency(ctx, q.Grant.Campaign)), nil
}

// Decide pays or voids a grant in quarantine, once.
func (a *App) Decide(ctx context.Context, d ledger.Decision) (out Quarantined, err error) {
	plans, err := a.plans()
	if err != nil {
		return out, err
	}
	var q ledger.Quarantined
	err = a.inLedger(ctx, about(ctx, access.DecideQuarantine, ""), func(ctx context.Context, e *access.Entry) (err error) {
		q, err = a.ledger.Decide(ctx, d, plans)
		e.Campaign = q.Grant.Campaign
		e.Details = map[string]any{"quarantine": d.ID, "pay": d.Pay, "by": d.By, "why": d.Why}
		return err
	})
	switch {
	case errors.Is(err, ledger.ErrNotInQuarantine):
		return out, fmt.Errorf("%w: `hongbao quarantine list` shows them", err)
	case hongbao.ClassOf(err) == hongbao.ClassUnknown && err != nil:
		return out, fmt.Errorf("%w; run the same command again, it pays once", err)
	case err != nil:
		return out, err
	}
	return printable(&q, a.ledgerCurrency(ctx, q.Grant.Campaign)), nil
}

// Disown sends the grants of a campaign that the ledger will never have to quarantine.
func (a *App) Disown(ctx context.Context, campaign, by, why string) error {
	return a.inLedger(ctx, about(ctx, access.DisownCampaign, campaign), func(ctx context.Context, e *access.Entry) error {
		e.Details = map[string]any{"by": by, "why": why}
		return a.ledger.Disown(ctx, campaign, by, why)
	})
}
