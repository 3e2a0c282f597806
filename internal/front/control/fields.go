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

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// maxText is the maximum length of a text field, in characters.
const maxText = stream.MaxWhy

// fields reads the values of a request by name. They are fields of the body, or query parameters, which are always
// texts. It remembers the first error, so that callers need to check only once, in done.
type fields struct {
	o     flatjson.Object
	query bool
	known []string
	err   error
}

// readQuery parses a query. It rejects a parameter that occurs twice.
func readQuery(raw string) (*fields, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, web.Refuse("invalid_parameter", "the query can't be read")
	}
	f := &fields{o: make(flatjson.Object, len(values)), query: true}
	for name, list := range values {
		if len(list) > 1 {
			return nil, web.Refuse("invalid_parameter", "a parameter of the query occurs more than once")
		}
		f.o[name] = list[0]
	}
	return f, nil
}

// fail records that the value of a field is invalid.
func (f *fields) fail(format string, args ...any) {
	code := "invalid_value"
	if f.query {
		code = "invalid_parameter"
	}
	f.failWith(code, format, args...)
}

func (f *fields) failWith(code, format string, args ...any) {
	if f.err == nil {
		f.err = web.Refuse(code, fmt.Sprintf(format, args...))
	}
}

// has reports whether a field is present, and marks its name as known.
func (f *fields) has(name string) bool {
	f.known = append(f.known, name)
	_, there := f.o[name]
	return there
}

// text returns an optional text of at most maxText characters.
func (f *fields) text(name string) string { return f.upTo(name, maxText) }

// long returns an optional text that may be longer, such as a list.
func (f *fields) long(name string) string { return f.upTo(name, 100*maxText) }

func (f *fields) upTo(name string, most int) string {
	if !f.has(name) {
		return ""
	}
	s, ok := f.o.Text(name)
	if !ok || s == "" || stream.CheckText(s, most) != nil {
		f.fail("%s is a text of 1 to %d characters, without control characters", name, most)
	}
	return s
}

// flag returns an optional boolean.
func (f *fields) flag(name string) bool {
	if !f.has(name) {
		return false
	}
	v, ok := f.o[name].(bool)
	if text, _ := f.o.Text(name); f.query {
		v, ok = text == "true", text == "true" || text == "false"
	}
	if !ok {
		f.fail("%s is true or false", name)
	}
	return v
}

// campaign returns an optional campaign id.
func (f *fields) campaign(name string) string {
	s := f.text(name)
	if s != "" && hongbao.CheckCampaignID(s) != nil {
		f.fail("%s is 1 to 64 of a-z, 0-9, - and _, beginning with a letter", name)
	}
	return s
}

// number returns an optional integer within bounds, or 0 if it is absent.
func (f *fields) number(name string, least, most int64) int64 {
	if !f.has(name) {
		return 0
	}
	digits, _ := f.o[name].(json.Number)
	if text, _ := f.o.Text(name); f.query {
		digits = json.Number(text)
	}
	n, err := digits.Int64()
	if err != nil || n < least || n > most || string(digits) != strconv.FormatInt(n, 10) {
		f.fail("%s is an integer from %d to %d in plain digits", name, least, most)
	}
	return n
}

// limit returns the maximum number of items on a page.
func (f *fields) limit() int {
	if n := f.number("limit", 1, maxPage); n != 0 {
		return int(n)
	}
	return defaultPage
}

// amount returns a required amount in minor units, which may be 0.
func (f *fields) amount(name string) hongbao.Amount {
	if f.has(name) && f.o[name] == json.Number("0") {
		return 0
	}
	n, err := f.o.Integer(name, int64(hongbao.MaxAmount))
	switch {
	case errors.Is(err, flatjson.ErrRange):
		f.failWith("amount_out_of_range", "%s is from 0 to %d", name, hongbao.MaxAmount)
	case err != nil:
		f.failWith("amount_not_integer_minor_units", "%s is required, in minor units, as an integer in plain digits", name)
	}
	return hongbao.Amount(n)
}

// time returns an optional time, or the zero time if it is absent.
func (f *fields) time(name string) time.Time {
	text := f.text(name)
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		f.fail("%s is a time of the years 2000 to 2100, as 2026-02-17T20:00:00Z", name)
	}
	return t.UTC()
}

// done returns the first error. A field with an unknown name is an error, because otherwise a mistyped filter would
// select everything.
func (f *fields) done() error {
	for name := range f.o {
		if slices.Contains(f.known, name) {
			continue
		}
		slices.Sort(f.known)
		known := strings.Join(f.known, ", ")
		if f.query {
			f.fail("the query may have these parameters: %s", known)
		} else {
			f.failWith("unknown_field", "the body may have these fields: %s", known)
		}
	}
	return f.err
}

// Pages of lists.
const (
	defaultPage = 50
	maxPage     = 500
)
