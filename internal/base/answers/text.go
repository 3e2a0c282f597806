package answers

import "encoding/json"

// Text is a text that may be absent. JSON has null for an empty one, never "". A field of this type has the tag
// nullable:"true", for the OpenAPI document.
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

// OrNull returns nil, which JSON writes as null, if there is no value.
func OrNull[T any](there bool, value T) *T {
	if !there {
		return nil
	}
	return &value
}
