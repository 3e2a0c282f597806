package bank

import (
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// newCredit is the body of a request to book a credit.
type newCredit struct {
	Reference string `json:"reference" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"The client's own name for the credit. It becomes part of a path, so it can't be . or .."`
	Account   string `json:"account" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"Id of the account that gets the credit."`
	Currency  string `json:"currency" pattern:"^[A-Z]{3}$" doc:"Currency of the amount, ISO 4217."`
	Amount    int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"Amount of the credit, in minor units."`
}

// newBatch is the body of a request to book several credits.
type newBatch struct {
	Credits []batchCredit `json:"credits" minItems:"1" maxItems:"1000" nullable:"false" doc:"The credits to book. Each has its own key and gets its own result."`
}

// batchCredit is one credit of a batch. The result of an invalid credit is a problem; the other credits are
// booked.
type batchCredit struct {
	Key       string `json:"key" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"Idempotency key of this credit, with the meaning of the header Idempotency-Key."`
	Reference string `json:"reference" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"The client's own name for the credit. It becomes part of a path, so it can't be . or .."`
	Account   string `json:"account" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"Id of the account that gets the credit."`
	Currency  string `json:"currency" pattern:"^[A-Z]{3}$" doc:"Currency of the amount, ISO 4217."`
	Amount    int64  `json:"amount" minimum:"1" maximum:"9007199254740991" doc:"Amount of the credit, in minor units."`
}

// Credit is a booked credit, as answers show it.
type Credit struct {
	Reference string         `json:"reference" doc:"The client's own name for the credit."`
	Account   string         `json:"account" doc:"Id of the account that got the credit."`
	Currency  string         `json:"currency" doc:"Currency of the amount, ISO 4217."`
	Amount    hongbao.Amount `json:"amount" doc:"Amount of the credit, in minor units."`
	Created   time.Time      `json:"created_at" doc:"Time when the credit was booked."`
}

func creditOf(c *payment.Credit) Credit {
	return Credit{c.Reference, c.Account, c.Currency, c.Amount, c.Created}
}

// credit answers POST /v1/credits with 201 if it booked the credit, and with 200 and the same body for a
// repeat.
func (b *Balance) credit(w http.ResponseWriter, r *http.Request, client string) error {
	o, err := read(w, r, web.SingleBody, "", 0)
	if err == nil {
		err = checkNames(o, "reference", "account", "currency", "amount")
	}
	if err != nil {
		return err
	}
	key, err := readKey(r)
	if err != nil {
		return err
	}
	c, err := readCredit(o)
	if err != nil {
		return err
	}
	c.Client, c.Key = client, key
	if err := b.begin(&c); err != nil {
		return err
	}
	defer b.finish(&c)
	answers, err := b.book.Credit(r.Context(), []payment.Credit{c})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return err
	}
	web.WriteJSON(w, statusOf(&answers[0]), creditOf(&answers[0].Credit))
	return nil
}

func statusOf(a *payment.Credited) int {
	if a.Repeated {
		return http.StatusOK
	}
	return http.StatusCreated
}

// clientKey is an idempotency key together with its client, because keys are unique only within a client.
type clientKey struct{ client, key string }

// begin returns an error if another request with the same key is running in this process. If the other request runs in
// another process, the lock of the book makes the second request wait.
func (b *Balance) begin(c *payment.Credit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := clientKey{c.Client, c.Key}
	if b.running[key] {
		return &web.Refusal{Code: "in_progress", Detail: "send it again to get its answer", Wait: retryAfter}
	}
	b.running[key] = true
	return nil
}

func (b *Balance) finish(c *payment.Credit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, clientKey{c.Client, c.Key})
}

// result is the result of one credit in a batch: its status, and either the credit or a problem.
type result struct {
	Status    int            `json:"status" doc:"The HTTP status that a request with only this credit would get."`
	Reference string         `json:"reference,omitempty" doc:"The client's own name for the credit. Present if the credit is booked."`
	Account   string         `json:"account,omitempty" doc:"Id of the account that got the credit. Present if the credit is booked."`
	Currency  string         `json:"currency,omitempty" doc:"Currency of the amount, ISO 4217. Present if the credit is booked."`
	Amount    hongbao.Amount `json:"amount,omitempty" doc:"Amount of the credit, in minor units. Present if the credit is booked."`
	Created   time.Time      `json:"created_at,omitzero" doc:"Time when the credit was booked. Present if the credit is booked."`
	Code      string         `json:"code,omitempty" doc:"What went wrong, as the field 'code' of a problem. Present if the credit is not booked."`
	Detail    string         `json:"detail,omitempty" doc:"What the client should do, as the field 'detail' of a problem. Present if the credit is not booked."`
}

type batchResults struct {
	Results []result `json:"results" nullable:"false" doc:"One result for each credit, in the order of the credits."`
}

func failed(err error) result {
	r := refusalOf(err)
	return result{Status: web.CodeOf(r.Code).Status, Code: r.Code, Detail: r.Detail}
}

func booked(a *payment.Credited) result {
	c := creditOf(&a.Credit)
	return result{Status: statusOf(a), Reference: c.Reference, Account: c.Account, Currency: c.Currency, Amount: c.Amount,
		Created: c.Created}
}

// batch answers POST /v1/credits:batch with 200 and a result for each credit, in order.
func (b *Balance) batch(w http.ResponseWriter, r *http.Request, client string) error {
	o, err := read(w, r, b.cfg.BatchBytes, "credits", b.cfg.BatchCredits)
	if err == nil {
		err = checkNames(o, "credits")
	}
	if err != nil {
		return err
	}
	list, ok := o["credits"].([]flatjson.Object)
	if !ok || len(list) == 0 {
		return web.Refuse("credits_required", "want a list of credits")
	}
	results := make([]result, len(list))
	var credits []payment.Credit
	var places []int
	for i := range list {
		c, err := b.part(list[i], client)
		if err != nil {
			results[i] = failed(err)
			continue
		}
		defer b.finish(&c)
		credits, places = append(credits, c), append(places, i)
	}
	var answers []payment.Credited
	if len(credits) > 0 {
		answers, err = b.book.Credit(r.Context(), credits)
	}
	for i, at := range places {
		switch {
		case err != nil:
			results[at] = failed(err)
		case answers[i].Err != nil:
			results[at] = failed(answers[i].Err)
		default:
			results[at] = booked(&answers[i])
		}
	}
	web.WriteJSON(w, http.StatusOK, batchResults{results})
	return nil
}

// part parses one credit of a batch and marks its key as running.
func (b *Balance) part(o flatjson.Object, client string) (payment.Credit, error) {
	if err := checkNames(o, "key", "reference", "account", "currency", "amount"); err != nil {
		return payment.Credit{}, err
	}
	c, err := readCredit(o)
	if err != nil {
		return c, err
	}
	key, _ := o.Text("key")
	if key == "" {
		return c, web.Refuse("idempotency_key_required",
			"each credit needs a key; each retry must have the same key")
	}
	if hongbao.CheckID(key) != nil {
		return c, web.Refuse("idempotency_key_invalid",
			"a key has 1 to 128 printable ASCII characters without spaces")
	}
	c.Client, c.Key = client, key
	return c, b.begin(&c)
}

// byReference answers GET /v1/credits/{reference}.
func (b *Balance) byReference(w http.ResponseWriter, r *http.Request, client string) error {
	reference := r.PathValue("reference")
	if checkReference(reference) != nil {
		return web.Refuse("reference_invalid",
			"a reference has 1 to 128 printable ASCII characters without spaces, and is not . or ..")
	}
	c, found, err := b.reader.CreditByReference(r.Context(), client, reference)
	if err != nil {
		return unread(err)
	}
	if !found {
		return web.Refuse("credit_not_found", "this client has no credit under the reference")
	}
	web.WriteJSON(w, http.StatusOK, creditOf(&c))
	return nil
}

type accountAnswer struct {
	Account  string                   `json:"account" doc:"The account in the request's path."`
	Balances []payment.AccountBalance `json:"balances" nullable:"false" doc:"One balance for each currency. Empty if the account was never credited."`
}

// account answers GET /v1/accounts/{id}. An account without credits has no balances.
func (b *Balance) account(w http.ResponseWriter, r *http.Request, _ string) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	list, err := b.reader.AccountBalances(r.Context(), id)
	if err != nil {
		return unread(err)
	}
	b.hasRead(r.Context(), access.Read{Action: access.ReadAccounts, Account: id})
	if list == nil {
		list = []payment.AccountBalance{}
	}
	web.WriteJSON(w, http.StatusOK, accountAnswer{id, list})
	return nil
}

func accountID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if hongbao.CheckID(id) != nil {
		return "", web.Refuse("account_invalid",
			"an account has 1 to 128 printable ASCII characters without spaces")
	}
	return id, nil
}
