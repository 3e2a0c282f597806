package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/payment"
)

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1_000
)

// statement is GET /v1/accounts/{id}/statement?currency=&limit=&after=. "next" goes into after: of the last page it
// is where later credits will be found.
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
		return refuse(http.StatusBadRequest, "currency_invalid",
			"a statement is of one currency: want ?currency=, three capital letters")
	}
	if query.Has("after") {
		if page.After, err = strconv.ParseInt(query.Get("after"), 10, 64); err != nil || page.After < 0 {
			return refuse(http.StatusBadRequest, "after_invalid", `want what the page before said in "next"`)
		}
	}
	list, err := b.reader.Statement(r.Context(), page)
	if err != nil {
		return unread(err)
	}
	type line struct {
		Number int64  `json:"number"`
		Client string `json:"client"`
		wireCredit
	}
	lines, next := make([]line, len(list)), page.After
	for i := range list {
		lines[i] = line{list[i].Number, list[i].Client, wire(&list[i].Credit)}
		next = list[i].Number
	}
	write(w, http.StatusOK, map[string]any{"account": page.Account, "currency": page.Currency, "credits": lines,
		"next": next})
	return nil
}

// credits is GET /v1/credits?limit=&after=: the client's own, in the order of their references. "next" is there when
// there may be more; it goes into after, which may be any reference, booked or not.
func (b *Balance) credits(w http.ResponseWriter, r *http.Request, client string) error {
	query, limit, err := readPage(r, "limit", "after")
	if err != nil {
		return err
	}
	page := payment.CreditPage{Client: client, After: query.Get("after"), Limit: limit}
	if query.Has("after") && checkReference(page.After) != nil {
		return refuse(http.StatusBadRequest, "after_invalid",
			`want what the page before said in "next", or another reference`)
	}
	list, err := b.reader.Credits(r.Context(), page)
	if err != nil {
		return unread(err)
	}
	credits := make([]wireCredit, len(list))
	for i := range list {
		credits[i] = wire(&list[i])
	}
	out := map[string]any{"credits": credits}
	if len(list) == page.Limit {
		out["next"] = list[len(list)-1].Reference
	}
	write(w, http.StatusOK, out)
	return nil
}

// readPage reads the parameters, each of which may come once, and the limit.
func readPage(r *http.Request, names ...string) (query url.Values, limit int, err error) {
	query, err = url.ParseQuery(r.URL.RawQuery)
	for name, values := range query {
		if !slices.Contains(names, name) || len(values) != 1 {
			err = errors.New("it is not known, or comes twice")
		}
	}
	if err != nil {
		return nil, 0, refuse(http.StatusBadRequest, "unknown_parameter", "there are "+strings.Join(names,
			", ")+", each once")
	}
	limit = defaultPage
	if query.Has("limit") {
		limit, err = strconv.Atoi(query.Get("limit"))
		if err != nil || limit < 1 || limit > maxPage {
			return nil, 0, refuse(http.StatusBadRequest, "limit_invalid", "want a limit of 1 to "+strconv.Itoa(maxPage))
		}
	}
	return query, limit, nil
}
