package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/flatjson"
	"github.com/hongbao-project/hongbao/internal/web"
)

// maxText bounds a text field, in bytes.
const maxText = 500

// form reads the fields of a body. It remembers the first that is wrong, so that the caller asks once, at the end.
type form struct {
	o     flatjson.Object
	known []string
	err   error
}

func (f *form) fail(code, format string, args ...any) {
	if f.err == nil {
		f.err = web.Refuse(code, fmt.Sprintf(format, args...))
	}
}

// has tells whether a field is there; from now on it is known.
func (f *form) has(name string) bool {
	f.known = append(f.known, name)
	_, there := f.o[name]
	return there
}

// text gives an optional text.
func (f *form) text(name string) string {
	if !f.has(name) {
		return ""
	}
	s, ok := f.o.Text(name)
	if !ok || s == "" || len(s) > maxText || !utf8.ValidString(s) || strings.ContainsFunc(s, isControl) {
		f.fail("invalid_value", "%s is a text of 1 to %d bytes without control characters", name, maxText)
	}
	return s
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// why gives the reason, which is required.
func (f *form) why() string {
	why := f.text("why")
	if strings.TrimSpace(why) == "" {
		f.fail("invalid_value", "why is required: what you write is kept with the decision")
	}
	return why
}

// flag gives an optional flag.
func (f *form) flag(name string) bool {
	if !f.has(name) {
		return false
	}
	v, ok := f.o[name].(bool)
	if !ok {
		f.fail("invalid_value", "%s is true or false", name)
	}
	return v
}

// one gives an optional text that is one of some.
func (f *form) one(name string, of ...string) string {
	s := f.text(name)
	if s != "" && !slices.Contains(of, s) {
		f.fail("invalid_value", "%s is one of %s", name, strings.Join(of, ", "))
	}
	return s
}

// campaign gives an optional id of a campaign.
func (f *form) campaign(name string) string {
	s := f.text(name)
	if s != "" && hongbao.CheckCampaignID(s) != nil {
		f.fail("invalid_value", "%s is the id of a campaign", name)
	}
	return s
}

// user gives an optional id of a user.
func (f *form) user(name string) string {
	s := f.text(name)
	if s != "" && hongbao.CheckID(s) != nil {
		f.fail("invalid_value", "%s is the id of a user", name)
	}
	return s
}

// number gives an optional integer from 1 to most; 0 if it is absent.
func (f *form) number(name string, most int64) int64 {
	if !f.has(name) {
		return 0
	}
	n, err := f.o.Integer(name, most)
	if err != nil {
		f.fail("invalid_value", "%s is an integer from 1 to %d in plain digits", name, most)
	}
	return n
}

// amount gives a required amount of money in minor units; 0 is one.
func (f *form) amount(name string) hongbao.Amount {
	if f.has(name) && f.o[name] == json.Number("0") {
		return 0
	}
	n, err := f.o.Integer(name, int64(hongbao.MaxAmount))
	switch {
	case errors.Is(err, flatjson.ErrRange):
		f.fail("amount_out_of_range", "%s is from 0 to %d", name, hongbao.MaxAmount)
	case err != nil:
		f.fail("amount_not_integer_minor_units", "%s is required, in minor units, as an integer in plain digits", name)
	}
	return hongbao.Amount(n)
}

// time gives an optional time; zero if it is absent.
func (f *form) time(name string) time.Time {
	text := f.text(name)
	if text == "" {
		return time.Time{}
	}
	return f.parseTime(name, text)
}

func (f *form) parseTime(name, text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		f.fail("invalid_value", "%s is a time of the years 2000 to 2100, as 2026-02-17T20:00:00+08:00", name)
	}
	return t.UTC()
}

// done gives the first error. A field that nobody asked for is one.
func (f *form) done() error {
	for name := range f.o {
		if !slices.Contains(f.known, name) {
			slices.Sort(f.known)
			f.fail("unknown_field", "the body may have these fields: %s", strings.Join(f.known, ", "))
		}
	}
	return f.err
}

// query reads the parameters of a path's query.
type query struct {
	values url.Values
	known  []string
	err    error
}

func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = web.Refuse("invalid_parameter", fmt.Sprintf(format, args...))
	}
}

// text gives an optional parameter.
func (q *query) text(name string) string {
	q.known = append(q.known, name)
	list := q.values[name]
	if len(list) == 0 {
		return ""
	}
	if s := list[0]; len(list) > 1 || s == "" || len(s) > maxText || !utf8.ValidString(s) ||
		strings.ContainsFunc(s, isControl) {
		q.fail("%s stands once, with 1 to %d bytes without control characters", name, maxText)
	}
	return list[0]
}

// number gives an optional integer within bounds.
func (q *query) number(name string, least, most, absent int64) int64 {
	s := q.text(name)
	if s == "" {
		return absent
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < least || n > most || s != strconv.FormatInt(n, 10) {
		q.fail("%s is an integer from %d to %d", name, least, most)
	}
	return n
}

func (q *query) limit() int { return int(q.number("limit", 1, maxPage, defaultPage)) }

func (q *query) flag(name string) bool {
	switch q.text(name) {
	case "true":
		return true
	case "", "false":
		return false
	}
	q.fail("%s is true or false", name)
	return false
}

// campaign gives an optional id of a campaign.
func (q *query) campaign(name string) string {
	s := q.text(name)
	if s != "" && hongbao.CheckCampaignID(s) != nil {
		q.fail("%s is 1 to 64 of a-z, 0-9, - and _, beginning with a letter", name)
	}
	return s
}

// user gives an optional id of a user.
func (q *query) user(name string) string {
	s := q.text(name)
	if s != "" && hongbao.CheckID(s) != nil {
		q.fail("%s is 1 to 128 printable ASCII characters without spaces", name)
	}
	return s
}

// done gives the first error. A parameter that nobody asked for is one: a mistyped filter would show everything.
func (q *query) done() error {
	for name := range q.values {
		if !slices.Contains(q.known, name) {
			slices.Sort(q.known)
			q.fail("the query may have these parameters: %s", strings.Join(q.known, ", "))
		}
	}
	return q.err
}

// Pages of lists.
const (
	defaultPage = 50
	maxPage     = 500
)
