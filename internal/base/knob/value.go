package knob

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (k *Knob) value(cfg any) reflect.Value { return reflect.ValueOf(cfg).Elem().FieldByIndex(k.path) }

// Set parses text as the knob's value and stores it in the Config that cfg points to. Its error never quotes a secret.
func (k *Knob) Set(cfg any, text string) error {
	field := k.value(cfg)
	switch k.Kind() {
	case "secret":
		field.SetString(text)
		return nil
	case "list":
		items, err := k.list(text)
		field.Set(reflect.ValueOf(items))
		return err
	case "bool":
		field.SetBool(text == "true")
		if text != "true" && text != "false" {
			return fmt.Errorf("%.40q: write true or false", text)
		}
		return nil
	case "duration":
		d, err := k.duration(text)
		field.SetInt(int64(d))
		return err
	case "integer":
		n, err := k.integer(text)
		field.SetInt(n)
		return err
	}
	field.SetString(text)
	return k.item(text)
}

// item checks a text, or one item of a list.
func (k *Knob) item(text string) error {
	if k.Choices != nil && !slices.Contains(k.Choices, text) {
		return fmt.Errorf("%.40q does not exist: want %s%s", text, strings.Join(k.Choices, ", "), Hint(text, k.Choices))
	}
	if strings.ContainsAny(text, "\x00\r\n") {
		return fmt.Errorf("%.40q: a line break or a zero byte is not allowed", withoutUser(text))
	}
	if k.Form == "" {
		return nil
	}
	f, ok := forms[k.Form]
	if !ok {
		panic(fmt.Sprintf("knob: field %s of %s has the form %q", k.Field, k.Owner, k.Form))
	}
	if f.is(text) {
		return nil
	}
	if k.Form == "url" { // a URL may contain a password
		return errors.New("want " + f.want)
	}
	return fmt.Errorf("%.80q: want %s", withoutUser(text), f.want)
}

// withoutUser returns a text for an error, without what stands before an @: it may be a password.
func withoutUser(text string) string {
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "***" + text[at:]
	}
	return text
}

func (k *Knob) list(text string) (items []string, err error) {
	if text == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return items, fmt.Errorf("%.80q: an item is empty", withoutUser(text))
		}
		if slices.Contains(items, item) {
			return items, fmt.Errorf("%.40q appears twice", withoutUser(item))
		}
		if err := k.item(item); err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (k *Knob) duration(text string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, fmt.Errorf("%.40q has no unit: write %.40ss, %.40sms, ...", text, text, text)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a duration: write 500ms, 30s, 10m or 24h", text)
	}
	if int64(d) < k.Low || int64(d) > k.High {
		return d, fmt.Errorf("%s: want %s", text, k.Bounds())
	}
	return d, nil
}

func (k *Knob) integer(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%.40q is not an integer: write plain digits", text)
	}
	if err != nil || n < k.Low || n > k.High {
		return n, fmt.Errorf("%.40s: want %s", text, k.Bounds())
	}
	return n, nil
}

// Bounds returns the limits in the form "1 to 16".
func (k *Knob) Bounds() string { return k.number(k.Low) + " to " + k.number(k.High) }

func (k *Knob) number(n int64) string {
	if k.Kind() == "duration" {
		return Span(time.Duration(n))
	}
	return strconv.FormatInt(n, 10)
}

// Text returns the knob's value as text that Set accepts, or *** instead of a secret.
func (k *Knob) Text(cfg any) string {
	v := k.value(cfg)
	switch k.Kind() {
	case "list":
		return strings.Join(v.Interface().([]string), ",") //nolint:forcetypeassert // a list is a []string
	case "bool":
		return strconv.FormatBool(v.Bool())
	case "integer", "duration":
		return k.number(v.Int())
	case "secret":
		if v.String() != "" {
			return "***"
		}
	}
	return v.String()
}

// Span formats a duration without zero units: 10m, not 10m0s.
func Span(d time.Duration) string {
	s := d.String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}

// forms maps the values of the tag form to their checks.
var forms = map[string]struct {
	is   func(string) bool
	want string
}{
	"name":    {IsName, "1 to 64 of a-z A-Z 0-9 . _ -"},
	"group":   {isGroup, "1 to 249 of a-z A-Z 0-9 . _ -"},
	"topic":   {IsTopic, `1 to 249 of a-z A-Z 0-9 . _ -, not "." or ".."`},
	"address": {isAddress, "host:port, as 10.0.0.7:6379 or [::1]:6379"},
	"listen":  {isListen, "host:port, as 127.0.0.1:8081 or [::1]:8081"},
	"sink":    {IsSink, "1 to 32 of a-z 0-9, a letter first"},
	"ops":     {func(s string) bool { return s == "" || isListen(s) }, "host:port, as 127.0.0.1:8083, or nothing for none"},
	"url":     {isURL, "http(s)://host[:port][/path], without user and query"},
}

// IsName reports whether a text is a valid name of a process or a deployment.
func IsName(s string) bool { return isName(s) }

var isName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`).MatchString

// IsSink reports whether a text can name a sink. It has no underscore, so that it can be a part of a variable's name.
func IsSink(s string) bool { return isSink(s) }

var isSink = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`).MatchString

var isGroup = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`).MatchString

// IsTopic reports whether Kafka accepts a text as the name of a topic.
func IsTopic(s string) bool { return isGroup(s) && s != "." && s != ".." }

// isListen also accepts port 0 (any free port) and an empty host (all interfaces).
func isListen(s string) bool {
	_, port, err := net.SplitHostPort(s)
	_, errPort := strconv.ParseUint(port, 10, 16)
	return err == nil && errPort == nil
}

// IsLoopback reports whether a host is this machine.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, errPort := strconv.ParseUint(port, 10, 16)
	return err == nil && errPort == nil && n != 0 && host != "" && !strings.ContainsAny(s, "/@ ")
}

// isURL also accepts an empty text, which means no URL.
func isURL(s string) bool {
	u, err := url.Parse(s)
	return s == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
}

// Hint returns "; did you mean X?" with the candidate that is most similar to word, or "" if none is similar.
func Hint(word string, candidates []string) string {
	best, at := "", max(2, len(word)/4)+1
	for _, c := range candidates {
		if d := distance(word, c, at); d < at {
			best, at = c, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance returns the Levenshtein distance, but at most most.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], most)
}
