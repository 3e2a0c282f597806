package ops

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// QuarantineList is the input of ListQuarantine.
type QuarantineList struct {
	All   bool  // includes decided grants
	After int64 // Next of the previous page
	Limit int
}

// Check returns an error if the input is invalid.
func (in *QuarantineList) Check() error {
	if in.After < 0 {
		return &InputError{Field: "after", Text: "is 0 or more"}
	}
	return checkLimit(in.Limit, model.MaxLetters)
}

func checkLimit(n, most int) error {
	if n < 1 || n > most {
		return &InputError{Field: "limit", Text: fmt.Sprintf("is from 1 to %d", most)}
	}
	return nil
}

// ListQuarantine lists grants in quarantine, oldest first.
func (l *Local) ListQuarantine(ctx context.Context, in QuarantineList) (payments.QuarantinePage, error) {
	if err := in.Check(); err != nil {
		return payments.QuarantinePage{}, err
	}
	return payments.Of(l.App).ListQuarantine(ctx, payments.QuarantineList{After: in.After, Limit: in.Limit, All: in.All, Sees: l.sees()})
}

// ShowQuarantined returns a grant in quarantine. A grant that the caller may not see looks as if it did not
// exist.
func (l *Local) ShowQuarantined(ctx context.Context, id int64) (payments.Quarantined, error) {
	return l.quarantined(ctx, access.ReadQuarantine, id)
}

func (l *Local) quarantined(ctx context.Context, a access.Action, id int64) (payments.Quarantined, error) {
	q, err := payments.Of(l.App).Quarantined(ctx, id)
	if err == nil && !l.visibleOrDenied(ctx, a, q.Campaign) {
		return payments.Quarantined{}, hongbao.Errorf(hongbao.ClassPermanent, "%w: `hongbao quarantine list` lists them",
			ledger.ErrNotInQuarantine)
	}
	return q, err
}

// Decide is the input of DecideQuarantined.
type Decide struct {
	ID       int64  `json:"-"`
	Decision string `json:"decision" enum:"pay,void" doc:"'pay': pay the grant from the reserve. 'void': do not pay the grant."`
	By       string `json:"-"` // who decides; ignored if the caller has an API key
	Why      string `json:"why" doc:"The reason for the decision. It is stored with the decision and the id of the caller's API key."`
}

// Check returns an error if the decision is invalid.
func (in *Decide) Check() error {
	if in.Decision != "pay" && in.Decision != "void" {
		return &InputError{Field: "decision", Text: "is pay or void"}
	}
	return checkWhy(in.Why)
}

// DecideQuarantined pays or voids a grant in quarantine. A decision is final.
func (l *Local) DecideQuarantined(ctx context.Context, in Decide) (payments.Quarantined, error) {
	if err := in.Check(); err != nil {
		return payments.Quarantined{}, err
	}
	if l.Caller != nil {
		if _, err := l.quarantined(ctx, access.DecideQuarantine, in.ID); err != nil {
			return payments.Quarantined{}, err
		}
	}
	return payments.Of(l.App).Decide(ctx, ledger.Resolution{ID: in.ID, Pay: in.Decision == "pay",
		Decision: stream.Decision{By: l.by(in.By), Why: in.Why}})
}

// ListQuarantine implements Operations.
func (r *Remote) ListQuarantine(ctx context.Context, in QuarantineList) (page payments.QuarantinePage, err error) {
	if err := in.Check(); err != nil {
		return page, err
	}
	page.Grants = []payments.Quarantined{}
	q := url.Values{"after": {strconv.FormatInt(in.After, 10)}}
	if in.All {
		q.Set("all", "true")
	}
	err = r.pages(ctx, "/v1/quarantine", q, in.Limit, func(get func(to any) error) (n int, after string, err error) {
		var next payments.QuarantinePage
		err = get(&next)
		page.Grants, page.Next = append(page.Grants, next.Grants...), next.Next
		if next.Next != nil {
			after = strconv.FormatInt(*next.Next, 10)
		}
		return len(next.Grants), after, err
	})
	return page, err
}

// ShowQuarantined implements Operations.
func (r *Remote) ShowQuarantined(ctx context.Context, id int64) (q payments.Quarantined, err error) {
	err = r.get(ctx, "/v1/quarantine/"+strconv.FormatInt(id, 10), nil, &q)
	return q, err
}

// DecideQuarantined implements Operations.
func (r *Remote) DecideQuarantined(ctx context.Context, in Decide) (q payments.Quarantined, err error) {
	if err := in.Check(); err != nil {
		return q, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/quarantine/"+strconv.FormatInt(in.ID, 10)+"/decide", &in, &q)
	return q, err
}
