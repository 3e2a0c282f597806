package campaign

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// change is a specification with one mistake: in the text whole, new replaces old. path and code are those of the
// expected problem.
type change struct{ name, old, new, path, code string }

var changes = []change{
	{"empty", whole, "", "", "document_required"},
	{"only a comment", whole, "# nothing\n", "", "document_required"},
	{"not UTF-8", "Spring", "\xff\xfe", "", "not_utf8"},
	{"bad YAML", "id: ", "id: [", "", "syntax"},
	{"bad JSON", whole, `{"id": "a",, }`, "", "syntax"},
	{"trailing garbage after JSON", whole, `{"id": "a"} x`, "", "more_than_one_document"},
	{"two documents", "durability: fsync", "durability: fsync\n---\nid: b", "", "more_than_one_document"},
	{"10,000 levels of JSON", whole, strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000), "", "too_deep"},
	{"100,000 open brackets", whole, strings.Repeat("[", 100_000), "", "syntax"},
	{"9 levels of YAML", "id: spring-2027", "id: [[[[[[[[[a]]]]]]]]]", "", "too_deep"},
	{"anchor", "sponsor: acme", "sponsor: &a acme", "", "alias_refused"},
	{"alias", "sponsor: acme", "sponsor: &a acme\nx: *a", "", "alias_refused"},
	{"tag", "total: 1000", `total: !!int "1000"`, "", "tag_refused"},
	{"a list", whole, "[1]", "", "wrong_type"},
	{"a null in JSON", whole, `{"id": null}`, "id", "wrong_type"},
	{"a bool in JSON", whole, `{"name": true}`, "name", "wrong_type"},
	{"a number in JSON", whole, `{"sponsor": 1}`, "sponsor", "wrong_type"},
	{"a text as amount in JSON", whole, `{"total": "100"}`, "total", "amount_not_integer_minor_units"},
	{"an exponent in JSON", whole, `{"total": 1E400}`, "total", "amount_not_integer_minor_units"},
	{"a duplicate key in JSON", whole, `{"id": "a", "\u0069d": "a"}`, "id", "duplicate_field"},
	{"tiers is a map", "{mode: random, min: 1, max: 500}", "{mode: tiers, tiers: {}}", "split.tiers", "wrong_type"},
	{"only a document's mark", whole, "---\n", "", "wrong_type"},
	{"only a directive", whole, "%YAML 1.1\n---\n...\n", "", "wrong_type"},
	{"a scalar", whole, "hello", "", "wrong_type"},
	{"split is a text", "split: {mode: random, min: 1, max: 500}", "split: even", "split", "wrong_type"},
	{"limits is a map", "limits:\n  - {by: user, per: campaign, max: 2}\n  - {by: device, per: day, max: 3}", "limits: {}",
		"limits", "wrong_type"},
	{"limits is null", "limits:\n  - {by: user, per: campaign, max: 2}\n  - {by: device, per: day, max: 3}", "limits:",
		"limits", "wrong_type"},
	{"a limit is a number", "{by: device, per: day, max: 3}", "3", "limits[1]", "wrong_type"},
	{"id is a number", "id: spring-2027", "id: 0", "id", "wrong_type"},
	{"sponsor is a list", "sponsor: acme", "sponsor: [acme]", "sponsor", "wrong_type"},
	{"unknown key", "sponsor: acme", "sponsor: acme\ncolour: red", "", "unknown_field"},
	{"wrong case", "sponsor: acme", "Sponsor: acme", "", "unknown_field"},
	{"wrong case inside", "mode: random", "Mode: random", "split", "unknown_field"},
	{"merge key", "sponsor: acme", "sponsor: acme\n<<: {id: b}", "", "unknown_field"},
	{"key is a map", "sponsor: acme", "sponsor: acme\n? {a: b}\n: c", "", "unknown_field"},
	{"duplicate key", "sponsor: acme", "sponsor: acme\nsponsor: acme", "sponsor", "duplicate_field"},
	{"duplicate key inside", "mode: random", "mode: random, mode: random", "split.mode", "duplicate_field"},
	{"from twice", "sponsor: acme", "sponsor: acme\nfrom: 2027-02-06T20:00:00+08:00", "window.from", "duplicate_field"},
	{"no id", "id: spring-2027\n", "", "id", "required"},
	{"empty name", "name: Spring rain 春", `name: ""`, "name", "required"},
	{"no kind", "kind: red_packet\n", "", "kind", "required"},
	{"no currency", "currency: CNY\n", "", "currency", "required"},
	{"no split", "split: {mode: random, min: 1, max: 500}\n", "", "split.mode", "required"},
	{"no sponsor", "sponsor: acme\n", "", "sponsor", "required"},
	{"no from", "from: 2027-02-06T20:00:00+08:00, ", "", "window.from", "required"},
	{"no by", "by: device, ", "", "limits[1].by", "required"},
	{"no tiers", "{mode: random, min: 1, max: 500}", "{mode: tiers}", "split.tiers", "required"},
	{"empty zone", "Asia/Shanghai", `""`, "time_zone", "required"},
	{"id 0", "id: spring-2027", `id: "0"`, "id", "id_invalid"},
	{"id -1", "id: spring-2027", `id: "-1"`, "id", "id_invalid"},
	{"id 2^64", "id: spring-2027", `id: "18446744073709551616"`, "id", "id_invalid"},
	{"id SQL", "id: spring-2027", `id: "1 or 1=1"`, "id", "id_invalid"},
	{"id path", "id: spring-2027", `id: ../x`, "id", "id_invalid"},
	{"id hash tag", "id: spring-2027", `id: "{1}"`, "id", "id_invalid"},
	{"id star", "id: spring-2027", `id: "*"`, "id", "id_invalid"},
	{"name with a line", "name: Spring rain 春", `name: "a\n{\"level\":\"error\"}"`, "name", "name_invalid"},
	{"name that turns text around", "Spring rain 春", "rain \u202e001", "name", "name_invalid"},
	{"name with an isolate", "Spring rain 春", "\u2066rain", "name", "name_invalid"},
	{"name too long", "Spring rain 春", strings.Repeat("春", 67), "name", "name_invalid"},
	{"kind", "red_packet", "lottery", "kind", "kind_unknown"},
	{"lower-case currency", "CNY", "cny", "currency", "currency_unknown"},
	{"unknown currency", "CNY", "ABC", "currency", "currency_unknown"},
	{"gold", "CNY", "XAU", "currency", "currency_unknown"},
	{"mixed currency", "CNY", "CNY USD", "currency", "currency_unknown"},
	{"coupon without currency", "kind: red_packet\ncurrency: CNY", "kind: coupon", "currency", "currency_required"},
	{"sponsor with a space", "acme", "acme corp", "sponsor", "sponsor_invalid"},
	{"sponsor is none", "acme", `"-"`, "sponsor", "sponsor_invalid"},
	{"durability", "fsync", "forever", "durability", "durability_unknown"},
	{"packets 1.5", "packets: 10", "packets: 1.5", "packets", "not_integer"},
	{"packets quoted", "packets: 10", `packets: "10"`, "packets", "not_integer"},
	{"packets 0", "packets: 10", "packets: 0", "packets", "packets_out_of_range"},
	{"packets -1", "packets: 10", "packets: -1", "packets", "packets_out_of_range"},
	{"packets absent", "packets: 10\n", "", "packets", "packets_out_of_range"},
	{"packets 10,000,001", "packets: 10", "packets: 10000001", "packets", "packets_out_of_range"},
	{"packets 10^30", "packets: 10", "packets: 1" + strings.Repeat("0", 30), "packets", "packets_out_of_range"},
	{"split mode", "mode: random", "mode: fair", "split.mode", "split_mode_unknown"},
	{"min in even", "mode: random", "mode: even", "split", "not_allowed_here"},
	{"tiers in random", "max: 500", "max: 500, tiers: [{amount: 100, packets: 10}]", "split", "not_allowed_here"},
	{"random coupon", "red_packet", "coupon", "split.mode", "not_allowed_here"},
	{"even, below 1", "total: 1000\npackets: 10\nsplit: {mode: random, min: 1, max: 500}",
		"total: 9\npackets: 10\nsplit: {mode: even}", "total", "budget_too_small"},
	{"random, below min", "min: 1,", "min: 101,", "total", "budget_too_small"},
	{"random, overflow", "min: 1, max: 500", "min: 9007199254740991, max: 9007199254740991", "total", "budget_too_small"},
	{"random, above max", "max: 500", "max: 99", "total", "budget_too_large"},
	{"min above max", "min: 1,", "min: 501,", "split.min", "min_above_max"},
	{"1,001 tiers", "{mode: random, min: 1, max: 500}", "{mode: tiers, tiers: [" + strings.Repeat(
		"{amount: 1, packets: 1},", 1_001) + "]}", "split.tiers", "too_many_tiers"},
	{"tiers, packets", "{mode: random, min: 1, max: 500}", "{mode: tiers, tiers: [{amount: 200, packets: 5}]}",
		"split.tiers", "tiers_packets_mismatch"},
	{"tiers, total", "{mode: random, min: 1, max: 500}", "{mode: tiers, tiers: [{amount: 99, packets: 10}]}",
		"split.tiers", "tiers_total_mismatch"},
	{"tiers, overflow", "{mode: random, min: 1, max: 500}",
		"{mode: tiers, tiers: [{amount: 9007199254740991, packets: 10}]}", "split.tiers", "tiers_total_mismatch"},
	{"tier amount 0", "{mode: random, min: 1, max: 500}", "{mode: tiers, tiers: [{amount: 0, packets: 10}]}",
		"split.tiers[0].amount", "amount_not_positive"},
	{"no zone", "20:00:00+08:00", "20:00:00", "window.from", "time_malformed"},
	{"zone name", "20:00:00+08:00", "20:00:00 CST", "window.from", "time_malformed"},
	{"only a date", "2027-02-06T20:00:00+08:00", "2027-02-06", "window.from", "time_malformed"},
	{"30 February", "2027-02-06T20:00:00+08:00", "2027-02-30T20:00:00+08:00", "window.from", "time_malformed"},
	{"hour 24", "T20:00:00+08:00", "T24:00:00+08:00", "window.from", "time_malformed"},
	{"a unix time", "2027-02-06T20:00:00+08:00", "1801915200", "window.from", "time_malformed"},
	{"comma", "20:10:00.500", `20:10:00\,500`, "window.to", "time_malformed"},
	{"leap second", "20:10:00.500", "20:10:60", "window.to", "time_leap_second"},
	{"microseconds", "20:10:00.500", "20:10:00.500001", "window.to", "time_not_whole_ms"},
	{"year 9999", "to: 2027", "to: 9999", "window.to", "time_out_of_range"},
	{"year 0001", "from: 2027", "from: 0002", "window.from", "time_out_of_range"},
	{"end before start", "to: 2027-02-06T20:10", "to: 2027-02-06T19:10", "window", "window_reversed"},
	{"end is start", "20:10:00.500", "20:00:00", "window", "window_reversed"},
	{"401 days", "to: 2027-02-06T20:10:00.500", "to: 2028-03-13T20:00:00.001", "window", "window_too_long"},
	{"zone Local", "Asia/Shanghai", "Local", "time_zone", "time_zone_unknown"},
	{"zone of the machine", "Asia/Shanghai", "localtime", "time_zone", "time_zone_unknown"},
	{"zone with leap seconds", "Asia/Shanghai", "right/Asia/Shanghai", "time_zone", "time_zone_unknown"},
	{"zone outside", "Asia/Shanghai", "../../etc/passwd", "time_zone", "time_zone_unknown"},
	{"zone unknown", "Asia/Shanghai", "Asia/Atlantis", "time_zone", "time_zone_unknown"},
	{"17 limits", "limits:", "limits:" + strings.Repeat("\n  - {by: user, per: day, max: 1}", 15), "limits",
		"too_many_limits"},
	{"by with a capital", "by: device", "by: Device", "limits[1].by", "limit_by_invalid"},
	{"per week", "per: day", "per: week", "limits[1].per", "limit_per_unknown"},
	{"max 0", "max: 3}", "max: 0}", "limits[1].max", "limit_max_out_of_range"},
	{"max absent", ", max: 3}", "}", "limits[1].max", "limit_max_out_of_range"},
	{"same limit twice", "by: device, per: day", "by: user, per: campaign", "limits[1]", "limit_duplicate"},
	{"101 for a user", "campaign, max: 2", "campaign, max: 101", "limits[0].max", "user_hold_too_large"},
	{"9 facts", "limits:", "limits:" + facts(8), "limits", "too_many_facts"},
	{"0 shards", "sponsor:", "shards: 0\nsponsor:", "shards", "shards_out_of_range"},
	{"65 shards", "sponsor:", "shards: 65\nsponsor:", "shards", "shards_out_of_range"},
	{"shards is a text", "sponsor:", "shards: many\nsponsor:", "shards", "not_integer"},
	{"limit by device on 2 shards", "sponsor:", "shards: 2\nsponsor:", "limits[1]", "limit_needs_one_shard"},
}

func facts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n  - {by: fact%d, per: day, max: 1}", i)
	}
	return b.String()
}

// amounts has texts that are not valid amounts, each with the expected problem code.
var amounts = map[string]string{
	"1.5": "amount_not_integer_minor_units", "1e3": "amount_not_integer_minor_units",
	`"100"`: "amount_not_integer_minor_units", "1_000": "amount_not_integer_minor_units",
	"0x10": "amount_not_integer_minor_units", "+5": "amount_not_integer_minor_units",
	"0100": "amount_not_integer_minor_units", "0o17": "amount_not_integer_minor_units",
	".inf": "amount_not_integer_minor_units", ".nan": "amount_not_integer_minor_units",
	"null": "amount_not_integer_minor_units", "true": "amount_not_integer_minor_units",
	"[1]": "amount_not_integer_minor_units", "1:30": "amount_not_integer_minor_units",
	"١٢": "amount_not_integer_minor_units", "1.0": "amount_not_integer_minor_units",
	"0": "amount_not_positive", "-1": "amount_not_positive", "-0": "amount_not_positive",
	"9007199254740992": "amount_out_of_range", "9223372036854775808": "amount_out_of_range",
	"1000000000000000000000000000000": "amount_out_of_range",
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range changes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(whole, tt.old, tt.new, 1)
			require.NotEqual(t, whole, text, "the test changes nothing")
			c, err := Read(strings.NewReader(text))
			require.Zero(t, c)
			found := problemsOf(t, err)
			require.True(t, slices.ContainsFunc(found, func(p Problem) bool { return p.Path == tt.path && p.Code == tt.code }),
				"want %s: %s, got %v", tt.path, tt.code, err)
		})
	}
}

func TestReadRefusesAmounts(t *testing.T) {
	t.Parallel()
	for text, code := range amounts {
		for _, key := range []string{"total: 1000", "min: 1,", "max: 500}"} {
			name, after, _ := strings.Cut(key, ": ")
			end := strings.TrimLeft(after, "0123456789")
			_, err := Read(strings.NewReader(strings.Replace(whole, key, name+": "+text+end, 1)))
			found := problemsOf(t, err)
			require.Len(t, found, 1, "%s %s: %v", key, text, err)
			require.Equal(t, code, found[0].Code, "%s %s: %v", key, text, err)
			require.Equal(t, name, strings.TrimPrefix(found[0].Path, "split."))
		}
	}
}

func TestEveryCodeIsDocumentedAndTested(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z0-9_]+) {2,}\S`).FindAllStringSubmatch(string(source), -1) {
		documented = append(documented, m[1])
	}
	documented = slices.DeleteFunc(documented, func(code string) bool { return code == "code" })
	// These codes are tested in TestReadBounds, in TestValidate, and in TestMoreShardsThanTheDeployment of
	// internal/cli.
	tested := append([]string{"too_large", "window_past", "user_limit_required", "shards_above_deployment"},
		codeProblems...)
	for _, tt := range changes {
		tested = append(tested, tt.code)
	}
	for _, code := range amounts {
		tested = append(tested, code)
	}
	slices.Sort(tested)
	slices.Sort(documented)
	require.Equal(t, documented, slices.Compact(tested))
}
