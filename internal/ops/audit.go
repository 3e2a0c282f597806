package ops

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// Audit is the input of an audit.
type Audit struct {
	Campaign    string `json:"campaign,omitempty" doc:"Ids of the campaigns to audit, separated by commas. Absent: all campaigns."`
	Full        bool   `json:"full,omitempty" doc:"True to ignore seals: the audit reads all grants that are not archived, every account and the whole topic."`
	Seal        bool   `json:"seal,omitempty" doc:"True to seal the refunded campaigns that have left Redis, if there is no difference. Only a treasurer's key may send it."`
	WaitSeconds int64  `json:"wait_seconds,omitempty" minimum:"1" maximum:"3600" doc:"The longest wait until workers have finished all grants, before the audit begins to read."`
	// Request identifies the request to a server. A repeat has the same one.
	Request string `json:"-"`
}

// Check returns an error if the input is invalid.
func (in *Audit) Check() error {
	for _, id := range list(in.Campaign) {
		if err := checkPick(id, ""); id == "" || err != nil {
			return &InputError{Field: "campaign", Text: "is a list of ids of campaigns, separated by commas: each is 1 to 64 of " +
				"a-z, 0-9, - and _, beginning with a letter"}
		}
	}
	if in.WaitSeconds < 0 {
		return &InputError{Field: "wait_seconds", Text: "is 0 or more"}
	}
	return nil
}

// Audit compares Redis, the ledger and the topic. For a caller with an API key the server runs at most one audit, and
// the journal records it.
func (l *Local) Audit(ctx context.Context, in Audit) (*model.AuditReport, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	o := &books.AuditOrder{Seal: in.Seal, Request: in.Request, Options: audit.Options{Campaigns: list(in.Campaign), Full: in.Full,
		Wait: time.Duration(in.WaitSeconds) * time.Second}}
	if l.Caller == nil {
		return books.Of(l.App).AuditAndSeal(ctx, o)
	}
	if in.Seal {
		if err := l.checkAllowed(access.SealCampaigns, ""); err != nil {
			return nil, err
		}
	}
	return books.Of(l.App).AuditAlone(ctx, o)
}

// Audit implements Operations. The server continues the audit after ctx has ended.
func (r *Remote) Audit(ctx context.Context, in Audit) (*model.AuditReport, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	var out struct{ Report *model.AuditReport }
	if err := r.postAll(ctx, "/v1/audit", &in, &out); err != nil {
		return nil, err
	}
	if out.Report == nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "the server's answer contains no report of the audit")
	}
	return out.Report, nil
}

// LastAudit returns the result of the last audit of all campaigns. Its verdict is none if there was no audit yet.
func (l *Local) LastAudit(ctx context.Context) (books.LastAudit, error) {
	return books.Of(l.App).LastAudit(ctx)
}

// LastAudit implements Operations.
func (r *Remote) LastAudit(ctx context.Context) (last books.LastAudit, err error) {
	err = r.get(ctx, "/v1/audit", nil, &last)
	return last, err
}

// Acknowledge is the input of AcknowledgeDifference.
type Acknowledge struct {
	Kind     string    `json:"kind" doc:"Kind of the difference, such as 'duplicate_in_topic'."`
	Where    string    `json:"where" doc:"The place where the audit found the difference, exactly as the audit printed it."`
	Campaign string    `json:"campaign,omitempty" doc:"Id of the campaign, if the difference names one."`
	Packet   int64     `json:"packet,omitempty" minimum:"1" doc:"Number of the packet, if the difference names one."`
	Event    string    `json:"event,omitempty" doc:"Id of the event, as SHARD-SEQ, if the difference names one."`
	Detail   string    `json:"detail" doc:"Detail of the difference, exactly as the audit printed it."`
	Until    time.Time `json:"until" doc:"From this time on, the audit counts the difference again. At most 366 days from now."`
	By       string    `json:"-"` // who decides; ignored if the caller has an API key
	Why      string    `json:"why" minLength:"1" maxLength:"500" doc:"The reason for the acknowledgement. It is stored with the acknowledgement."`
}

// Check returns an error if the input is invalid.
func (in *Acknowledge) Check() error {
	if in.Until.IsZero() {
		return &InputError{Field: "until", Text: "is required: a time within the next 366 days, as 2026-02-17T20:00:00Z"}
	}
	return checkWhy(in.Why)
}

// AcknowledgeDifference records that a difference in the audit is known. Until in.Until, the audit shows the
// difference but does not count it.
func (l *Local) AcknowledgeDifference(ctx context.Context, in Acknowledge) (out model.Acknowledgement, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	d := model.Difference{Kind: model.DifferenceKind(in.Kind), Where: in.Where, Campaign: in.Campaign, Packet: in.Packet,
		Event: in.Event, Detail: in.Detail}
	return books.Of(l.App).Acknowledge(ctx, &d, in.Until, stream.Decision{By: l.by(in.By), Why: in.Why})
}

// AcknowledgeDifference implements Operations.
func (r *Remote) AcknowledgeDifference(ctx context.Context, in Acknowledge) (out model.Acknowledgement, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/audit/acknowledgements", &in, &out)
	return out, err
}

// TrailOf selects the grants of a user or of a packet.
type TrailOf struct {
	Campaign, User string
	Packet         int64
}

// Check returns an error if the input is invalid.
func (in *TrailOf) Check() error {
	switch {
	case in.Campaign == "":
		return &InputError{Field: "campaign", Text: "is required"}
	case (in.User == "") == (in.Packet == 0):
		return &InputError{Text: "give either user or packet"}
	case in.Packet < 0 || in.Packet > hongbao.MaxPackets:
		return &InputError{Field: "packet", Text: "is a number of 1 or more"}
	}
	return checkPick(in.Campaign, in.User)
}

// ShowTrail finds the selected grants in all stores.
func (l *Local) ShowTrail(ctx context.Context, in TrailOf) (*find.Trail, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	return find.Of(l.App).Trail(ctx, find.TrailOf(in))
}
