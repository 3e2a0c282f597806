package campaign

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func problemsOf(t *testing.T, err error) []Problem {
	t.Helper()
	var spec *SpecError
	require.ErrorAs(t, err, &spec)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	for _, p := range spec.Problems {
		require.NotEmpty(t, p.Message)
		require.Less(t, len(p.String()), 500)
		require.Negative(t, strings.IndexFunc(p.String(), unicode.IsControl), "%q", p.String())
		require.Contains(t, err.Error(), "\n  "+p.String())
	}
	return spec.Problems
}

func TestReadBounds(t *testing.T) {
	t.Parallel()
	pad := strings.Repeat("#", maxSpecBytes-len(whole))
	_, err := Read(strings.NewReader(whole + pad))
	require.NoError(t, err)
	_, err = Read(strings.NewReader(whole + pad + "#"))
	require.Equal(t, "too_large", problemsOf(t, err)[0].Code)

	_, err = Read(strings.NewReader("id: a\n" + strings.Repeat("x: 1\n", 200_000)))
	require.Len(t, problemsOf(t, err), maxProblems)

	broken := errors.New("disk on fire")
	_, err = Read(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
}

func TestReadReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Read(strings.NewReader(`
id: A
kind: lottery
currency: cny
total: 1.5
packets: 0
split: {mode: random, min: 0, max: -1}
window: {from: tomorrow, to: 2027-02-06T20:10:60Z}
time_zone: Mars
limits: [{by: "", per: week, max: 0}]
sponsor: a b
colour: red
`))
	var got []string
	for _, p := range problemsOf(t, err) {
		got = append(got, strings.TrimSpace(p.Path+" "+p.Code))
	}
	require.ElementsMatch(t, []string{
		"unknown_field", "id id_invalid", "name required", "kind kind_unknown", "currency currency_unknown",
		"total amount_not_integer_minor_units", "packets packets_out_of_range", "split.min amount_not_positive",
		"split.max amount_not_positive", "window.from time_malformed", "window.to time_leap_second",
		"time_zone time_zone_unknown", "limits[0].by required", "limits[0].per limit_per_unknown",
		"limits[0].max limit_max_out_of_range", "sponsor sponsor_invalid",
	}, got)
}

func TestReadYAMLAndJSON(t *testing.T) {
	t.Parallel()
	want := wholeCampaign()
	texts := map[string]string{
		"yaml": whole,
		"json": `{"id":"spring-2027","name":"Spring rain \u6625","kind":"red_packet","currency":"CNY","total":1000,"packets":10,
	"split":{"mode":"random","min":1,"max":500},
	"window":{"from":"2027-02-06T20:00:00+08:00","to":"2027-02-06T12:10:00.5Z"},"time_zone":"Asia/Shanghai",
		"limits":[{"by":"user","per":"campaign","max":2},{"by":"device","per":"day","max":3}],"sponsor":"acme","durability":"fsync"}`,
		"canonical": string(Canonical(want)),
	}
	for name, text := range texts {
		got, err := Read(strings.NewReader(text))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	// These escapes are valid in JSON, but not in YAML.
	got, err := Read(strings.NewReader(strings.Replace(texts["json"], `Spring rain \u6625`, `\ud83e\udde7 \/`, 1)))
	require.NoError(t, err)
	require.Equal(t, "🧧 /", got.Name)
}

// ReadWindow replaces the window of a text, and gives one to a text without a window.
func TestReadWindow(t *testing.T) {
	t.Parallel()
	const text = "id: tea\nname: Tea\nkind: coupon\npackets: 100\nsplit: {mode: even}\nsponsor: acme\n"
	from, to := time.Date(2027, 2, 6, 12, 0, 0, 0, time.UTC), time.Date(2027, 2, 6, 13, 0, 0, 0, time.UTC)
	_, err := Read(strings.NewReader(text))
	require.ErrorContains(t, err, "window.from: required")
	for _, window := range []string{"", "window: {from: 2027-01-01T00:00:00Z, to: 2026-01-01T00:00:00Z}\n"} {
		c, err := ReadWindow(strings.NewReader(text+window), from, to)
		require.NoError(t, err)
		require.Equal(t, []time.Time{from, to}, []time.Time{c.From, c.To})
	}
	_, err = ReadWindow(strings.NewReader(text), to, from)
	require.ErrorContains(t, err, "window_reversed")
}

func TestReadFillsDefaults(t *testing.T) {
	t.Parallel()
	c, err := Read(strings.NewReader(`
id: free-coffee
name: Free coffee
kind: coupon
packets: 100
split: {mode: even}
window: {from: 2027-01-01T00:00:00Z, to: 2027-01-02T00:00:00Z}
limits: [{by: user, per: day, max: 1}]
sponsor: acme`))
	require.NoError(t, err)
	require.Equal(t, "UTC", c.TimeZone)
	require.Equal(t, hongbao.DurabilityFast, c.Durability)
	require.Equal(t, []hongbao.Limit{
		{By: hongbao.ByUser, Per: hongbao.PerDay, Max: 1}, {By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1},
	}, c.Limits)
	require.EqualValues(t, 1, c.UserHold())
	plan, err := NewPlan(c, testSeed(t))
	require.NoError(t, err)
	require.Equal(t, make([]hongbao.Amount, 100), plan.Amounts)
}

func TestCompleteLeavesItsArgumentAlone(t *testing.T) {
	t.Parallel()
	backing := []hongbao.Limit{{By: "device", Per: hongbao.PerDay, Max: 1}, {By: "kept"}}
	c := Complete(hongbao.Campaign{Limits: backing[:1]})
	require.Len(t, c.Limits, 2)
	require.Equal(t, "kept", backing[1].By)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	c := wholeCampaign()
	require.NoError(t, Validate(c, c.From))
	require.NoError(t, Validate(c, c.To.Add(-time.Millisecond)))
	require.Equal(t, "window_past", problemsOf(t, Validate(c, c.To))[0].Code)

	bare := c
	bare.Limits = nil
	require.Equal(t, "user_limit_required", problemsOf(t, Validate(bare, c.From))[0].Code)

	empty := problemsOf(t, Validate(hongbao.Campaign{}, c.From))
	require.GreaterOrEqual(t, len(empty), 10)

	tiers := c
	tiers.Split = hongbao.Split{Mode: hongbao.SplitTiers,
		Tiers: []hongbao.Tier{{Amount: -5, Packets: 10}, {Amount: 5, Packets: -10}}}
	require.Len(t, problemsOf(t, Validate(tiers, c.From)), 2)

	for code, spoil := range map[string]func(*hongbao.Campaign){
		"name_invalid":        func(c *hongbao.Campaign) { c.Name = "\xff\n" },
		"amount_not_positive": func(c *hongbao.Campaign) { c.Total = -1 },
		"amount_out_of_range": func(c *hongbao.Campaign) { c.Total = hongbao.MaxAmount + 1 },
		"too_many_tiers": func(c *hongbao.Campaign) {
			c.Split = hongbao.Split{Mode: hongbao.SplitTiers, Tiers: make([]hongbao.Tier, hongbao.MaxTiers+1)}
		},
		"too_many_limits": func(c *hongbao.Campaign) { c.Limits = make([]hongbao.Limit, hongbao.MaxLimits+1) },
	} {
		spoilt := wholeCampaign()
		spoil(&spoilt)
		found := problemsOf(t, Validate(spoilt, c.From))
		require.Len(t, found, 1)
		require.Equal(t, code, found[0].Code)
	}
}

func TestTiers(t *testing.T) {
	t.Parallel()
	want := tiersCampaign(hongbao.Tier{Amount: 500, Packets: 1}, hongbao.Tier{Amount: 50, Packets: 9})
	want.Kind = hongbao.KindCoupon
	got, err := Read(strings.NewReader(strings.NewReplacer("red_packet", "coupon", "total: 1000", "total: 950",
		"{mode: random, min: 1, max: 500}",
		"{mode: tiers, tiers: [{amount: 500, packets: 1}, {amount: 50, packets: 9}]}").Replace(whole)))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	c := wholeCampaign()
	want := Canonical(c)
	require.Equal(t, `{"id":"spring-2027","name":"Spring rain 春","kind":"red_packet","currency":"CNY","total":1000,"packets":10,`+
		`"split":{"mode":"random","min":1,"max":500},"from":"2027-02-06T12:00:00Z","to":"2027-02-06T12:10:00.5Z",`+
		`"time_zone":"Asia/Shanghai","limits":[{"by":"user","per":"campaign","max":2},{"by":"device","per":"day","max":3}],`+
		`"sponsor":"acme","durability":"fsync"}`, string(want))
	c.From = c.From.In(time.FixedZone("x", 3600)).Add(time.Microsecond)
	require.Equal(t, want, Canonical(c),
		"times with another zone or with microseconds have the same canonical form")
	require.True(t, json.Valid(want))
}

// Shards 1 and no Shards have the same canonical form. So campaigns from before Shards existed keep their hash.
func TestShardsInTheCanonicalForm(t *testing.T) {
	t.Parallel()
	const before = "d8c62feabe745e1eb138aa8c9a3f2fde0bc847aedbd5335fdbb6bad67d5bfab5"
	one := wholeCampaign()
	require.Equal(t, 1, one.Places())
	require.Equal(t, before, Commit(one, testSeed(t)))
	one.Shards = 1
	require.Equal(t, 1, one.Places())
	require.NoError(t, Validate(one, one.From), "limits by facts are allowed on one shard")
	require.Equal(t, before, Commit(one, testSeed(t)))
	require.Zero(t, Complete(one).Shards)

	read, err := Read(strings.NewReader(whole + "shards: 1\n"))
	require.NoError(t, err)
	require.Equal(t, wholeCampaign(), read)

	many, err := Read(strings.NewReader(strings.Replace(whole, "  - {by: device, per: day, max: 3}\n", "", 1) +
		"shards: 64\n"))
	require.NoError(t, err)
	require.Equal(t, 64, many.Places())
	require.Contains(t, string(Canonical(many)), `"durability":"fsync","shards":64}`)
	again, err := Read(strings.NewReader(string(Canonical(many))))
	require.NoError(t, err)
	require.Equal(t, many, again)

	many.Shards = -1
	require.Equal(t, "shards_out_of_range", problemsOf(t, Validate(many, many.From))[0].Code)
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(whole))
	f.Add(Canonical(wholeCampaign()))
	f.Add(Canonical(tiersCampaign(hongbao.Tier{Amount: 5, Packets: 2})))
	f.Add([]byte("id: &a [*a]\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(strings.NewReader(string(data)))
		if err != nil {
			problemsOf(t, err)
			return
		}
		require.NoError(t, Validate(c, c.From))
		again, err := Read(strings.NewReader(string(Canonical(c))))
		require.NoError(t, err)
		require.Equal(t, c, again)
		err = checkZone(c.TimeZone)
		require.NoError(t, err)
	})
}
