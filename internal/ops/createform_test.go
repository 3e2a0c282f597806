package ops_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func rainForm() ops.CampaignForm {
	return ops.CampaignForm{ID: "spring-2027", Name: "新春: #1", Kind: "red_packet", Currency: "CNY", Total: "100,000.00",
		Packets: "50,000", Mode: "random", Min: "1.00", Max: "5", From: "2027-02-06T20:00", To: "2027-02-06T20:10:00",
		TimeZone: "Asia/Shanghai", Sponsor: "acme", Limits: []ops.LimitFields{{"user", "campaign", "1"}, {"device", "day", "3"}},
		Durability: "replica", Tiers: []ops.TierFields{{"not", "counted"}}, Codes: "NOT-COUNTED"}
}

// The amounts of a form are in units of the currency, and its times on the clock of the campaign's zone.
func TestAFormIsASpecification(t *testing.T) {
	t.Parallel()
	f := rainForm()
	in, err := f.Create()
	require.NoError(t, err)
	//nolint:testifylint // the order of the fields counts, too
	require.Equal(t, `{"id":"spring-2027","name":"新春: #1","kind":"red_packet","currency":"CNY","total":10000000,"packets":50000,`+
		`"split":{"mode":"random","min":100,"max":500},"from":"2027-02-06T12:00:00Z","to":"2027-02-06T12:10:00Z",`+
		`"time_zone":"Asia/Shanghai","limits":[{"by":"user","per":"campaign","max":1},{"by":"device","per":"day","max":3}],`+
		`"sponsor":"acme","durability":"replica"}`, string(campaign.Canonical(in.Spec)))
	require.Equal(t, `id: spring-2027
name: '新春: #1'
kind: red_packet
currency: CNY
total: 10000000
packets: 50000
split: {mode: random, min: 100, max: 500}
window:
  from: 2027-02-06T20:00:00+08:00
  to: 2027-02-06T20:10:00+08:00
time_zone: Asia/Shanghai
limits:
  - {by: user, per: campaign, max: 1}
  - {by: device, per: day, max: 3}
sponsor: acme
durability: replica
`, f.Text())

	f.Currency, f.Mode, f.Tiers = "JPY", "tiers", []ops.TierFields{{"1,000", "1,000"}, {"2,000", "49,000"}}
	f.Total = "99,000,000"
	in, err = f.Create()
	require.NoError(t, err)
	require.Equal(t, hongbao.Split{Mode: "tiers", Tiers: []hongbao.Tier{{Amount: 1000, Packets: 1000}, {Amount: 2000, Packets: 49000}}},
		in.Spec.Split)
	require.EqualValues(t, 99_000_000, in.Spec.Total)

	f.Kind, f.Mode, f.Total, f.Codes = "coupon", "even", "", "TEA-###########"
	in, err = f.Create()
	require.NoError(t, err)
	require.Empty(t, in.Spec.Currency, "a coupon without a value has no currency")
	require.Equal(t, "TEA-###########", in.Spec.Codes.Pattern)
}

// The fields of a specification give the same specification. A form refuses what it can't hold.
func TestAFormOfASpecification(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *ops.CampaignForm){
		"random": func(*ops.CampaignForm) {},
		"even":   func(f *ops.CampaignForm) { f.Mode = "even" },
		"tiers": func(f *ops.CampaignForm) {
			f.Mode, f.Tiers, f.Packets, f.Total = "tiers", []ops.TierFields{{"20.00", "3"}, {"0.01", "1"}}, "4", "60.01"
		},
		"dinars": func(f *ops.CampaignForm) { f.Currency, f.Total = "KWD", "100,000.001" },
		"coupon": func(f *ops.CampaignForm) { f.Kind, f.Mode, f.Total, f.Codes = "coupon", "even", "", "A-???????????" },
		"shards": func(f *ops.CampaignForm) { f.Limits, f.Shards = nil, "4" },
	} {
		f := rainForm()
		change(&f)
		in, err := f.Create()
		require.NoError(t, err, name)
		fields, ok := ops.FormOf(&in.Spec)
		require.True(t, ok, name)
		again, err := fields.Create()
		require.NoError(t, err, name)
		require.Equal(t, in, again, name)
	}
	f := rainForm()
	in, err := f.Create()
	require.NoError(t, err)
	in.Spec.Kind, in.Spec.Split, in.Spec.Codes = hongbao.KindCoupon, hongbao.Split{Mode: hongbao.SplitEven}, &hongbao.Codes{File: "codes.txt"}
	_, ok := ops.FormOf(&in.Spec)
	require.False(t, ok, "a browser has no such file")
	in.Spec.Codes, in.Spec.TimeZone = nil, "Europe/Berlin"
	in.Spec.From = time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC) // 02:30, for the first time
	_, ok = ops.FormOf(&in.Spec)
	require.False(t, ok, "a time that the clock shows twice has an offset only in YAML")
}

const huge = "999999999999999999999999"

// A number is read in tens, also with zeros before it.
func TestAFormReadsDecimalNumbers(t *testing.T) {
	t.Parallel()
	f := rainForm()
	f.Packets, f.Total = "0020000", "0100,000.00"
	_, err := f.Create()
	require.Error(t, err, "no separator after four digits")
	f.Total = "0100000.00"
	in, err := f.Create()
	require.NoError(t, err)
	require.EqualValues(t, 20_000, in.Spec.Packets)
	require.EqualValues(t, 10_000_000, in.Spec.Total)
	for _, text := range []string{"0x4e20", "0o47040", "0b10", "20_000", "2e4", "+20000x"} {
		f.Packets = text
		_, err = f.Create()
		require.Error(t, err, text)
	}
}

// formMistakes are changes of a form, with the path and the code of each problem.
var formMistakes = []struct {
	change func(f *ops.CampaignForm)
	wants  string
}{
	{func(f *ops.CampaignForm) { f.ID = "" }, "id required"},
	{func(f *ops.CampaignForm) { f.ID = "a b" }, "id id_invalid"},
	{func(f *ops.CampaignForm) { f.Name = "x\ny" }, "name name_invalid"},
	{func(f *ops.CampaignForm) { f.Name = "\xff" + strings.Repeat("n", 300) }, "name name_invalid"},
	{func(f *ops.CampaignForm) { f.Kind = "" }, "kind required"},
	{func(f *ops.CampaignForm) { f.Currency = "" }, "currency required"},
	{func(f *ops.CampaignForm) { f.Currency = "cny" }, "currency currency_unknown"},
	{func(f *ops.CampaignForm) { f.Total = "" }, "total amount_not_positive"},
	{func(f *ops.CampaignForm) { f.Total = "0" }, "total amount_not_positive"},
	{func(f *ops.CampaignForm) { f.Total = "-5" }, "total amount_not_positive"},
	{func(f *ops.CampaignForm) { f.Total = "-5.00" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Total = "100000.005" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Total = "100000,00" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Total = "100.000,00" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Total = "{much: [" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Total = huge }, "total amount_out_of_range"},
	{func(f *ops.CampaignForm) { f.Total = "90,071,992,547,409.92" }, "total amount_out_of_range"},
	{func(f *ops.CampaignForm) { f.Total = "10,000.00" }, "total budget_too_small"},
	{func(f *ops.CampaignForm) { f.Total = "1,000,000.00" }, "total budget_too_large"},
	{func(f *ops.CampaignForm) { f.Currency, f.Min, f.Max, f.Total = "JPY", "1", "5", "100000.5" }, "total amount_not_integer_minor_units"},
	{func(f *ops.CampaignForm) { f.Packets = "" }, "packets packets_out_of_range"},
	{func(f *ops.CampaignForm) { f.Packets = "-1" }, "packets packets_out_of_range"},
	{func(f *ops.CampaignForm) { f.Packets = "1.5" }, "packets not_integer"},
	{func(f *ops.CampaignForm) { f.Packets = "1,5" }, "packets not_integer"},
	{func(f *ops.CampaignForm) { f.Packets = huge }, "packets packets_out_of_range"},
	{func(f *ops.CampaignForm) { f.Mode = "" }, "split.mode required"},
	{func(f *ops.CampaignForm) { f.Min = "" }, "split.min amount_not_positive"},
	{func(f *ops.CampaignForm) { f.Min = "6" }, "split.min min_above_max"},
	{func(f *ops.CampaignForm) { f.Mode, f.Tiers = "tiers", nil }, "split.tiers required"},
	{func(f *ops.CampaignForm) { f.Mode, f.Tiers = "tiers", []ops.TierFields{{"2", "50000"}, {"x", ""}} },
		"split.tiers[1].amount amount_not_integer_minor_units, split.tiers[1].packets packets_out_of_range"},
	{func(f *ops.CampaignForm) { f.Mode, f.Tiers = "tiers", []ops.TierFields{{"2", "49999"}} },
		"split.tiers tiers_packets_mismatch, split.tiers tiers_total_mismatch"},
	{func(f *ops.CampaignForm) { f.From = "" }, "window.from required"},
	{func(f *ops.CampaignForm) { f.From = "tomorrow" }, "window.from time_malformed"},
	{func(f *ops.CampaignForm) { f.From = "2027-02-30T20:00" }, "window.from time_malformed"},
	{func(f *ops.CampaignForm) { f.From = "1999-01-01T20:00" }, "window.from time_out_of_range"},
	{func(f *ops.CampaignForm) { f.From = "2027-02-06T20:00:00.0001" }, "window.from time_not_whole_ms"},
	{func(f *ops.CampaignForm) { f.To = "2027-02-06T19:10" }, "window window_reversed"},
	{func(f *ops.CampaignForm) { f.To = "2029-02-06T19:10" }, "window window_too_long"},
	{func(f *ops.CampaignForm) { f.TimeZone = "" }, "time_zone required"},
	{func(f *ops.CampaignForm) { f.TimeZone = "Asia/Beijing" }, "time_zone time_zone_unknown"},
	{func(f *ops.CampaignForm) { f.TimeZone = "../etc" }, "time_zone time_zone_unknown"},
	{func(f *ops.CampaignForm) { f.TimeZone, f.From = "Europe/Berlin", "2026-03-29T02:30" }, "window.from time_skipped"},
	{func(f *ops.CampaignForm) { f.TimeZone, f.To = "Europe/Berlin", "2027-10-31T02:30" }, "window.to time_twice"},
	{func(f *ops.CampaignForm) { f.TimeZone, f.From = "Australia/Lord_Howe", "2026-04-05T01:45" }, "window.from time_twice"},
	{func(f *ops.CampaignForm) { f.TimeZone, f.From = "Pacific/Apia", "2011-12-30T12:00" }, "window.from time_skipped"},
	{func(f *ops.CampaignForm) { f.Limits[0].Max = "0" }, "limits[0].max limit_max_out_of_range"},
	{func(f *ops.CampaignForm) { f.Limits[0].Max = "101" }, "limits[0].max user_hold_too_large"},
	{func(f *ops.CampaignForm) { f.Limits[1].By = "a device" }, "limits[1].by limit_by_invalid"},
	{func(f *ops.CampaignForm) { f.Limits[1].By = "" }, "limits[1].by required"},
	{func(f *ops.CampaignForm) { f.Limits[1] = f.Limits[0] }, "limits[1] limit_duplicate"},
	{func(f *ops.CampaignForm) { f.Sponsor = "" }, "sponsor required"},
	{func(f *ops.CampaignForm) { f.Durability = "maybe" }, "durability durability_unknown"},
	{func(f *ops.CampaignForm) { f.Shards = "65" }, "shards shards_out_of_range"},
	{func(f *ops.CampaignForm) { f.Shards = "2" }, "limits[1] limit_needs_one_shard"},
	{func(f *ops.CampaignForm) { f.Kind, f.Codes = "coupon", "" }, "split.mode not_allowed_here"},
	{func(f *ops.CampaignForm) { f.Kind, f.Mode, f.Codes = "coupon", "even", "A-#" }, "codes.pattern code_space_too_small"},
}

// Each wrong field has its problem at its own path, and no other one.
func TestAFormHasMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range formMistakes {
		f := rainForm()
		c.change(&f)
		_, err := f.Create()
		var spec *campaign.SpecError
		require.ErrorAs(t, err, &spec, c.wants)
		var has []string
		for _, p := range spec.Problems {
			has = append(has, p.Path+" "+p.Code)
		}
		require.Equal(t, c.wants, strings.Join(has, ", "))
	}
	_, err := new(ops.CampaignForm).Create()
	var spec *campaign.SpecError
	require.ErrorAs(t, err, &spec)
	require.Len(t, spec.Problems, 9, "%v", err)
}

// An example has the mean and the bounds of the campaign, and is small for any campaign.
func TestAnExampleOfTheSplit(t *testing.T) {
	t.Parallel()
	f := rainForm()
	for packets, total := range map[string]string{"50,000": "100,000.00", "10,000,000": "20,000,000.01", "1": "1.00"} {
		f.Packets, f.Total = packets, total
		in, err := f.Create()
		require.NoError(t, err)
		e, err := in.Example()
		require.NoError(t, err)
		require.Equal(t, min(in.Spec.Packets, 100_000), e.Packets)
		require.GreaterOrEqual(t, e.Smallest, hongbao.Amount(100))
		require.LessOrEqual(t, e.Largest, hongbao.Amount(500))
		drawn := 0
		for _, b := range e.Bins {
			drawn += b.Packets
		}
		require.EqualValues(t, e.Packets, drawn)
	}
	f.Packets, f.Total, f.Min, f.Max = "10,000,000", "90,071,992,547,409.91", "1.00", "90,071,992.55"
	in, err := f.Create()
	require.NoError(t, err)
	e, err := in.Example()
	require.NoError(t, err)
	require.Greater(t, e.Largest, hongbao.Amount(900_000_000))
	in.Spec.Split = hongbao.Split{Mode: hongbao.SplitEven}
	e, err = in.Example()
	require.NoError(t, err)
	require.Nil(t, e)
}
