package httpapi

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Bounds of a statement's page.
const (
	defaultPage = 100
	maxPage     = 1_000
)

// statement is GET /v1/accounts/{id}/statement?limit=&after=. "next" is there when there may be more; it goes into after.
func (b *Balance) statement(w http.ResponseWriter, r *http.Request) error {
	id, err := accountID(r)
	if err != nil {
		return err
	}
	page, err := readPage(r)
	if err != nil {
		return err
	}
	page.Account = id
	list, err := b.reader.Statement(r.Context(), page)
	if err != nil {
		return unread(err)
	}
	credits := make([]wireCredit, len(list))
	for i := range list {
		credits[i] = wire(&list[i])
	}
	out := map[string]any{"account": id, "credits": credits}
	if len(list) == page.Limit {
		out["next"] = cursor(&list[len(list)-1])
	}
	write(w, http.StatusOK, out)
	return nil
}

func readPage(r *http.Request) (hongbao.StatementPage, error) {
	page := hongbao.StatementPage{Limit: defaultPage}
	query := r.URL.Query()
	for name, values := range query {
		if name != "limit" && name != "after" || len(values) != 1 {
			return page, refuse(http.StatusBadRequest, "unknown_parameter", "there are limit and after, each once")
		}
	}
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 1 || n > maxPage {
			return page, refuse(http.StatusBadRequest, "limit_invalid", "want a limit of 1 to "+strconv.Itoa(maxPage))
		}
		page.Limit = n
	}
	if query.Has("after") {
		var ok bool
		if page.After, ok = readCursor(query.Get("after")); !ok {
			return page, refuse(http.StatusBadRequest, "after_invalid", `want what the page before said in "next"`)
		}
	}
	return page, nil
}

// cursor names a credit's place in the statement.
func cursor(c *hongbao.Credit) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(c.Created.UnixMilli(), 10) + " " + c.Reference))
}

func readCursor(text string) (hongbao.Credit, bool) {
	data, err := base64.RawURLEncoding.DecodeString(text)
	at, reference, ok := strings.Cut(string(data), " ")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	if err != nil || err2 != nil || !ok || ms < 0 || hongbao.CheckID(reference) != nil {
		return hongbao.Credit{}, false
	}
	return hongbao.Credit{Created: time.UnixMilli(ms).UTC(), Reference: reference}, true
}
