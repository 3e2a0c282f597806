package ops

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

// CampaignForm has the fields of a form for a new campaign, as a person wrote them: amounts in units of the currency, and
// times on the clock of the campaign's time zone. Its specification is a text, which is read and checked like any other.
type CampaignForm struct {
	ID, Name, Kind, Sponsor   string
	Currency, Total, Packets  string
	Mode, Min, Max            string // Min and Max count only in the mode random
	Tiers                     []TierFields
	From, To, TimeZone        string
	Limits                    []LimitFields
	Durability, Codes, Shards string // Codes is the pattern of the codes; it counts only for coupons
}

// TierFields are the fields of one tier.
type TierFields struct{ Amount, Packets string }

// LimitFields are the fields of one limit.
type LimitFields struct{ By, Per, Max string }

// Codes of problems that only a form has: its times have no offset.
const (
	TimeSkipped = "time_skipped" // the clock of the time zone jumps over the time
	TimeTwice   = "time_twice"   // the clock of the time zone shows the time twice
)

// ReadCampaign reads the input of CreateCampaign from the text of a specification.
func ReadCampaign(text string) (in CampaignCreate, err error) {
	if in.Spec, err = campaign.Read(strings.NewReader(text)); err == nil {
		err = in.Check()
	}
	return in, err
}

// Create returns the input of CreateCampaign. It returns all problems of the fields in one *campaign.SpecError.
func (f *CampaignForm) Create() (CampaignCreate, error) {
	in, err := ReadCampaign(f.Text())
	var spec *campaign.SpecError
	if !errors.As(err, &spec) {
		return in, err
	}
	wrong := func(path string) bool {
		return slices.ContainsFunc(spec.Problems, func(p campaign.Problem) bool { return p.Path == path })
	}
	noZone, noCurrency := wrong("time_zone"), wrong("currency")
	_, from := f.instant(f.From)
	_, to := f.instant(f.To)
	own := map[string]string{"window.from": from, "window.to": to}
	spec.Problems = slices.DeleteFunc(spec.Problems, func(p campaign.Problem) bool {
		// Without a zone no time can be read, and without a currency no amount.
		return noZone && p.Code == "time_malformed" || noCurrency && p.Code == "amount_not_integer_minor_units"
	})
	for i := range spec.Problems {
		if p := &spec.Problems[i]; own[p.Path] != "" {
			p.Code = own[p.Path]
		}
	}
	return in, err
}

// Text returns the specification in YAML. What can't be read as an amount, a number or a time stays as it was written,
// so that Read refuses it.
func (f *CampaignForm) Text() string {
	var m keys
	m.text("id", f.ID)
	m.text("name", f.Name)
	m.text("kind", f.Kind)
	if f.Kind != string(hongbao.KindCoupon) || f.Total != "" { // coupons without a value have no currency
		m.text("currency", f.Currency)
	}
	f.amount(&m, "total", f.Total)
	number(&m, "packets", f.Packets)
	m.put("split", f.split())
	var window keys
	from, _ := f.instant(f.From)
	to, _ := f.instant(f.To)
	window.plain("from", from)
	window.plain("to", to)
	m.put("window", window.node())
	m.put("time_zone", word(f.TimeZone)) // also if it is empty, because a form shows no default
	limits := yaml.Node{Kind: yaml.SequenceNode}
	for _, l := range f.Limits {
		limit := keys{yaml.Node{Style: yaml.FlowStyle}}
		limit.text("by", l.By)
		limit.text("per", l.Per)
		number(&limit, "max", l.Max)
		limits.Content = append(limits.Content, limit.node())
	}
	if len(f.Limits) > 0 {
		m.put("limits", &limits)
	}
	m.text("sponsor", f.Sponsor)
	m.text("durability", f.Durability)
	if f.Kind == string(hongbao.KindCoupon) && f.Codes != "" {
		codes := keys{yaml.Node{Style: yaml.FlowStyle}}
		codes.text("pattern", f.Codes)
		m.put("codes", codes.node())
	}
	number(&m, "shards", f.Shards)
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(m.node()); err != nil {
		panic(err) // can't happen: the tree has only maps, lists and valid UTF-8
	}
	return b.String()
}

func (f *CampaignForm) split() *yaml.Node {
	split := keys{yaml.Node{Style: yaml.FlowStyle}}
	split.text("mode", f.Mode)
	switch hongbao.SplitMode(f.Mode) {
	case hongbao.SplitRandom:
		f.amount(&split, "min", f.Min)
		f.amount(&split, "max", f.Max)
	case hongbao.SplitTiers:
		split.Style = 0
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, t := range f.Tiers {
			tier := keys{yaml.Node{Style: yaml.FlowStyle}}
			f.amount(&tier, "amount", t.Amount)
			number(&tier, "packets", t.Packets)
			list.Content = append(list.Content, tier.node())
		}
		split.put("tiers", list)
	case hongbao.SplitEven:
	}
	return split.node()
}

// number adds a number. YAML would read 010 and 0x10 as 8 and 16.
func number(to *keys, key, text string) {
	text = money.Ungrouped(text)
	if strings.ContainsAny(text, "xXoObB_") {
		to.text(key, text)
		return
	}
	to.plain(key, withoutZeros.ReplaceAllString(text, "$1"))
}

var withoutZeros = regexp.MustCompile(`^0+([0-9]+)$`)

// amount adds an amount in units of the currency, in minor units. Without a currency that exists it is a text.
func (f *CampaignForm) amount(to *keys, key, text string) {
	if hongbao.CheckCurrency(f.Currency) != nil {
		to.text(key, text)
		return
	}
	if a, err := money.Parse(text, f.Currency); err == nil {
		text = strconv.FormatInt(int64(a), 10)
	}
	number(to, key, text)
}

// instant adds the offset of the time zone to a time. If it can't, it returns the time as it is, and perhaps the code of
// a problem.
func (f *CampaignForm) instant(text string) (at, problem string) {
	text = strings.TrimSpace(text)
	zone, err := time.LoadLocation(f.TimeZone)
	if err != nil {
		return text, ""
	}
	wall, err := time.Parse(wallClock, text)
	if err != nil {
		if wall, err = time.Parse("2006-01-02T15:04", text); err != nil {
			return text, ""
		}
	}
	// At most two offsets apply around a change of the clock: the one before it and the one after it.
	var found []time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(zone)
		if t.Format(exactClock) == wall.Format(exactClock) && !slices.ContainsFunc(found, t.Equal) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return text, TimeSkipped
	case 1:
		return found[0].Format(time.RFC3339Nano), ""
	}
	return text, TimeTwice
}

// wallClock and exactClock are the layouts of times without an offset.
const (
	wallClock  = "2006-01-02T15:04:05"
	exactClock = "2006-01-02T15:04:05.999999999"
)

// FormOf returns the fields of a specification; false if a form can't hold it, such as one with codes from a file.
func FormOf(c *hongbao.Campaign) (CampaignForm, bool) {
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil {
		return CampaignForm{}, false
	}
	amount := func(a hongbao.Amount) string {
		if a == 0 {
			return ""
		}
		return strings.TrimSuffix(money.Text(a, c.Currency), " "+c.Currency)
	}
	f := CampaignForm{
		ID: c.ID, Name: c.Name, Kind: string(c.Kind), Sponsor: c.Sponsor, Currency: c.Currency, Total: amount(c.Total),
		Packets: money.Count(c.Packets), Mode: string(c.Split.Mode), Min: amount(c.Split.Min), Max: amount(c.Split.Max),
		From: c.From.In(zone).Format(exactClock), To: c.To.In(zone).Format(exactClock), TimeZone: c.TimeZone,
		Durability: string(c.Durability),
	}
	for _, t := range c.Split.Tiers {
		f.Tiers = append(f.Tiers, TierFields{amount(t.Amount), money.Count(t.Packets)})
	}
	for _, l := range c.Limits {
		f.Limits = append(f.Limits, LimitFields{l.By, string(l.Per), money.Count(l.Max)})
	}
	if c.Codes != nil {
		f.Codes = c.Codes.Pattern
	}
	if c.Shards > 0 {
		f.Shards = strconv.Itoa(c.Shards)
	}
	again, err := f.Create()
	return f, err == nil && string(campaign.Canonical(again.Spec)) == string(campaign.Canonical(*c))
}

// keys is a map in YAML.
type keys struct{ yaml.Node }

func (k *keys) node() *yaml.Node {
	k.Kind = yaml.MappingNode
	return &k.Node
}

func (k *keys) put(key string, value *yaml.Node) { k.Content = append(k.Content, word(key), value) }

// text adds a text, unless it is empty.
func (k *keys) text(key, value string) {
	if value != "" {
		k.put(key, word(value))
	}
}

// plain adds a number or a time, unless it is empty.
func (k *keys) plain(key, value string) {
	if value != "" {
		k.put(key, &yaml.Node{Kind: yaml.ScalarNode, Value: strings.ToValidUTF8(value, "?")})
	}
}

// word is a text, in quotes if it looks like something else.
func word(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.ToValidUTF8(text, "?")}
}
