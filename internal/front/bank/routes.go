package bank

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// codes are the error codes that only this package uses.
var codes = web.AddCodes(map[string]web.Code{
	"reference_invalid":       {Status: http.StatusBadRequest, Title: "This can't be a reference"},
	"account_invalid":         {Status: http.StatusBadRequest, Title: "This can't be an account"},
	"currency_invalid":        {Status: http.StatusBadRequest, Title: "This is no currency"},
	"idempotency_key_invalid": {Status: http.StatusBadRequest, Title: "This can't be an Idempotency-Key"},
	"credits_required":        {Status: http.StatusBadRequest, Title: "The body has no list of credits"},
	"too_many_credits":        {Status: http.StatusBadRequest, Title: "The list has too many credits"},
	"unknown_parameter":       {Status: http.StatusBadRequest, Title: "A parameter is unknown or occurs twice"},
	"limit_invalid":           {Status: http.StatusBadRequest, Title: "The limit is out of range"},
	"after_invalid":           {Status: http.StatusBadRequest, Title: "The parameter after is invalid"},
	"credit_not_found":        {Status: http.StatusNotFound, Title: "Nothing is booked under the reference"},
	"in_progress":             {Status: http.StatusConflict, Title: "Another request with the same key is running"},
	"reference_reused":        {Status: http.StatusUnprocessableEntity, Title: "The reference was used for another credit"},
	"credit_refused":          {Status: http.StatusUnprocessableEntity, Title: "This credit can't be booked"},
	"fund_exhausted": {Status: http.StatusServiceUnavailable,
		Title: "Nothing was booked: the client's fund does not cover it"},
	"credit_unknown": {Status: http.StatusInternalServerError, Title: "The credit may or may not have been booked"},
})

// API returns the description of the server's endpoints.
func (b *Balance) API() *web.API {
	return &web.API{
		Title: "Hongbao balance API",
		Description: "`hongbao balance` serves this API, and `settlement.kind: remote` expects it of a balance system. " +
			"See docs/remote-balance.md. Amounts are integers in minor units. An API key belongs to a client. Each client " +
			"has its own references and idempotency keys, and a fund that pays its credits. The server stores idempotency " +
			"keys permanently: a repeated request with the same key gets the first answer.",
		Pages: "docs/api-balance.md and /openapi.json list the paths", Listener: "balance.listen",
		Schemes: map[string]*huma.SecurityScheme{
			"key": {Type: "http", Scheme: "bearer", BearerFormat: "hb_...", Description: "An API key."},
		},
		Endpoints: b.endpoints(), AnswerTime: b.cfg.HandleTimeout, Log: b.log,
		Unknown: func(r *http.Request) error {
			_, err := b.authenticate(r, "")
			return err
		},
	}
}

var creditCodes = []string{"reference_invalid", "account_invalid", "currency_invalid", "amount_not_integer_minor_units",
	"amount_out_of_range", "idempotency_key_required", "idempotency_key_invalid", "idempotency_key_reused", "in_progress",
	"reference_reused", "credit_refused", "fund_exhausted", "credit_unknown"}

func (b *Balance) endpoints() []web.Endpoint {
	account, pages := pathParam("id", "Id of the account."), []string{"unknown_parameter", "limit_invalid", "after_invalid"}
	health := web.Endpoint{Method: http.MethodGet, Answer: healthAnswer{}}
	alive, ready := health, health
	alive.Path, alive.ID, alive.Summary, alive.Do = "/livez", "alive", "Tell a probe whether the process serves", b.alive
	ready.Path, ready.ID, ready.Summary, ready.Do = "/readyz", "ready", "Tell a probe whether the ledger answers", b.ready
	ready.Codes = []string{"unavailable"}
	return []web.Endpoint{
		b.forClients(access.BookCredits, b.credit, web.Endpoint{
			Method: http.MethodPost, Path: "/v1/credits", ID: "credit", Summary: "Book one credit, out of the client's fund",
			Description: "Status 201: this request booked the credit. Status 200: an earlier request with this key booked " +
				"the credit, and the answer is the same.",
			Params: []*huma.Param{keyParam()}, Body: newCredit{}, Answer: Credit{}, Created: true,
			Codes: slices.Concat(web.BodyCodes, creditCodes),
		}),
		b.forClients(access.ReadCredits, b.credits, web.Endpoint{
			Method: http.MethodGet, Path: "/v1/credits", ID: "credits",
			Summary: "List the client's credits in the order of their references",
			Description: "A client can audit its credits with these pages. Read in sequence, they have every credit that was " +
				"booked before the first request. Credits that are booked later may be missing.",
			Params: []*huma.Param{limitParam(), queryParam("after", "The field `next` of the previous page, or any reference "+
				"after which the page begins. `prod:spring:`, for example, begins with the credits of one campaign.", web.IDSchema())},
			Answer: creditList{}, Codes: pages,
		}),
		b.forClients(access.BookCredits, b.batch, web.Endpoint{
			Method: http.MethodPost, Path: "/v1/credits:batch", ID: "credit-batch",
			Summary: "Book many credits, each with its own key and its own result",
			Description: "The answer has one result for each credit, in the order of the credits. Each result has the status " +
				"that a request with only this credit would get.",
			Body: newBatch{}, Answer: batchResults{},
			Codes: slices.Concat(web.BodyCodes, []string{"credits_required", "too_many_credits"}),
		}),
		b.forClients(access.ReadCredits, b.byReference, web.Endpoint{
			Method: http.MethodGet, Path: "/v1/credits/{reference}", ID: "credit-by-reference",
			Summary: "Show the credit that the client booked under a reference", Params: []*huma.Param{pathParam("reference", "The reference of the credit.")},
			Answer: Credit{}, Codes: []string{"reference_invalid", "credit_not_found"},
		}),
		b.forClients(access.ReadAccounts, b.account, web.Endpoint{
			Method: http.MethodGet, Path: "/v1/accounts/{id}", ID: "account",
			Summary: "Show the balance of an account in each currency", Params: []*huma.Param{account},
			Answer: accountAnswer{}, Codes: []string{"account_invalid"},
		}),
		b.forClients(access.ReadAccounts, b.statement, web.Endpoint{
			Method: http.MethodGet, Path: "/v1/accounts/{id}/statement", ID: "statement",
			Summary: "List an account's credits in one currency in the order of their booking",
			Description: "The credits are numbered 1, 2, 3, ... without gaps, even while clients credit the account. A " +
				"reader who continues after the last number misses no credit.",
			Params: []*huma.Param{account, currencyParam(), limitParam(), queryParam("after",
				"The field `next` of the previous page.", &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(float64)})},
			Answer: statement{}, Codes: slices.Concat(pages, []string{"account_invalid", "currency_invalid"}),
		}),
		alive, ready,
	}
}

// forClients returns an endpoint that requires an API key whose role may take the action. do gets the key's client.
func (b *Balance) forClients(
	action access.Action, do func(w http.ResponseWriter, r *http.Request, client string) error, e web.Endpoint,
) web.Endpoint {
	e.Security, e.Roles = []string{"key"}, access.RolesOf(action)
	e.Codes = slices.Concat([]string{"forbidden", "busy", "unavailable"}, e.Codes)
	e.Do = func(w http.ResponseWriter, r *http.Request) error {
		log := b.strangers
		who, err := b.authenticate(r, action)
		if err == nil {
			log = b.log.With(zap.String("key", who.Key), zap.String("client", who.Client))
			err = b.admit(w, r, &who, action, do)
		}
		if err != nil { // clients are few and known, and a refusal concerns money, so each one is logged at level info
			web.Fail(w, r, log, zap.InfoLevel, refusalOf(err))
		}
		return nil
	}
	return e
}

var errBusy = errors.New("balance.in_flight requests are running")

// admit checks the role and the limit of concurrent requests before it reads the request's body.
func (b *Balance) admit(w http.ResponseWriter, r *http.Request, who *access.Caller, action access.Action,
	do func(w http.ResponseWriter, r *http.Request, client string) error,
) error {
	r = r.WithContext(access.As(r.Context(), web.ActorOf(who, r, w.Header().Get(web.RequestID))))
	if err := who.May(action); err != nil {
		b.denied(r.Context(), action, "", err)
		return web.Refuse("forbidden", "use a key whose role may do this")
	}
	if !b.takeSlot(who.Client) {
		return &web.Refusal{Code: "busy", Detail: "too many requests are running; try again", Wait: retryAfter, Cause: errBusy}
	}
	defer b.freeSlot(who.Client)
	return do(w, r, who.Client)
}

// takeSlot counts a running request of a client. One client gets at most half of the slots: otherwise a single one, with
// bodies that arrive slowly, could take them all.
func (b *Balance) takeSlot(client string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking[client] >= max(1, cap(b.slots)/2) {
		return false
	}
	select {
	case b.slots <- struct{}{}:
		b.asking[client]++
		return true
	default:
		return false
	}
}

func (b *Balance) freeSlot(client string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asking[client]--; b.asking[client] == 0 {
		delete(b.asking, client)
	}
	<-b.slots
}

func (b *Balance) authenticate(r *http.Request, action access.Action) (access.Caller, error) {
	who, err := b.keys.Identify(access.For(r.Context(), action), web.Bearer(r))
	if errors.Is(err, access.ErrUnauthorized) {
		return who, web.Refuse("unauthorized", "send an API key that is valid here as Authorization: Bearer hb_...")
	}
	if err != nil {
		return who, unread(err)
	}
	return who, nil
}

// How long callers should wait before a retry. fundWait is longer, because a person has to fill the fund.
const (
	retryAfter = time.Second
	fundWait   = 10 * time.Second
)

// unread returns the answer for a failed read from the ledger.
func unread(err error) error {
	return &web.Refusal{Code: "unavailable", Detail: "the ledger did not answer; send the request again", Wait: retryAfter, Cause: err}
}

// refusalOf returns the answer for an error. The error's class decides what the caller should do.
func refusalOf(err error) *web.Refusal {
	var refused *web.Refusal
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, payment.ErrKeyReused):
		return &web.Refusal{Code: "idempotency_key_reused", Cause: err,
			Detail: "the key was used for another credit; a new credit needs a new key"}
	case errors.Is(err, payment.ErrReferenceReused):
		return &web.Refusal{Code: "reference_reused", Cause: err,
			Detail: "the reference was used for another credit; GET it to see which"}
	case errors.Is(err, payment.ErrFundExhausted):
		return &web.Refusal{Code: "fund_exhausted", Cause: err, Wait: fundWait,
			Detail: "once the client's fund is filled, send the same request again"}
	}
	switch hongbao.ClassOf(err) {
	case hongbao.ClassTransient:
		return &web.Refusal{Code: "unavailable", Detail: "nothing was booked; send the same request again", Wait: retryAfter,
			Cause: err}
	case hongbao.ClassPermanent:
		return &web.Refusal{Code: "credit_refused", Detail: "the account's balance would be out of range", Cause: err}
	case hongbao.ClassConflict, hongbao.ClassBroken, hongbao.ClassUnknown:
	}
	return &web.Refusal{Code: "credit_unknown", Detail: "send the same request with the same key again", Cause: err}
}

type healthAnswer struct {
	Status string `json:"status" enum:"ok"`
}

func (b *Balance) alive(w http.ResponseWriter, _ *http.Request) error {
	web.WriteJSON(w, http.StatusOK, healthAnswer{"ok"})
	return nil
}

// ready answers GET /readyz with 200 if the ledger answers.
func (b *Balance) ready(w http.ResponseWriter, r *http.Request) error {
	if err := b.keys.Ready(r.Context()); err != nil {
		return unread(err)
	}
	return b.alive(w, r)
}

func pathParam(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: description, Schema: web.IDSchema()}
}

func queryParam(name, description string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: description, Schema: schema}
}

func limitParam() *huma.Param {
	least, most := 1.0, float64(maxPage)
	return queryParam("limit", "The most items on a page.", &huma.Schema{Type: huma.TypeInteger, Minimum: &least,
		Maximum: &most, Default: defaultPage})
}

func currencyParam() *huma.Param {
	p := queryParam("currency", "Currency of the credits, ISO 4217.", &huma.Schema{Type: huma.TypeString, Pattern: "^[A-Z]{3}$"})
	p.Required = true
	return p
}

func keyParam() *huma.Param {
	return &huma.Param{Name: "Idempotency-Key", In: "header", Required: true, Example: `"prod:spring:17"`,
		Description: "The key of this credit. A retry must have the same key. Write the key in double quotes, as the IETF " +
			"draft says, or without. It has 1 to 128 printable ASCII characters without spaces, quotes and backslashes.",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: `^("[!#-\[\]-~]{1,128}"|[!#-\[\]-~]{1,128})$`}}
}
