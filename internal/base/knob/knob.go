// Package knob reads the struct tags that define knobs. A knob is a field of a Config that operators can set, for
// example:
//
//	// Grabs of one campaign that may wait for a call to one shard.
//	MaxWaiting int `knob:"producer.max_waiting" default:"100000" want:"1 to 1_000_000 grabs"`
//
// The tags mean:
//
//   - knob: the name in the YAML file, from which the flag and the environment variable follow. The suffix ",common"
//     marks a knob that most operators set; all others are advanced. A field without this tag can be set only by
//     programs. On a struct field, the tag is the prefix of the names in the struct.
//   - default: the default, as in YAML. Commas separate the items of a list.
//   - want: for a number or a duration, the lowest and the highest value and the unit. For a text or the items of a
//     list, all choices.
//   - form: the form of a text, or of the items of a list: a key of the map forms.
//   - secret: "always", or "password" for a text that may contain a password.
//
// The first paragraph of the field's comment becomes the knob's description in docs/configuration.md.
package knob

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Knob describes one field, as its tags define it.
type Knob struct {
	// Name is empty for a field that only programs can set.
	Name, Default, Unit, Form, Secret string
	Common                            bool
	// Low and High are the limits of a number, or of a duration in nanoseconds.
	Low, High int64
	Choices   []string
	// Field is the field's name in the struct type Owner.
	Field string
	Owner reflect.Type

	path []int
	typ  reflect.Type
}

// Of returns the knobs of the Config type in the order of its fields. It panics if a tag is invalid.
func Of(config reflect.Type) []Knob { return fields(config, "", nil) }

func fields(t reflect.Type, prefix string, path []int) (all []Knob) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("knob"), ",")
		at := append(path[:len(path):len(path)], i)
		_, named := f.Tag.Lookup("knob")
		_, bounded := f.Tag.Lookup("want")
		_, formed := f.Tag.Lookup("form")
		switch {
		case !f.IsExported():
		case f.Type.Kind() == reflect.Struct:
			all = append(all, fields(f.Type, prefix+name, at)...)
		case named || bounded || formed:
			k := Knob{Name: prefix + name, Default: f.Tag.Get("default"), Form: f.Tag.Get("form"),
				Secret: f.Tag.Get("secret"), Common: strings.HasSuffix(f.Tag.Get("knob"), ",common"), Field: f.Name, Owner: t,
				path: at, typ: f.Type}
			k.want(f.Tag.Get("want"))
			all = append(all, k)
		}
	}
	return all
}

// want reads the tag of that name.
func (k *Knob) want(tag string) {
	kind := k.Kind()
	if kind != "integer" && kind != "duration" {
		if tag != "" {
			k.Choices = strings.Split(strings.ReplaceAll(tag, ", ", ","), ",")
		}
		return
	}
	low, rest, _ := strings.Cut(tag, " to ")
	high, unit, _ := strings.Cut(rest, " ")
	k.Low, k.High, k.Unit = k.bound(low), k.bound(high), unit
}

func (k *Knob) bound(text string) int64 {
	n, err := strconv.ParseInt(text, 0, 64)
	if k.Kind() == "duration" {
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	}
	if err != nil {
		panic(fmt.Sprintf("knob: field %s of %s wants a bound of %q", k.Field, k.Owner, text))
	}
	return n
}

// Section returns the part of the name before the first dot.
func (k *Knob) Section() string {
	s, _, _ := strings.Cut(k.Name, ".")
	return s
}

// EnvPrefix is the prefix of the knobs' environment variables.
const EnvPrefix = "HONGBAO_"

// Env returns the name of the knob's environment variable.
func (k *Knob) Env() string { return EnvPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_")) }

// Kind returns the kind of the value, as the reference and the help name it.
func (k *Knob) Kind() string {
	switch {
	case k.Secret != "":
		return "secret"
	case k.typ == reflect.TypeFor[time.Duration]():
		return "duration"
	case k.typ.Kind() == reflect.Slice:
		return "list"
	case k.typ.Kind() == reflect.Bool:
		return "bool"
	case k.typ.Kind() == reflect.String && k.Choices != nil:
		return "choice"
	case k.typ.Kind() == reflect.String:
		return "text"
	}
	return "integer"
}

// Defaults returns a Config with the default of every knob that has one.
func Defaults[T any]() (cfg T) {
	for _, k := range Of(reflect.TypeFor[T]()) {
		if k.Default == "" {
			continue
		}
		if err := k.Set(&cfg, k.Default); err != nil {
			panic(fmt.Sprintf("knob: the default of %s of %s: %v", k.Field, k.Owner, err))
		}
	}
	return cfg
}

// Check validates the Config that cfg points to against the limits, choices and forms of its knobs. It returns one
// error for each problem.
func Check(cfg any) (errs []error) {
	for _, k := range Of(reflect.TypeOf(cfg).Elem()) {
		v := k.value(cfg)
		switch k.Kind() {
		case "integer", "duration":
			if n := v.Int(); n < k.Low || n > k.High {
				errs = append(errs, fmt.Errorf("%s is %s: want %s", k.Field, k.number(n), k.Bounds()))
			}
		case "text", "choice":
			if err := k.item(v.String()); err != nil {
				errs = append(errs, fmt.Errorf("%s %w", k.Field, err))
			}
		case "list":
			for i := range v.Len() {
				if err := k.item(v.Index(i).String()); err != nil {
					errs = append(errs, fmt.Errorf("%s[%d] %w", k.Field, i, err))
				}
			}
		}
	}
	return errs
}
