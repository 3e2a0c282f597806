package find

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
)

// TrailCampaign has what explains why a user has these grants, or none.
type TrailCampaign struct {
	State string        `json:"state" enum:"created,loading,not_started,open,paused,sold_out,ended,closed,refunded,frozen,unread" doc:"State that a grab would find. 'created' means that the campaign is not loaded. 'unread' means that Redis could not be read."`
	Note  string        `json:"note,omitempty" doc:"Who paused the campaign and why, why it is frozen, or why its state could not be read. Absent in other states."`
	Terms *TrailTerms   `json:"terms" doc:"Terms of the campaign. Null if neither Redis nor the ledger could be read."`
	Kept  optional.Text `json:"archive" nullable:"true" doc:"Name of the archive file that has the campaign's grants, in place of the ledger. Null if the grants are not archived."`
	// Withheld is only read if there are no grants, because it explains nothing else.
	Withheld int64 `json:"withheld,omitempty" doc:"Number of packets that an unknown user may have won before Redis lost the record, and that wait for a decision. Absent if there are none, or if a grant was found."`
}

// TrailTerms are the terms of a campaign that explain an outcome.
type TrailTerms struct {
	From     time.Time `json:"from" doc:"Start of the window for grabs."`
	To       time.Time `json:"to" doc:"End of the window for grabs."`
	TimeZone string    `json:"time_zone" doc:"IANA name of the campaign's time zone."`
	MostHeld int64     `json:"user_limit" doc:"The most packets that one user can get in the campaign."`
	// Kind and Codes say what a user gets.
	Kind  hongbao.Kind `json:"kind" doc:"What the packets are: 'red_packet' or 'coupon'."`
	Codes bool         `json:"codes" doc:"True if each packet has a coupon code. The trail does not have it."`
}

// TrailMoney says when the ledger has booked a grant, or what keeps it from booking it.
type TrailMoney struct {
	Paid *time.Time `json:"paid_at" doc:"Time when the ledger booked the grant. Null if the ledger has no row of the grant."`
	// Quarantine is not read if the ledger has the grant's row.
	Quarantine *TrailQuarantine `json:"quarantine" doc:"The grant in the quarantine. Null if it is not there, or if the ledger has booked it."`
	Asking     string           `json:"asking,omitempty" doc:"Worker that asked the remote balance system for the credit, as long as no answer is known. Absent if there is no such request."`
}

// TrailQuarantine is a grant in quarantine, and the decision about it.
type TrailQuarantine struct {
	ID         int64                  `json:"id" doc:"Number of the grant in the quarantine."`
	Reason     model.QuarantineReason `json:"reason" doc:"What the grant contradicts."`
	ResolvedBy string                 `json:"resolved_by,omitempty" doc:"Who decided. Absent while the grant waits for a decision."`
	Resolution string                 `json:"resolution,omitempty" doc:"The decision and its reason. Absent while the grant waits for a decision."`
}

// TrailWait says why a sink has not finished a grant. It is empty for other sinks.
type TrailWait struct {
	State deliveries.SinkState `json:"state,omitempty" enum:"unread,paused,down,no_worker,behind,working" doc:"State of the sink. Absent if the sink has finished the grant, or if Redis could not be read."`
	Why   string               `json:"why,omitempty" doc:"Why the sink is in this state, as text. Absent for the state 'working'."`
	// Since counts by the clock of this process.
	Since     *time.Time `json:"since,omitempty" doc:"Time since which the oldest grant has waited that the sink has not finished. Absent if the sink has finished this grant."`
	DownSince *time.Time `json:"down_since,omitempty" doc:"Time since which a worker can't deliver to the sink. Absent unless the state is 'down'."`
}

// explain adds what explains the grants that were found, or that none was found.
func (t *trailSearch) explain(ctx context.Context) {
	if err := t.money(ctx); err != nil {
		t.unread("ledger", err)
	}
	if err := t.waits(ctx); err != nil {
		t.unread("redis", err)
	}
	if err := t.campaign(ctx); err != nil {
		t.unread("redis", err)
	}
}

// campaign reads the campaign's state and terms.
func (t *trailSearch) campaign(ctx context.Context) error {
	c, mine := model.Campaign{ID: t.q.Campaign}, t.app.Store().Campaign(t.q.Campaign)
	if t.stored != nil {
		c = campaigns.InLedger(t.stored)
		t.out.Terms = termsOf(&t.stored.Spec)
	} else {
		c.Status = model.Unread
	}
	defer func() { t.out.State = c.Status }()
	if c.State == model.MoneyRefunded {
		return nil
	}
	if t.unreadAny("redis") { // do not wait for the same server again
		c.Status = model.Unread
		return nil
	}
	campaigns.Of(t.app).AddRedis(ctx, &c)
	switch p := c.Paused; {
	case p != nil:
		t.out.Note = fmt.Sprintf("Paused by %s at %s: %s", p.By, p.At.UTC().Format(time.DateTime+" UTC"),
			cmp.Or(p.Why, "no reason was given"))
	case c.Note != nil:
		t.out.Note = c.Note.String()
	}
	if t.out.Terms == nil {
		text, found, err := mine.Spec(ctx)
		spec := hongbao.Campaign{}
		if err != nil || !found || json.Unmarshal([]byte(text), &spec) != nil {
			return err
		}
		t.out.Terms = termsOf(&spec)
	}
	if len(t.grants) > 0 {
		return nil
	}
	n, err := losses.Of(t.app).Undecided(ctx, t.q.Campaign)
	t.out.Withheld = n
	return err
}

func termsOf(c *hongbao.Campaign) *TrailTerms {
	return &TrailTerms{From: c.From.UTC(), To: c.To.UTC(), TimeZone: c.TimeZone, MostHeld: c.UserHold(), Kind: c.Kind,
		Codes: c.Codes != nil}
}

// unreadAny reports whether a store could not be read.
func (t *trailSearch) unreadAny(where string) bool {
	for _, u := range t.out.Unread {
		if u.Where == where {
			return true
		}
	}
	return false
}

// money reads when the ledger booked the grants, and looks for those that it has not booked in the quarantine and among
// the pending credits.
func (t *trailSearch) money(ctx context.Context) error {
	if t.stored == nil {
		return nil
	}
	if t.unreadAny("ledger") {
		a, _, err := t.app.Books().Archived(ctx, t.q.Campaign)
		t.out.Kept = optional.Text(a.File)
		return err
	}
	missing := map[string]bool{} // users with a grant that the ledger has not booked
	for _, p := range t.grants {
		if p.Ledger == nil {
			missing[p.grant.User] = true
			continue
		}
		if p.Paid != nil {
			continue
		}
		paid, err := t.app.Ledger().UserPaid(ctx, t.q.Campaign, p.grant.User)
		if err != nil {
			return err
		}
		for packet, at := range paid {
			if other := t.grants[packet]; other != nil && other.Ledger != nil {
				other.Paid = &at
			}
		}
	}
	for user := range missing {
		if err := t.unbooked(ctx, user); err != nil {
			return err
		}
	}
	return nil
}

// unbooked looks for a user's grants in the quarantine and among the pending credits.
func (t *trailSearch) unbooked(ctx context.Context, user string) error {
	quarantined, err := t.app.Ledger().UserQuarantine(ctx, user)
	if err != nil {
		return err
	}
	for i := range quarantined {
		q := &quarantined[i]
		if p := t.mine(&q.Grant); p != nil {
			p.Quarantine = &TrailQuarantine{q.ID, q.Reason, q.ResolvedBy, q.Resolution}
		}
	}
	pending, err := t.app.Ledger().UserPending(ctx, user)
	for i := range pending {
		if p := t.mine(&pending[i].Grant); p != nil {
			p.Asking = pending[i].Owner
		}
	}
	return err
}

// mine returns the step of a grant, if it is one of the grants of the trail and the ledger has not booked it.
func (t *trailSearch) mine(g *hongbao.Grant) *trailed {
	p := t.grants[g.Packet]
	if p == nil || g.Campaign != t.q.Campaign || g.User != p.grant.User || p.Ledger != nil {
		return nil
	}
	return p
}

// waits says for each sink that has not finished a grant in which state it is.
func (t *trailSearch) waits(ctx context.Context) error {
	var s *deliveries.Status
	for _, p := range t.grants {
		for i := range p.Sinks {
			x := &p.Sinks[i]
			if x.Finished || x.NotOwed || p.has(x.Sink) {
				continue
			}
			if s == nil {
				var err error
				if s, err = deliveries.Of(t.app).Status(ctx); err != nil {
					return err
				}
			}
			x.TrailWait = waitOf(s, x.Sink, t.q.Campaign)
		}
	}
	return nil
}

// waitOf returns the state of a sink for the grants of a campaign.
func waitOf(s *deliveries.Status, sink, campaign string) TrailWait {
	for i := range s.Sinks {
		x := &s.Sinks[i]
		if x.Sink != sink {
			continue
		}
		for _, c := range x.Campaigns {
			if c.Campaign == campaign && x.State != deliveries.SinkPaused && x.State != deliveries.SinkUnread {
				return TrailWait{deliveries.SinkPaused, fmt.Sprintf("paused for this campaign by %s: %s", c.By, c.Why), since(x), nil}
			}
		}
		wait := TrailWait{State: x.State, Why: string(x.Why), Since: since(x)}
		if x.Down != nil {
			wait.DownSince = &x.Down.Since
		}
		return wait
	}
	return TrailWait{}
}

// since returns since when the oldest grant waits for the sink; nil if none waits.
func since(s *deliveries.SinkStatus) *time.Time {
	if s.Oldest == nil {
		return nil
	}
	at := time.Now().Add(-time.Duration(*s.Oldest * float64(time.Second))).UTC().Truncate(time.Millisecond)
	return &at
}
