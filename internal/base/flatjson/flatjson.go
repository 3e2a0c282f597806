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

// Object is a flat object. Each value is a string, json.Number, bool or nil, or []Object for the one allowed list.
type Object map[string]any

// Reasons why Parse refuses a text.
var (
	ErrEmpty     = errors.New("it is empty")
	ErrSyntax    = errors.New("it is not one JSON object")
	ErrDuplicate = errors.New("a name comes twice")
	ErrNested    = errors.New("it has an object or a list where none belongs")
	ErrTooMany   = errors.New("the list is too long")
)

// Parse parses exactly one object. Its field list may contain up to most flat objects; if list is "", no field may
// contain any. The errors give a position but quote nothing of the text.
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

// whereBad returns an error with the position of the first syntax error.
func whereBad(data []byte) error {
	var raw json.RawMessage
	var s *json.SyntaxError
	if err := json.Unmarshal(data, &raw); errors.As(err, &s) {
		return fmt.Errorf("%w (byte %d)", ErrSyntax, s.Offset)
	}
	return fmt.Errorf("%w: it is not UTF-8", ErrSyntax)
}

// object converts a parsed object. It recurses at most once, for the objects of the allowed list.
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

// Text returns the field as a string; ok is false if it is missing or not a string.
func (o Object) Text(name string) (string, bool) {
	s, ok := o[name].(string)
	return s, ok
}

// Errors of Integer.
var (
	ErrNotInteger = errors.New("it is not an integer in plain digits")
	ErrRange      = errors.New("it is out of range")
)

// Integer returns the field as an integer from 1 to most. It must be a number in plain digits, without a fraction, an
// exponent or quotes.
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
