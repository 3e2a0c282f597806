package bank

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// The default and the maximum number of items on a page.
const (
	defaultPage = 100
	maxPage     = 1_000
)

// line is one credit in a statement.
type line struct {
	Number int64  `json:"number" minimum:"1" doc:"Position of this credit among the account's credits in this currency, from 1."`
	Client string `json:"client" doc:"Name of the client that booked the credit. The reference is unique within this client."`
	Credit
}

// statement is a page of an account's credits in one currency.
type statement struct {
	Account  string `json:"account" doc:"The account in the request's path."`
	Currency string `json:"currency" doc:"The currency in the request, ISO 4217."`
	Credits  []line `json:"credits" nullable:"false" doc:"The credits of this page, in the order in which they were booked."`
	Next     int64  `json:"next" doc:"To get the next page, send this value as the parameter 'after'. The last page has it, too: later credits follow it."`
}

// statement answers GET /v1/accounts/{id}/statement?currency=&limit=&after=. A client passes "next" as after to get
// the next page. The last page has it too, so that a client can read later credits.
func (b *Balance) statement(w http.ResponseWriter, r *http.Request, _ string) error {
	page := payment.StatementPage{}
	var err error
	if page.Account, err = accountID(r); err != nil {
		return err
	}
	query, limit, err := readPage(r, "currency", "limit", "after")
	if err != nil {
		return err
	}
	page.Limit, page.Currency = limit, query.Get("currency")
	if hongbao.CheckCurrency(page.Currency) != nil {
		return web.Refuse("currency_invalid",
			"a statement is of one currency: want ?currency=, three capital letters")
	}
	if query.Has("after") {
		if page.After, err = strconv.ParseInt(query.Get("after"), 10, 64); err != nil || page.After < 0 {
			return web.Refuse("after_invalid", `want the value of "next" on the previous page`)
		}
	}
	list, err := b.reader.Statement(r.Context(), page)
	if err != nil {
		return unread(err)
	}
	b.hasRead(r.Context(), access.Read{Action: access.ReadAccounts, Account: page.Account})
	answer := statement{Account: page.Account, Currency: page.Currency, Credits: make([]line, len(list)), Next: page.After}
	for i := range list {
		answer.Credits[i] = line{list[i].Number, list[i].Client, creditOf(&list[i].Credit)}
		answer.Next = list[i].Number
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}

type creditList struct {
	Credits []Credit `json:"credits" nullable:"false" doc:"The credits of this page, in the order of their references."`
	Next    string   `json:"next,omitempty" doc:"To get the next page, send this value as the parameter 'after'. Absent if no credits follow."`
}

// credits answers GET /v1/credits?limit=&after= with the client's own credits in the order of their references. If
// there may be more credits, the answer has "next", which the client passes as after. The parameter after may be any
// reference, whether booked or not.
func (b *Balance) credits(w http.ResponseWriter, r *http.Request, client string) error {
	query, limit, err := readPage(r, "limit", "after")
	if err != nil {
		return err
	}
	page := payment.CreditPage{Client: client, After: query.Get("after"), Limit: limit}
	if query.Has("after") && checkReference(page.After) != nil {
		return web.Refuse("after_invalid",
			`want the value of "next" on the previous page, or another reference`)
	}
	list, err := b.reader.Credits(r.Context(), page)
	if err != nil {
		return unread(err)
	}
	answer := creditList{Credits: make([]Credit, len(list))}
	for i := range list {
		answer.Credits[i] = creditOf(&list[i])
	}
	if len(list) == page.Limit {
		answer.Next = list[len(list)-1].Reference
	}
	web.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// readPage reads the page limit and checks that the query has only the given parameters, each at most once.
func readPage(r *http.Request, names ...string) (query url.Values, limit int, err error) {
	query, err = url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if !slices.Contains(names, name) || len(values) != 1 {
			err = errors.New("it is unknown or occurs twice")
		}
	}
	if err != nil {
		return nil, 0, web.Refuse("unknown_parameter", "there are "+strings.Join(names,
			", ")+", each once")
	}
	limit = defaultPage
	if query.Has("limit") {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > maxPage {
			return nil, 0, web.Refuse("limit_invalid", "want a limit of 1 to "+strconv.Itoa(maxPage))
		}
	}
	return query, limit, nil
}
