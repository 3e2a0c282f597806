package flatjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Object is a flat object. Its values are string, json.Number, bool, nil, or []Object for the one list that is allowed.
type Object map[string]any

// Reasons to refuse a text.
var (
	ErrEmpty     = errors.New("it is empty")
	ErrSyntax    = errors.New("it is not one JSON object")
	ErrDuplicate = errors.New("a name comes twice")
	ErrNested    = errors.New("it has an object or a list where none belongs")
	ErrTooMany   = errors.New("the list is too long")
)

// Parse reads one object, with nothing after it. A field named list may contain up to most flat objects; "" for none.
// Its errors say where, and contain nothing of the text.
func Parse(data []byte, list string, most int) (Object, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, ErrEmpty
	}
	if !json.Valid(data) || !utf8.Valid(data) {
		return nil, whereBad(data)
	}
	root := gjson.ParseBytes(data)
	if !root.IsObject() {
		return nil, fmt.Errorf("%w (byte 1)", ErrSyntax)
	}
	return object(root, list, most)
}

// whereBad returns an error with the position where a text stops being JSON.
func whereBad(data []byte) error {
	var raw json.RawMessage
	var s *json.SyntaxError
	if err := json.Unmarshal(data, &raw); errors.As(err, &s) {
		return fmt.Errorf("%w (byte %d)", ErrSyntax, s.Offset)
	}
	return fmt.Errorf("%w: it is not UTF-8", ErrSyntax)
}

// object reads one object of a valid text. It calls itself at most one level deep.
func object(r gjson.Result, list string, most int) (o Object, err error) {
	o = make(Object, 4)
	r.ForEach(func(key, value gjson.Result) bool {
		name := key.String()
		if _, twice := o[name]; twice {
			err = at(key, ErrDuplicate)
			return false
		}
		switch value.Type {
		case gjson.String:
			o[name] = value.Str
		case gjson.Number:
			o[name] = json.Number(value.Raw)
		case gjson.True, gjson.False:
			o[name] = value.Type == gjson.True
		case gjson.Null:
			o[name] = nil
		default:
			if list == "" || name != list || !value.IsArray() {
				err = at(value, ErrNested)
				return false
			}
			o[name], err = objects(value, most)
		}
		return err == nil
	})
	return o, err
}

func objects(r gjson.Result, most int) (all []Object, err error) {
	all = []Object{}
	r.ForEach(func(_, value gjson.Result) bool {
		switch {
		case !value.IsObject():
			err = at(value, ErrNested)
		case len(all) == most:
			err = at(value, ErrTooMany)
		default:
			var o Object
			o, err = object(value, "", 0)
			all = append(all, o)
		}
		return err == nil
	})
	return all, err
}

func at(r gjson.Result, err error) error { return fmt.Errorf("%w (byte %d)", err, r.Index+1) }

// Text returns a field that must be a string; false if it is missing or something else.
func (o Object) Text(name string) (string, bool) {
	s, ok := o[name].(string)
	return s, ok
}

// Errors of an amount.
var (
	ErrNotInteger = errors.New("it is not an integer in plain digits")
	ErrRange      = errors.New("it is out of range")
)

// Integer returns a field that must be a number in plain digits from 1 to most: no fraction, no exponent, no quotes.
func (o Object) Integer(name string, most int64) (int64, error) {
	n, ok := o[name].(json.Number)
	if !ok {
		return 0, ErrNotInteger
	}
	digits := string(n)
	if digits[0] == '-' {
		digits = digits[1:]
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, ErrNotInteger
		}
	}
	v, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || v < 1 || v > most {
		return 0, ErrRange
	}
	return v, nil
}
