package console

import (
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// filled is a form as a person fills it in.
func filled() url.Values {
	return url.Values{"tab": {"form"}, "id": {"rain"}, "name": {"Spring rain"}, "kind": {"red_packet"}, "mode": {"random"},
		"currency": {"CNY"}, "total": {"20.00"}, "packets": {"20"}, "min": {"0.01"}, "max": {"5.00"},
		"from": {"2026-02-17T20:00:00"}, "to_time": {"2026-02-17T21:00:00"}, "zone": {"Asia/Shanghai"}, "sponsor": {"acme"},
		"limit_by": {"user", "", "device"}, "limit_per": {"campaign", "campaign", "day"}, "limit_max": {"1", "", "3"},
		"tier_amount": {"", "1.00"}, "tier_packets": {"", "20"}, "durability": {"fast"}}
}

func with(form url.Values, pairs ...string) url.Values {
	out := maps.Clone(form)
	for i := 0; i < len(pairs); i += 2 {
		out.Set(pairs[i], pairs[i+1])
	}
	return out
}

// A form creates what it says, and its mistakes are beside their fields. Nothing that was typed is lost.
func TestACampaignIsCreatedByTheForm(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	page := f.ask(t, "treasurer", "/create", with(filled(), "check", "1")).Body.String()
	for _, part := range []string{"20 packets, 20.00 CNY in all.", "17 Feb 2026 20:00:00", "Asia/Shanghai", "Each device gets at most 3 packets a day."} {
		require.Contains(t, page, part)
	}
	w := f.ask(t, "treasurer", "/create", f.checked(t, "treasurer", with(filled(), "check", "1")))
	require.Equal(t, "/campaigns/rain?done=created", w.Header().Get("Location"))
	require.Equal(t, []string{"key-treasurer create rain of 2000"}, f.did)

	form := with(filled(), "total", "20.005", "to_time", "2026-02-17T19:00:00", "name", "", "zone", "Mars/<b>", "check", "1")
	form["limit_max"] = []string{"1", "", "many"}
	w = f.ask(t, "treasurer", "/create", form)
	require.Equal(t, http.StatusBadRequest, w.Code)
	page = w.Body.String()
	for _, part := range []string{`Check: 4 fields to correct`, `<a href="#total">This is not an amount in CNY. Write it as 12.50.</a>`, `value="20.005" inputmode="decimal" autocomplete="off" aria-describedby="h-total" aria-invalid="true"`,
		`<a href="#name">This is required.</a>`, `<a href="#zone">There is no time zone of this name.`, `<a href="#limit-1-max">Write a whole number`,
		`value="Mars/&lt;b&gt;"`, `value="2026-02-17T19:00:00"`, `value="many"`, `value="acme"`} {
		require.Contains(t, page, part)
	}
	for _, link := range regexp.MustCompile(`<a href="#([^"]+)">`).FindAllStringSubmatch(page, -1) {
		require.Contains(t, page, `id="`+link[1]+`"`)
	}
	page = f.ask(t, "treasurer", "/create", with(filled(), "to_time", "2026-02-17T19:00:00", "check", "1")).Body.String()
	require.Contains(t, page, `<a href="#to">It ends before it starts.</a>`)
	f.refuses = hongbao.Errorf(hongbao.ClassConflict, "there is another")
	w = f.ask(t, "treasurer", "/create", with(filled(), "check", "1"))
	require.Equal(t, http.StatusConflict, w.Code)
	require.Contains(t, w.Body.String(), `<a href="#id">Another campaign has this id`)
	f.refuses = &campaign.SpecError{Problems: []campaign.Problem{{Path: "window.to", Code: "window_past"}, {Path: "shards", Code: "shards_above_deployment"}}}
	page = f.ask(t, "treasurer", "/create", with(filled(), "check", "1")).Body.String()
	require.Contains(t, page, `<a href="#to">The end is in the past.</a>`)
	require.Contains(t, page, `<a href="#shards">The deployment has fewer shards.</a>`)
	require.Len(t, f.did, 1)
}

// The buttons of the form change lines, templates and tabs, and keep what was typed.
func TestTheFormIsEdited(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	edit := func(form url.Values) string {
		t.Helper()
		w := f.ask(t, "treasurer", "/create", form)
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	typed := with(filled(), "total", "not <yet>", "spec", "# my text\nid: [")
	for _, button := range [][2]string{{"add", "limit"}, {"add", "tier"}, {"remove_limit", "1"}, {"remove_tier", "0"}, {"template", "coupons"}, {"template", "tiers"}, {"to", "form"}} {
		page := edit(with(typed, button[0], button[1]))
		for _, part := range []string{`value="not &lt;yet&gt;"`, `value="2026-02-17T20:00:00"`, `value="acme"`, `value="device"`, `name="tier_amount" value="1.00"`, "# my text\nid: ["} {
			require.Contains(t, page, part, button)
		}
	}
	require.Equal(t, 4, strings.Count(edit(with(typed, "add", "limit")), `name="limit_by"`))
	require.Equal(t, 2, strings.Count(edit(with(typed, "remove_limit", "1")), `name="limit_by"`))
	require.Equal(t, 3, strings.Count(edit(with(typed, "add", "tier")), `name="tier_amount"`))
	require.Equal(t, 1, strings.Count(edit(with(typed, "remove_tier", "0")), `name="tier_amount"`))
	require.Contains(t, edit(with(typed, "template", "coupons")), `id="kind-coupon" value="coupon" checked`)
	for _, button := range [][2]string{{"remove_tier", "2"}, {"remove_limit", "-1"}, {"remove_limit", "x"}, {"template", "<b>"}} {
		require.Equal(t, http.StatusBadRequest, f.ask(t, "treasurer", "/create", with(typed, button[0], button[1])).Code, "it is a check")
	}
	require.Empty(t, f.did)
}

// A change of the tab loses nothing: mistakes of the form are in the text, and a text that no form can hold stays.
func TestTheTabsAreOneSpecification(t *testing.T) {
	t.Parallel()
	from := func(form url.Values, to string) *newCampaign {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/create", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		require.NoError(t, r.ParseForm())
		v := &newCampaign{}
		v.read(r)
		require.True(t, v.edit(url.Values{"to": {to}}))
		return v
	}
	typed := with(filled(), "total", "2,0", "to_time", "later")
	text := from(typed, "yaml")
	require.True(t, text.YAML)
	require.Contains(t, text.Text, "total: 2,0\n")
	require.Contains(t, text.Text, "to: later\n")
	back := from(with(typed, "tab", "yaml", "spec", strings.ReplaceAll(text.Text, "\n", "\r\n")), "form")
	require.False(t, back.YAML)
	require.Equal(t, text.Form, back.Form)

	commented := "# checked by ann\n" + rain
	form := from(with(typed, "tab", "yaml", "spec", commented), "form")
	require.False(t, form.YAML)
	require.Equal(t, "20.00", form.Form.Total)
	require.Equal(t, "2026-02-17T12:00:00", form.Form.From)
	unchanged := form.Form
	again := url.Values{"tab": {"form"}, "spec": {commented}, "id": {unchanged.ID}, "name": {unchanged.Name}, "kind": {unchanged.Kind},
		"currency": {unchanged.Currency}, "total": {unchanged.Total}, "packets": {unchanged.Packets}, "mode": {unchanged.Mode}, "min": {unchanged.Min}, "max": {unchanged.Max},
		"from": {unchanged.From}, "to_time": {unchanged.To}, "zone": {unchanged.TimeZone}, "sponsor": {unchanged.Sponsor}, "durability": {unchanged.Durability},
		"limit_by": {"user"}, "limit_per": {"campaign"}, "limit_max": {"1"}}
	require.Equal(t, commented, from(again, "yaml").Text, "the comment stays")
	require.Contains(t, from(with(again, "total", "21"), "yaml").Text, "total: 2100\n")

	for text, why := range map[string]string{"id: [": "The form opens when the text has no mistakes.",
		coupons + "codes: {file: codes.csv}\n":                                          "The form opens when the text has no mistakes.",
		strings.Replace(rain, "12:00:00Z", "12:00:00.001Z", 1) + "time_zone: Nowhere\n": "The form opens when the text has no mistakes."} {
		stays := from(with(typed, "tab", "yaml", "spec", text), "form")
		require.True(t, stays.YAML)
		require.Equal(t, text, stays.Text)
		require.Equal(t, why, stays.Wrong.Text)
	}
	twice := strings.Replace(rain, "2026-02-17T12:00:00Z", "2025-10-26T00:30:00Z", 1) + "time_zone: Europe/Berlin\n"
	stays := from(with(typed, "tab", "yaml", "spec", twice), "form")
	require.True(t, stays.YAML)
	require.Equal(t, "The form can't hold this specification: check and create it here.", stays.Wrong.Text)
}

// Each problem that a form can have has words of its own.
func TestEveryProblemHasASentence(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../campaign/doc.go")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(doc), "code                            what\n")
	require.True(t, found)
	// Texts have these, or files of codes.
	others := []string{"too_large", "not_utf8", "syntax", "document_required", "more_than_one_document", "too_deep", "alias_refused",
		"tag_refused", "wrong_type", "unknown_field", "duplicate_field", "time_leap_second", "codes_not_one", "code_file_invalid",
		"code_count_mismatch", "code_empty", "code_invalid", "code_duplicate", "user_limit_required"}
	codes := regexp.MustCompile(`(?m)^//\t([a-z_]+) `).FindAllStringSubmatch(table, -1)
	require.Greater(t, len(codes), 40)
	for _, code := range codes {
		s := sentenceOf(&ops.CampaignForm{Currency: "CNY"}, campaign.Problem{Code: code[1], Message: "English"})
		require.Equal(t, s.Original == "", !slices.Contains(others, code[1]), code[1])
	}
}
