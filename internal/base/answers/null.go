package answers

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

// OrNull returns a pointer to value if there is true. Otherwise it returns nil, which JSON writes as null.
func OrNull[T any](there bool, value T) *T {
	if !there {
		return nil
	}
	return &value
}
