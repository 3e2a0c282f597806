// Package optional has the text that JSON writes as null if it is empty. Package answers, which writes JSON, needs a
// module that programs with our packages do not inherit; this package needs none.
package optional

import "encoding/json"

// Text is an optional string: JSON has null instead of "". The OpenAPI document needs the tag nullable:"true" on each
// field of this type.
type Text string

// MarshalJSON writes null for an empty text.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// UnmarshalJSON reads null as an empty text.
func (t *Text) UnmarshalJSON(text []byte) error {
	var s *string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	*t = ""
	if s != nil {
		*t = Text(*s)
	}
	return nil
}
