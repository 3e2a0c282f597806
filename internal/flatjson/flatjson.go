package flatjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Object is a flat object. Its values are string, json.Number, bool, nil, or []Object for the one list that is allowed.
type Object map[string]any

// The reasons for which a text is refused.
var (
	ErrEmpty     = errors.New("it is empty")
	ErrSyntax    = errors.New("it is not one JSON object")
	ErrDuplicate = errors.New("a name comes twice")
	ErrNested    = errors.New("it has an object or a list where none belongs")
	ErrTooMany   = errors.New("the list is too long")
)

// Parse reads one object, and nothing behind it. A field named list may hold up to most flat objects; "" for none. Its
// errors tell where, and hold nothing of the text.
func Parse(data []byte, list string, most int) (Object, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, ErrEmpty
	}
	if !json.Valid(data) {
		return nil, whereBad(data)
	}
	p := parser{json.NewDecoder(bytes.NewReader(data))}
	p.UseNumber()
	if t, err := p.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%w (byte 1)", ErrSyntax)
	}
	return p.object(list, most)
}

// whereBad tells where a text that is not JSON goes wrong.
func whereBad(data []byte) error {
	var raw json.RawMessage
	var s *json.SyntaxError
	if err := json.Unmarshal(data, &raw); errors.As(err, &s) {
		return fmt.Errorf("%w (byte %d)", ErrSyntax, s.Offset)
	}
	return ErrSyntax
}

type parser struct{ *json.Decoder }

// object reads on behind the opening brace. It never calls itself more than once deep.
func (p parser) object(list string, most int) (Object, error) {
	o := Object{}
	for {
		t, err := p.Token()
		if err != nil {
			return nil, p.at(ErrSyntax)
		}
		name, ok := t.(string)
		if !ok { // the closing brace
			return o, nil
		}
		if _, twice := o[name]; twice {
			return nil, p.at(ErrDuplicate)
		}
		if t, err = p.Token(); err != nil {
			return nil, p.at(ErrSyntax)
		}
		o[name] = t
		if d, ok := t.(json.Delim); ok {
			if list == "" || name != list || d != '[' {
				return nil, p.at(ErrNested)
			}
			if o[name], err = p.list(most); err != nil {
				return nil, err
			}
		}
	}
}

func (p parser) list(most int) ([]Object, error) {
	all := []Object{}
	for {
		t, err := p.Token()
		switch {
		case err != nil:
			return nil, p.at(ErrSyntax)
		case t == json.Delim(']'):
			return all, nil
		case t != json.Delim('{'):
			return nil, p.at(ErrNested)
		case len(all) == most:
			return nil, p.at(ErrTooMany)
		}
		o, err := p.object("", 0)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
}

func (p parser) at(err error) error { return fmt.Errorf("%w (byte %d)", err, p.InputOffset()) }

// Text gives a field that must be a string; false if it is missing or something else.
func (o Object) Text(name string) (string, bool) {
	s, ok := o[name].(string)
	return s, ok
}

// What can be wrong with an amount.
var (
	ErrNotInteger = errors.New("it is not an integer in plain digits")
	ErrRange      = errors.New("it is out of range")
)

// Integer gives a field that must be a number in plain digits from 1 to most: no fraction, no exponent, no quotes.
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
