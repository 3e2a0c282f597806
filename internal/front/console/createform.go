package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// newForm returns the form that a person begins with: random amounts, in the zone of the language.
func (t *tongue) newForm() ops.CampaignForm {
	f := ops.CampaignForm{TimeZone: "UTC", Durability: string(hongbao.DurabilityFast)}
	if t.Tag == "zh-CN" {
		f.TimeZone = "Asia/Shanghai"
	}
	begin(&f, "random")
	return f
}

// begin changes a form to a template, and fills in its empty fields. It keeps everything else that was typed.
func begin(f *ops.CampaignForm, template string) {
	f.Kind, f.Mode = string(hongbao.KindRedPacket), template
	f.Currency = cmp.Or(f.Currency, "CNY")
	switch template {
	case "coupons":
		f.Kind, f.Mode = string(hongbao.KindCoupon), string(hongbao.SplitEven)
		f.Codes = cmp.Or(f.Codes, "????????-????????")
	case string(hongbao.SplitTiers):
		if len(f.Tiers) == 0 {
			f.Tiers = make([]ops.TierFields, 2)
		}
	}
	if len(f.Limits) == 0 {
		f.Limits = []ops.LimitFields{{By: hongbao.ByUser, Per: string(hongbao.PerCampaign), Max: "1"}}
	}
}

// read reads what the page has sent.
func (v *newCampaign) read(r *http.Request) {
	get := func(name string) string { return strings.TrimSpace(r.PostForm.Get(name)) }
	v.Text, v.YAML = r.PostForm.Get("spec"), r.PostForm.Get("tab") != "form"
	v.Form = ops.CampaignForm{ID: get("id"), Name: get("name"), Kind: get("kind"), Sponsor: get("sponsor"), Currency: get("currency"),
		Total: get("total"), Packets: get("packets"), Mode: get("mode"), Min: get("min"), Max: get("max"), From: get("from"),
		To: get("to_time"), TimeZone: get("zone"), Durability: get("durability"), Codes: get("codes"), Shards: get("shards")}
	lines := func(columns ...string) (rows [][]string) { // the lines of a table of fields
		for i := range r.PostForm[columns[0]] {
			row := make([]string, len(columns))
			for j, name := range columns {
				if all := r.PostForm[name]; i < len(all) {
					row[j] = strings.TrimSpace(all[i])
				}
			}
			rows = append(rows, row)
		}
		return rows
	}
	for _, row := range lines("tier_amount", "tier_packets") {
		v.Form.Tiers = append(v.Form.Tiers, ops.TierFields{Amount: row[0], Packets: row[1]})
	}
	for _, row := range lines("limit_by", "limit_per", "limit_max") {
		v.Form.Limits = append(v.Form.Limits, ops.LimitFields{By: row[0], Per: row[1], Max: row[2]})
	}
}

// edit does what a button asks for that neither checks nor creates: another tab, a template, a line more or less. It
// returns false for other buttons.
func (v *newCampaign) edit(form url.Values) bool {
	at := func(name string, size int) (int, bool) {
		n, err := strconv.Atoi(form.Get(name))
		return n, err == nil && n >= 0 && n < size
	}
	switch {
	case form.Get("to") != "":
		v.turn(form.Get("to") == "yaml")
	case slices.Contains([]string{"random", "even", "tiers", "coupons"}, form.Get("template")):
		begin(&v.Form, form.Get("template"))
	case form.Get("add") == "tier":
		v.Form.Tiers = append(v.Form.Tiers, ops.TierFields{})
	case form.Get("add") == "limit":
		v.Form.Limits = append(v.Form.Limits, ops.LimitFields{})
	default:
		if i, ok := at("remove_tier", len(v.Form.Tiers)); ok {
			v.Form.Tiers = slices.Delete(v.Form.Tiers, i, i+1)
			return true
		}
		i, ok := at("remove_limit", len(v.Form.Limits))
		if ok {
			v.Form.Limits = slices.Delete(v.Form.Limits, i, i+1)
		}
		return ok
	}
	return true
}

// turn shows the other tab. A tab that the person has not changed since stays as it was, with its comments and mistakes;
// a changed one writes the other tab again. If the form can't hold the text, the text stays.
func (v *newCampaign) turn(yaml bool) {
	if yaml == v.YAML {
		return
	}
	text := lineEnds.Replace(v.Text)
	if v.YAML && text == v.Form.Text() {
		v.YAML = false
		return
	}
	in, err := ops.ReadCampaign(text)
	fields, holds := ops.CampaignForm{}, false
	if err == nil {
		fields, holds = ops.FormOf(&in.Spec)
	}
	switch {
	case !v.YAML:
		if !holds || fields.Text() != v.Form.Text() {
			v.Text = v.Form.Text()
		}
		v.YAML = true
	case err != nil:
		v.Wrong = model.Because(err, "The form opens when the text has no mistakes.")
	case !holds:
		v.Wrong = model.Say("The form can't hold this specification: check and create it here.")
	default:
		fields.Codes, v.YAML = cmp.Or(fields.Codes, v.Form.Codes), false
		v.Form = fields
	}
}

// input returns the input of the creation from the tab that counts. Lines of the form without any value are left out.
func (v *newCampaign) input() (ops.CampaignCreate, error) {
	if v.YAML {
		return ops.ReadCampaign(v.Text)
	}
	v.Form.Tiers = slices.DeleteFunc(v.Form.Tiers, func(t ops.TierFields) bool { return t == ops.TierFields{} })
	v.Form.Limits = slices.DeleteFunc(v.Form.Limits, func(l ops.LimitFields) bool { return l.By == "" && l.Max == "" })
	return v.Form.Create()
}

// fieldError is a mistake in a field of the form. Field is the id of its element.
type fieldError struct {
	Field string
	Say   model.Sentence
}

// Of returns the sentence about the mistake in a field; nil if there is none.
func (v *newCampaign) Of(field string) *model.Sentence {
	for i := range v.Errors {
		if v.Errors[i].Field == field {
			return &v.Errors[i].Say
		}
	}
	return nil
}

// fieldsOf are the fields of the paths of a specification. Each other path is the id of its field.
var fieldsOf = strings.NewReplacer("split.mode", "mode", "split.min", "min", "split.max", "max", "split.tiers", "tiers",
	"window.from", "from", "window.to", "to", "window", "to", "time_zone", "zone", "codes.pattern", "codes",
	"limits[", "limit-", "].", "-", "]", "", "[", "-")

// fieldErrors returns the mistakes of the fields, in the words of the page.
func fieldErrors(f *ops.CampaignForm, spec *campaign.SpecError) (list []fieldError) {
	for _, p := range spec.Problems {
		field := fieldsOf.Replace(p.Path)
		if line, ok := strings.CutPrefix(field, "tiers-"); ok {
			field = "tier-" + line
		}
		list = append(list, fieldError{Field: field, Say: sentenceOf(f, p)})
	}
	return list
}

// sentenceOf returns the sentence about a problem. A problem that has none keeps its original text.
func sentenceOf(f *ops.CampaignForm, p campaign.Problem) model.Sentence {
	switch p.Code {
	case "amount_not_integer_minor_units":
		if hongbao.CheckCurrency(f.Currency) != nil {
			return model.Say("An amount needs a currency.")
		}
		return model.Say("This is not an amount in %s. Write it as %s.", f.Currency, money.Number(1250, f.Currency))
	case "amount_out_of_range":
		return model.Say("Too large: at most %s.", money.Text(hongbao.MaxAmount, f.Currency))
	case "budget_too_small":
		if f.Mode == string(hongbao.SplitEven) {
			return model.Say("Too little: each of the packets needs at least the smallest amount of the currency.")
		}
		return model.Say("Too little for %s packets of at least %s %s.", f.Packets, f.Min, f.Currency)
	case "budget_too_large":
		return model.Say("Too much for %s packets of at most %s %s.", f.Packets, f.Max, f.Currency)
	}
	if s, ok := mistakes[p.Code]; ok {
		return s
	}
	return model.Sentence{Text: "This value is not valid.", Original: p.Message}
}

// mistakes are the sentences about problems of a specification that have no values in them.
var mistakes = map[string]model.Sentence{
	"required":                model.Say("This is required."),
	"id_invalid":              model.Say("1 to 64 of the characters a-z, 0-9, - and _, beginning with a letter."),
	"name_invalid":            model.Say("At most 200 bytes of text in one line."),
	"kind_unknown":            model.Say("Choose one."),
	"split_mode_unknown":      model.Say("Choose one."),
	"durability_unknown":      model.Say("Choose one."),
	"limit_per_unknown":       model.Say("Choose one."),
	"currency_unknown":        model.Say("This is no currency in use. Write its code, such as CNY."),
	"currency_required":       model.Say("An amount needs a currency."),
	"sponsor_invalid":         model.Say("1 to 128 printable ASCII characters without spaces."),
	"not_integer":             model.Say("Write a whole number, such as 50,000."),
	"amount_not_positive":     model.Say("Write an amount above 0."),
	"packets_out_of_range":    model.Say("Write a number from 1 to 10,000,000."),
	"limit_max_out_of_range":  model.Say("Write a number from 1 to 10,000,000."),
	"not_allowed_here":        model.Say("A coupon can't have random amounts."),
	"min_above_max":           model.Say("The smallest packet is larger than the largest."),
	"too_many_tiers":          model.Say("There are too many lines."),
	"too_many_limits":         model.Say("There are too many lines."),
	"tiers_packets_mismatch":  model.Say("The packets of all lines do not add up to the number of packets."),
	"tiers_total_mismatch":    model.Say("The amounts of all lines do not add up to the total."),
	"time_malformed":          model.Say("This is not a time. Write it as 2027-02-06T20:00:00."),
	"time_not_whole_ms":       model.Say("A time has at most three decimals of a second."),
	"time_out_of_range":       model.Say("The year must be from 2000 to 2100."),
	ops.TimeSkipped:           model.Say("The clock of this time zone jumps over this time. Choose another one."),
	ops.TimeTwice:             model.Say("The clock of this time zone shows this time twice. Choose another one, or write it in YAML with its offset."),
	"window_reversed":         model.Say("It ends before it starts."),
	"window_too_long":         model.Say("A campaign lasts at most 400 days."),
	"window_past":             model.Say("The end is in the past."),
	"time_zone_unknown":       model.Say("There is no time zone of this name. Write a name such as Asia/Shanghai."),
	"limit_by_invalid":        model.Say("Write user, or the name of a fact of the grab, such as device."),
	"limit_duplicate":         model.Say("Another line limits the same."),
	"user_hold_too_large":     model.Say("A user gets at most 100 packets of a campaign."),
	"too_many_facts":          model.Say("The limits count by more than 8 facts."),
	"shards_out_of_range":     model.Say("Write a number from 1 to 64."),
	"shards_above_deployment": model.Say("The deployment has fewer shards."),
	"limit_needs_one_shard":   model.Say("A campaign on several shards can only limit users."),
	"code_pattern_invalid":    model.Say("At most 64 bytes: # is a digit, ? a letter; A-Z, a-z, 0-9, -, _ and . stand for themselves."),
	"code_space_too_small":    model.Say("Too short: codes could be guessed. Add more # or ?."),
}
