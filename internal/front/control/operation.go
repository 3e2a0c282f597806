package control

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// operation describes one endpoint.
type operation struct {
	method, path, id, summary, description string
	action                                 access.Action
	params                                 []*huma.Param
	// body is a value of the request body's type, or nil for an operation that only reads. answer is a value of the
	// answer's type. accepted is a value of the type of the answer with status 202, or nil if there is none.
	body, answer, accepted any
	// codes are the operation's error codes, in addition to those that all operations can return.
	codes []string
	do    func(ctx context.Context, c *call) (any, error)

	// The following fields are for operations that change something.

	// raw is set if do parses the body itself.
	raw bool
	// inTransaction is set if do changes only the ledger. Then its changes, the answer and the journal entry are one
	// transaction. Otherwise do makes its changes before the answer is stored, and may run twice.
	inTransaction bool
	// withoutLedger is set if do needs only Redis. Then it also runs while the ledger is down, and is recorded later.
	withoutLedger bool
	// after runs after the transaction, and also for a retry. It may replace the answer by one with status 202.
	after func(ctx context.Context, c *call, answer any) (any, error)
}

func operations() []operation {
	var all []operation
	for _, list := range [][]operation{campaignReads(), campaignChanges(), letterOperations(), quarantineOperations(),
		sinkOperations(), auditOperations(), replayOperations(), journalOperations(), userOperations()} {
		all = append(all, list...)
	}
	return all
}

// call is a request whose caller has the permission for it.
type call struct {
	*Control
	r        *http.Request
	who      access.Caller
	actor    access.Actor
	action   access.Action
	campaign string         // in the path; empty if the path has none
	fields   *fields        // from the query of a read, or from the body of a change
	body     []byte         // the unparsed body of a change
	req      access.Request // identifies a change
}

// ops returns the operations with the caller's rights.
func (c *call) ops() *ops.Local { return &ops.Local{App: c.app, Caller: &c.who} }

// These types give the inputs and answers their names in the OpenAPI document.
type (
	lettersBody ops.Letters
	sinkBody    ops.SinkPause
	limitBody   ops.SinkLimit
	stateBody   ops.CampaignPause
	stateAnswer ops.CampaignState
	decideBody  ops.Decide
	closeBody   ops.CampaignClose
	refundBody  ops.CampaignRefund
	sinksAnswer deliveries.Status
	loadAnswer  ops.Loaded
	topUpBody   ops.TopUp
	replayBody  ops.Replay
	auditBody   ops.Audit
	report      model.ReplayReport

	acknowledgeBody ops.Acknowledge
)

// later wraps an answer with status 202, which means that the work continues.
type later struct{ answer any }

// commonCodes are the error codes of every endpoint, changeCodes those of every endpoint with a body.
var (
	commonCodes = []string{"forbidden", "invalid_parameter", "unavailable", "outcome_unknown", "frozen"}
	changeCodes = slices.Concat([]string{"idempotency_key_required", "idempotency_key_reused", "idempotency_key_in_use"},
		web.BodyCodes, []string{"invalid_value", "refused"})
)

// endpoint converts the operation to an endpoint of the listener.
func (c *Control) endpoint(o *operation) web.Endpoint {
	e := web.Endpoint{
		Method: o.method, Path: o.path, ID: o.id, Summary: o.summary, Description: o.description,
		Params: o.params, Security: []string{"key"}, Roles: access.RolesOf(o.action),
		Body: o.body, Answer: o.answer, Accepted: o.accepted,
		Codes: slices.Concat(commonCodes, o.codes),
	}
	if strings.Contains(o.path, "{id}") {
		e.Params = append([]*huma.Param{web.CampaignID()}, e.Params...)
		e.Codes = append(e.Codes, "campaign_invalid", "unknown_campaign")
	}
	if o.body != nil {
		e.Params = append(e.Params, idempotencyKey())
		e.Codes = slices.Concat(e.Codes, changeCodes)
	}
	e.Do = func(w http.ResponseWriter, r *http.Request) error {
		x, err := c.admit(o, r, w.Header().Get(web.RequestID))
		if err != nil {
			return err
		}
		if o.body != nil {
			return x.change(w, o)
		}
		return x.read(w, o)
	}
	return e
}

// admit identifies the caller and checks the permission, before the query or the body is read.
func (c *Control) admit(o *operation, r *http.Request, requestID string) (*call, error) {
	who, err := c.authority.Identify(access.For(r.Context(), o.action), web.Bearer(r))
	if errors.Is(err, access.ErrUnauthorized) && web.Bearer(r) != "" {
		c.app.Denied(access.As(r.Context(), web.Stranger(r, requestID)), o.action, "", err)
	}
	if err == nil {
		err = who.May(o.action)
	}
	x := &call{Control: c, who: who, actor: web.ActorOf(&who, r, requestID), action: o.action,
		campaign: r.PathValue("id")}
	x.r = r.WithContext(access.As(r.Context(), x.actor))
	if err == nil && x.campaign != "" {
		if _, err := web.CampaignOf(r); err != nil {
			return nil, err
		}
		err = who.Check(o.action, x.campaign)
	}
	if err == nil {
		return x, nil
	}
	return nil, x.denied(problemOf(err))
}

// denied records in the journal that an action was denied, if err says so. It returns err.
func (c *call) denied(err error) error {
	if errors.Is(err, access.ErrForbidden) || errors.Is(err, access.ErrWhole) || errors.Is(err, access.ErrNotInScope) {
		c.app.Denied(c.r.Context(), c.action, c.campaign, err)
	}
	return err
}

// read answers a request that changes nothing.
func (c *call) read(w http.ResponseWriter, o *operation) error {
	var err error
	if c.fields, err = readQuery(c.r.URL.RawQuery); err != nil {
		return err
	}
	answer, err := o.do(c.r.Context(), c)
	var wrong *ops.InputError
	if errors.As(err, &wrong) && wrong.Code == "" {
		return web.Refuse("invalid_parameter", wrong.Error())
	}
	if err != nil {
		return problemOf(err)
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// sees returns a filter for the campaigns that the caller may see, or nil if the caller may see all.
func (c *call) sees() func(campaign string) bool {
	if !c.who.Scoped() {
		return nil
	}
	return c.who.Sees
}

func param(name, in, description string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: in, Description: description, Schema: schema, Required: in == "path"}
}

func textParam(name, description string) *huma.Param {
	least, most := 1, maxText
	return param(name, "query", description, &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most})
}

func campaignParam(description string) *huma.Param {
	return param("campaign", "query", description, web.CampaignID().Schema)
}

func userParam(description string) *huma.Param {
	return param("user", "query", description, web.IDSchema())
}

func flagParam(name, description string) *huma.Param {
	return param(name, "query", description, &huma.Schema{Type: huma.TypeBoolean})
}

func timeParam(name, description string) *huma.Param {
	return param(name, "query", description, &huma.Schema{Type: huma.TypeString, Format: "date-time"})
}

func numberParam(name, description string, least, most float64) *huma.Param {
	return param(name, "query", description, &huma.Schema{Type: huma.TypeInteger, Minimum: &least, Maximum: &most})
}

func limitParam() *huma.Param {
	return numberParam("limit", "The most items on a page; 50 if absent.", 1, maxPage)
}
