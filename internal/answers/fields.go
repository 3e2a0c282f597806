package answers

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
)

var (
	timeType      = reflect.TypeFor[time.Time]()
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// timed is by type whether its values may have times, layouts the fields of structs.
var timed, layouts sync.Map

// hasTime reports whether a value of the type may have a time. A type that writes itself has none.
func hasTime(t reflect.Type) bool {
	if known, ok := timed.Load(t); ok {
		return known.(bool)
	}
	has := mayHave(t, map[reflect.Type]bool{})
	timed.Store(t, has)
	return has
}

func mayHave(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch {
	case t == timeType || t.Kind() == reflect.Pointer && t.Elem() == timeType:
		return true
	case seen[t]:
		return false
	case t.Kind() == reflect.Interface:
		return true // what it is of is asked when it is written
	case t.Implements(marshaler), t.Implements(textMarshaler):
		return embedsTime(t)
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return mayHave(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if mayHave(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// embedsTime panics: a struct with an embedded time is written as that time alone, which no answer means.
func embedsTime(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			if f := t.Field(i); f.Anonymous && f.Type == timeType {
				panic("answers: " + t.String() + " embeds a time.Time; give it a name")
			}
		}
	}
	return false
}

// field is one that encoding/json shows.
type field struct {
	name                string
	index               []int
	omitEmpty, omitZero bool
}

// fieldsOf lists them in their order. Of two with one name the one that is less deep counts.
func fieldsOf(t reflect.Type) []field {
	if known, ok := layouts.Load(t); ok {
		return known.([]field)
	}
	var all []field
	depths := map[string]int{}
	for _, f := range gather(t, nil) {
		if depth, ok := depths[f.name]; !ok || len(f.index) < depth {
			depths[f.name] = len(f.index)
		}
		all = append(all, f)
	}
	var shownOnes []field
	for _, f := range all {
		if len(f.index) == depths[f.name] {
			shownOnes = append(shownOnes, f)
		}
	}
	layouts.Store(t, shownOnes)
	return shownOnes
}

func gather(t reflect.Type, at []int) (all []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		index := append(at[:len(at):len(at)], i)
		if embedded := structOf(f.Type); f.Anonymous && name == "" && embedded != nil {
			all = append(all, gather(embedded, index)...)
			continue
		}
		if name == "-" && options == "" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		one := field{name: name, index: index}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitempty":
				one.omitEmpty = true
			case "omitzero":
				one.omitZero = true
			case "string":
				panic("answers: " + t.String() + "." + f.Name + " has the option string, which answers do not know")
			}
		}
		all = append(all, one)
	}
	return all
}

// structOf is the struct that the type is or points to; nil for another type, and for one that writes itself.
func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.Implements(marshaler) || t.Implements(textMarshaler) {
		return nil
	}
	return t
}
