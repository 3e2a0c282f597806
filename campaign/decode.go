package campaign

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao"
)

// field decodes the value of one key. path is the position of the key in the specification.
type field func(path string, n *yaml.Node)

// decoder decodes a campaign from a tree, and adds a problem for each value that does not fit.
type decoder struct{ *problems }

func (d decoder) campaign(n *yaml.Node, c *hongbao.Campaign) {
	from, to := d.time(&c.From), d.time(&c.To)
	window := map[string]field{"from": from, "to": to}
	d.object("", n, map[string]field{
		"id":         d.text(&c.ID),
		"name":       d.text(&c.Name),
		"kind":       d.text((*string)(&c.Kind)),
		"currency":   d.text(&c.Currency),
		"total":      d.amount(&c.Total, 0),
		"packets":    d.count(&c.Packets, "packets_out_of_range"),
		"split":      func(path string, n *yaml.Node) { d.split(path, n, &c.Split) },
		"window":     func(path string, n *yaml.Node) { d.object(path, n, window) },
		"time_zone":  d.text(&c.TimeZone),
		"limits":     func(path string, n *yaml.Node) { d.limits(path, n, c) },
		"sponsor":    d.text(&c.Sponsor),
		"durability": d.text((*string)(&c.Durability)),
		"shards":     d.shards(&c.Shards),
		"codes": func(path string, n *yaml.Node) {
			c.Codes = &hongbao.Codes{}
			d.object(path, n, map[string]field{"pattern": d.text(&c.Codes.Pattern), "file": d.text(&c.Codes.File)})
		},
		// The canonical form has no window; from and to are at the top level.
		"from": func(_ string, n *yaml.Node) { from("window.from", n) },
		"to":   func(_ string, n *yaml.Node) { to("window.to", n) },
	})
}

func (d decoder) split(path string, n *yaml.Node, s *hongbao.Split) {
	d.object(path, n, map[string]field{
		"mode": d.text((*string)(&s.Mode)),
		"min":  d.amount(&s.Min, 1),
		"max":  d.amount(&s.Max, 1),
		"tiers": func(path string, n *yaml.Node) {
			items, ok := d.list(path, n)
			if !ok {
				return
			}
			if len(items) > hongbao.MaxTiers {
				d.add(path, "too_many_tiers", "there are %d tiers; at most %d are allowed", len(items), hongbao.MaxTiers)
				return
			}
			s.Tiers = make([]hongbao.Tier, len(items))
			for i, item := range items {
				d.object(index(path, i), item, map[string]field{
					"amount":  d.amount(&s.Tiers[i].Amount, 1),
					"packets": d.count(&s.Tiers[i].Packets, "packets_out_of_range"),
				})
			}
		},
	})
}

func (d decoder) limits(path string, n *yaml.Node, c *hongbao.Campaign) {
	items, ok := d.list(path, n)
	if !ok {
		return
	}
	if len(items) > hongbao.MaxLimits {
		d.add(path, "too_many_limits", "there are %d limits; at most %d are allowed", len(items), hongbao.MaxLimits)
		return
	}
	c.Limits = make([]hongbao.Limit, len(items))
	for i, item := range items {
		l := &c.Limits[i]
		d.object(index(path, i), item, map[string]field{
			"by":  d.text(&l.By),
			"per": d.text((*string)(&l.Per)),
			"max": d.count(&l.Max, "limit_max_out_of_range"),
		})
	}
}

// object decodes a map. Each key must be in fields, and may occur only once.
func (d decoder) object(path string, n *yaml.Node, fields map[string]field) {
	if n.Kind != yaml.MappingNode {
		d.add(path, "wrong_type", "not a map; give the keys %s", names(fields))
		return
	}
	prefix := path
	if path != "" {
		prefix += "."
	}
	seen := make(map[string]bool, len(fields))
	for i := 0; i+1 < len(n.Content) && len(d.found) < maxProblems; i += 2 {
		key := n.Content[i].Value
		read := fields[key]
		switch {
		case n.Content[i].Kind != yaml.ScalarNode || read == nil:
			d.add(path, "unknown_field", "the key %.40q does not exist%s", key, hint(key, fields))
		case seen[key]:
			d.add(prefix+key, "duplicate_field", "the key occurs twice; keep one")
		default:
			seen[key] = true
			read(prefix+key, n.Content[i+1])
		}
	}
}

func (d decoder) list(path string, n *yaml.Node) ([]*yaml.Node, bool) {
	if n.Kind != yaml.SequenceNode {
		d.add(path, "wrong_type", "not a list; give a list of maps")
		return nil, false
	}
	return n.Content, true
}

func (d decoder) text(to *string) field {
	return func(path string, n *yaml.Node) {
		switch {
		case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str":
			d.add(path, "wrong_type", "the value is not a text; put a text that looks like a number in quotes")
		case n.Value == "":
			d.add(path, "required", "the text is empty; give a value or leave the key out")
		default:
			*to = n.Value
		}
	}
}

// wholeNumber matches plain digits, without sign, point, exponent, separator, quote or leading zero.
var wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// notPositive matches a whole number with a minus sign, including -0.
var notPositive = regexp.MustCompile(`^-(0|[1-9][0-9]*)$`)

func number(n *yaml.Node, form *regexp.Regexp) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 && form.MatchString(n.Value)
}

func (d decoder) amount(to *hongbao.Amount, least int64) field {
	return func(path string, n *yaml.Node) {
		if number(n, notPositive) {
			d.add(path, "amount_not_positive", "%.40q is not above 0; give minor units (cents, fen)", n.Value)
			return
		}
		if !number(n, wholeNumber) {
			d.add(path, "amount_not_integer_minor_units",
				"%.40q is not a whole number in plain digits without quotes; give minor units: 12.50 is 1250", n.Value)
			return
		}
		v, err := strconv.ParseInt(n.Value, 10, 64)
		switch {
		case err != nil || v > int64(hongbao.MaxAmount):
			d.add(path, "amount_out_of_range", "%.40q is too large; give at most %d", n.Value, hongbao.MaxAmount)
		case v < least:
			d.add(path, "amount_not_positive", "0 is not allowed; give at least %d", least)
		default:
			*to = hongbao.Amount(v)
		}
	}
}

// shards decodes a number of shards. The function check checks its upper bound.
func (d decoder) shards(to *int) field {
	return func(path string, n *yaml.Node) {
		var v int64
		d.count(&v, "shards_out_of_range")(path, n)
		*to = int(v)
	}
}

// count decodes a number from 1 to MaxPackets. code is the problem code for a number outside this range.
func (d decoder) count(to *int64, code string) field {
	return func(path string, n *yaml.Node) {
		if !number(n, wholeNumber) && !number(n, notPositive) {
			d.add(path, "not_integer", "%.40q is not a whole number in plain digits without quotes", n.Value)
			return
		}
		v, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || v < 1 || v > hongbao.MaxPackets {
			d.add(path, code, "%.40q is out of range; give 1 to %d", n.Value, hongbao.MaxPackets)
			return
		}
		*to = v
	}
}

var rfc3339 = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

func (d decoder) time(to *time.Time) field {
	return func(path string, n *yaml.Node) {
		if !to.IsZero() {
			d.add(path, "duplicate_field", "the time is both in window and at the top level; keep one")
			return
		}
		malformed := func() {
			d.add(path, "time_malformed",
				"%.40q is not an RFC 3339 time with a zone; give a time such as 2026-02-16T20:00:00+08:00", n.Value)
		}
		m := rfc3339.FindStringSubmatch(n.Value)
		if n.Kind != yaml.ScalarNode || m == nil {
			malformed()
			return
		}
		if m[2] == "60" {
			d.add(path, "time_leap_second", "%q is a leap second; give the second before or after", n.Value)
			return
		}
		t, err := time.Parse(time.RFC3339Nano, n.Value)
		if err != nil {
			malformed()
			return
		}
		*to = t.UTC()
	}
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func names(fields map[string]field) string {
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}

// hint returns the end of the message about an unknown key: the key that was probably meant, or all keys.
func hint(key string, fields map[string]field) string {
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	if len(key) <= 40 {
		for name := range fields {
			if plain(name) == plain(key) {
				return "; did you mean " + name + "?"
			}
		}
	}
	return "; the keys are " + names(fields)
}
