// Package ops has the operations that people carry out on a deployment. Each operation has an input type that checks
// itself. The command line, the administration API and the console all call the same operations. Local works
// directly on the deployment's stores; Remote calls the administration API of a server.
package ops

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// Operations are carried out on the stores (Local) or over HTTP (Remote), with the same answers and errors.
type Operations interface {
	// ListLetters returns a page of dead letters, oldest first within a sink and shard.
	ListLetters(ctx context.Context, in LetterList) (deliveries.LetterPage, error)
	ShowLetter(ctx context.Context, id string) (model.Letter, error)
	// RequeueLetters delivers dead letters again, and DropLetters gives them up. Both may return a report together
	// with an error; the report says what was done.
	RequeueLetters(ctx context.Context, in Requeue) (*model.LetterReport, error)
	DropLetters(ctx context.Context, in Letters) (*model.LetterReport, error)

	ListSinks(ctx context.Context) (*deliveries.Status, error)
	PauseSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error)
	ResumeSink(ctx context.Context, in SinkPause) (deliveries.SinkChange, error)
	LimitSink(ctx context.Context, in SinkLimit) (deliveries.SinkChange, error)

	ListQuarantine(ctx context.Context, in QuarantineList) (payments.QuarantinePage, error)
	ShowQuarantined(ctx context.Context, id int64) (payments.Quarantined, error)
	DecideQuarantined(ctx context.Context, in Decide) (payments.Quarantined, error)

	// CreateCampaign funds a campaign, LoadCampaign opens it, and TopUpCampaign adds packets. Each of them continues an
	// earlier call that did not finish. TryTopUp returns the result that a top-up would have.
	CreateCampaign(ctx context.Context, in CampaignCreate) (*campaigns.Created, error)
	LoadCampaign(ctx context.Context, id string) (Loaded, error)
	TopUpCampaign(ctx context.Context, in TopUp) (*model.TopUp, error)
	TryTopUp(ctx context.Context, in TopUp) (*model.TopUp, error)
	ListCampaigns(ctx context.Context) ([]model.Campaign, error)
	ShowCampaign(ctx context.Context, id string) (campaigns.Shown, error)
	PauseCampaign(ctx context.Context, in CampaignPause) (CampaignState, error)
	ResumeCampaign(ctx context.Context, in CampaignPause) (CampaignState, error)
	// CampaignEnding returns the status of a closed campaign. CloseCampaign and CancelCampaign end a campaign.
	CampaignEnding(ctx context.Context, id string) (*campaigns.Ending, error)
	CloseCampaign(ctx context.Context, in CampaignClose) (*campaigns.Ending, error)
	CancelCampaign(ctx context.Context, id string) (*campaigns.Ending, error)
	RefundCampaign(ctx context.Context, in CampaignRefund) (*campaigns.Ending, error)
	RevealCampaign(ctx context.Context, id string) (*campaign.Disclosure, error)

	// StartReplay delivers grants once more. It may return a report together with an error.
	StartReplay(ctx context.Context, in Replay) (*model.ReplayReport, error)
	// Audit compares Redis, the ledger and the topic. If it could not seal, Local returns a report together
	// with an error, and Remote returns only the error.
	Audit(ctx context.Context, in Audit) (*model.AuditReport, error)
	// LastAudit returns the result of the last audit of all campaigns.
	LastAudit(ctx context.Context) (books.LastAudit, error)
	AcknowledgeDifference(ctx context.Context, in Acknowledge) (model.Acknowledgement, error)
	ListJournal(ctx context.Context, in access.JournalQuery) (access.JournalPage, error)
	// ShowUser returns a page of what is stored about a user. The journal records the call.
	ShowUser(ctx context.Context, in UserQuery) (find.UserData, error)
	// ShowTrail finds grants in all stores. Explain says in words what it found.
	ShowTrail(ctx context.Context, in TrailOf) (*find.Trail, error)
}

// InputError says that an operation rejected its input. Nothing was done.
type InputError struct {
	// Field is the name of the input's field in the API; "" if the problem concerns several fields.
	Field string
	// Code is the API's error code; "" stands for the code of an invalid value.
	Code string
	// Text is the rest of the sentence that begins with the field's name, such as "is required".
	Text string
}

func (e *InputError) Error() string { return strings.TrimSpace(e.Field + " " + e.Text) }

// Local carries out operations on the deployment's stores. Before a call, the API or the console has checked the
// caller's role, and that the caller may see the campaign in the path. Local checks all other names in the input, and
// omits from lists the campaigns that the caller may not see.
type Local struct {
	App *app.App
	// Caller is the API key of the caller, who may see only the campaigns in the key's scope. If it is nil, the
	// caller is a person with direct access to the stores.
	Caller *access.Caller
}

// by returns who decides: the caller's key, or the given name if the caller has direct access to the stores.
func (l *Local) by(given string) string {
	if l.Caller != nil {
		return l.Caller.Name()
	}
	return given
}

// sees returns a filter for the campaigns that the caller may see, or nil if the caller may see all.
func (l *Local) sees() func(campaign string) bool {
	if l.Caller == nil || !l.Caller.Scoped() {
		return nil
	}
	return l.Caller.Sees
}

// checkAllowed returns an error if the caller may not take an action on a campaign.
func (l *Local) checkAllowed(a access.Action, campaign string) error {
	if l.Caller == nil {
		return nil
	}
	return l.Caller.Check(a, campaign)
}

// visibleOrDenied reports whether the caller may see the data of a campaign. If not, it records the attempt in the
// journal.
func (l *Local) visibleOrDenied(ctx context.Context, a access.Action, campaign string) bool {
	if l.Caller == nil || l.Caller.Sees(campaign) {
		return true
	}
	l.App.Denied(ctx, a, campaign, access.ErrNotInScope)
	return false
}

// checkSinks returns an error if the deployment does not have one of the sinks. field is the name of the
// input's field in the API.
func (l *Local) checkSinks(field string, sinks ...string) error {
	all := l.App.Config.Deployment.Sinks
	for _, s := range sinks {
		if !slices.Contains(all, s) {
			return &InputError{Field: field, Code: "unknown_sink",
				Text: "is unknown: deployment.sinks has " + strings.Join(all, ", ")}
		}
	}
	return nil
}

// checkWhy returns an error unless why is a reason.
func checkWhy(why string) error {
	if err := stream.CheckWhy(why); err != nil {
		return &InputError{Field: "why", Text: err.Error()}
	}
	return nil
}

// checkPick checks the campaign and the user of a filter. Both may be empty.
func checkPick(campaign, user string) error {
	if campaign != "" && hongbao.CheckCampaignID(campaign) != nil {
		return &InputError{Field: "campaign", Text: "is 1 to 64 of a-z, 0-9, - and _, beginning with a letter"}
	}
	if user != "" && hongbao.CheckID(user) != nil {
		return &InputError{Field: "user", Text: "is 1 to 128 printable ASCII characters without spaces"}
	}
	return nil
}

// list splits a comma-separated text; an empty text has no items.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// IsInput reports whether an operation rejected its input.
func IsInput(err error) bool {
	var wrong *InputError
	return errors.As(err, &wrong)
}
