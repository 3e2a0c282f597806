// Package answers writes the JSON of answers and of --json. It does what encoding/json does, but each time.Time has
// fixed milliseconds in UTC: 2026-11-24T15:00:00.000Z. A type needs no type of its own for that, so no new field can
// break the rule.
//
// It is not for what is stored, or for records of the topic: their bytes stay as they are. With encoding/json/v2 one
// json.WithMarshalers replaces it.
package answers

import (
	"encoding/json"
	"io"
	"reflect"
	"time"
)

// TimeLayout is that of each time in an answer, which must be in UTC.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// AppendTime appends a time as a JSON string.
func AppendTime(to []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(to, '"'), TimeLayout), '"')
}

// Marshal writes v.
func Marshal(v any) ([]byte, error) { return json.Marshal(shown(reflect.ValueOf(v))) }

// Write writes v and a line feed, each line of it behind the indent; none for one line.
func Write(to io.Writer, v any, indent string) error {
	e := json.NewEncoder(to)
	e.SetIndent("", indent)
	return e.Encode(shown(reflect.ValueOf(v)))
}

// stamp is a time of an answer.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (s stamp) MarshalJSON() ([]byte, error) { return AppendTime(nil, time.Time(s)), nil }

// object is a struct that has times.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, m := range o {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, name...), ':'), value...)
	}
	return append(text, '}'), nil
}

// shown gives what encoding/json writes in place of v: v itself where it has no time.
func shown(v reflect.Value) any {
	switch {
	case !v.IsValid():
		return nil
	case !hasTime(v.Type()):
		return v.Interface()
	case v.Type() == timeType:
		return stamp(v.Interface().(time.Time))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return shown(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil
		}
		list := make([]any, v.Len())
		for i := range list {
			list[i] = shown(v.Index(i))
		}
		return list
	case reflect.Map:
		if v.IsNil() {
			return nil
		}
		all := reflect.MakeMapWithSize(reflect.MapOf(v.Type().Key(), reflect.TypeFor[any]()), v.Len())
		for k, one := range v.Seq2() {
			value := reflect.New(reflect.TypeFor[any]()).Elem()
			if x := shown(one); x != nil {
				value.Set(reflect.ValueOf(x))
			}
			all.SetMapIndex(k, value)
		}
		return all.Interface()
	}
	return members(v)
}

// members gives a struct's fields that encoding/json shows.
func members(v reflect.Value) object {
	fields := fieldsOf(v.Type())
	all := make(object, 0, len(fields))
	for _, f := range fields {
		value, err := v.FieldByIndexErr(f.index)
		if err != nil { // it is in an embedded struct that is nil
			continue
		}
		if f.omitEmpty && empty(value) || f.omitZero && zero(value) {
			continue
		}
		all = append(all, member{f.name, shown(value)})
	}
	return all
}

// empty reports what omitempty leaves out.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		return false
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}

// zero reports what omitzero leaves out.
func zero(v reflect.Value) bool {
	if is, ok := v.Interface().(interface{ IsZero() bool }); ok && (v.Kind() != reflect.Pointer || !v.IsNil()) {
		return is.IsZero()
	}
	return v.IsZero()
}
