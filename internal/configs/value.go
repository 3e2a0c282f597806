package configs

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// set reads the text as the knob's value and puts it into c; the error says what is wrong and never quotes a secret.
func (k *knob) set(c *Config, text string) error {
	switch field := k.field(c).(type) {
	case *string:
		*field = text
		return k.item(text)
	case *Secret:
		*field = Secret(text)
		return nil
	case *[]string:
		return k.list(field, text)
	case *bool:
		*field = text == "true"
		if text != "true" && text != "false" {
			return fmt.Errorf("%.40q: write true or false", text)
		}
		return nil
	case *time.Duration:
		return k.duration(field, text)
	case *int:
		n, err := k.integer(text)
		*field = int(n)
		return err
	case *int64:
		n, err := k.integer(text)
		*field = n
		return err
	default:
		panic(fmt.Sprintf("configs: knob %s has a field of type %T", k.name, field))
	}
}

// item checks a text, or one item of a list.
func (k *knob) item(text string) error {
	if k.choices != nil && !slices.Contains(k.choices, text) {
		return fmt.Errorf("%.40q does not exist: want %s%s", text, strings.Join(k.choices, ", "), hint(text, k.choices))
	}
	if strings.ContainsAny(text, "\x00\r\n") {
		return fmt.Errorf("%.40q: a line break or a zero byte can't be right", text)
	}
	if k.check != nil {
		if wrong := k.check(text); wrong != "" {
			return fmt.Errorf("%.80q: %s", text, wrong)
		}
	}
	return nil
}

func (k *knob) list(field *[]string, text string) error {
	*field = nil
	if text == "" {
		return nil
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			return fmt.Errorf("%.80q: an item is empty", text)
		}
		if slices.Contains(*field, item) {
			return fmt.Errorf("%.40q stands twice", item)
		}
		if err := k.item(item); err != nil {
			return err
		}
		*field = append(*field, item)
	}
	return nil
}

func (k *knob) duration(field *time.Duration, text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Errorf("%.40q has no unit: write %.40ss, %.40sms, ...", text, text, text)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%.40q is no duration: write 500ms, 30s, 10m or 24h", text)
	}
	*field = d
	if int64(d) < k.low || int64(d) > k.high {
		return fmt.Errorf("%s: want %s to %s", text, span(k.low), span(k.high))
	}
	return nil
}

func (k *knob) integer(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%.40q is no integer: write plain digits", text)
	}
	if err != nil || n < k.low || n > k.high {
		return n, fmt.Errorf("%.40s: want %d to %d", text, k.low, k.high)
	}
	return n, nil
}

// format is set's inverse; a secret is hidden.
func (k *knob) format(c *Config) string {
	switch v := k.field(c).(type) {
	case *[]string:
		return strings.Join(*v, ",")
	case *string:
		return *v
	case *time.Duration:
		return span(int64(*v))
	case *Secret:
		return v.String()
	case *bool:
		return strconv.FormatBool(*v)
	case *int64:
		return strconv.FormatInt(*v, 10)
	case *int:
		return strconv.Itoa(*v)
	default:
		panic(fmt.Sprintf("configs: knob %s has a field of type %T", k.name, v))
	}
}

// span writes a duration as a person would: 10m, not 10m0s.
func span(ns int64) string {
	s := time.Duration(ns).String()
	if cut, ok := strings.CutSuffix(s, "m0s"); ok {
		s = cut + "m"
	}
	if cut, ok := strings.CutSuffix(s, "h0m"); ok {
		s = cut + "h"
	}
	return s
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

var (
	plainPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)
	topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
)

func plainName(s string) string {
	if !plainPattern.MatchString(s) {
		return "want 1 to 64 of a-z A-Z 0-9 . _ -"
	}
	return ""
}

func topicName(s string) string {
	if !topicPattern.MatchString(s) || s == "." || s == ".." {
		return `want 1 to 249 of a-z A-Z 0-9 . _ -, not "." or ".."`
	}
	return ""
}

func keyPrefix(s string) string {
	if _, err := shards.NewLayout(hongbao.Space{Prefix: s, Shards: 1}); err != nil {
		return "want 1 to 32 bytes without {, }, : or white space"
	}
	return ""
}

func hostPort(s string) string {
	host, port, err := net.SplitHostPort(s)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || n == 0 || host == "" || strings.ContainsAny(s, "/@ ") {
		return "want host:port, as 10.0.0.7:6379 or [::1]:6379"
	}
	return ""
}
