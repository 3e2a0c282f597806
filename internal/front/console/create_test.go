package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

const rain = `id: rain
name: Spring <rain>
kind: red_packet
currency: CNY
total: 2000
packets: 20
split: {mode: random, min: 1, max: 500}
window: {from: 2026-02-17T12:00:00Z, to: 2026-02-17T13:00:00Z}
sponsor: acme
`

const coupons = `id: tea
name: Tea
kind: coupon
packets: 20
split: {mode: even}
window: {from: 2026-02-17T12:00:00Z, to: 2026-02-17T13:00:00Z}
sponsor: acme
`

// checked checks what the form has, and returns the form with the button "create".
func (f *fixture) checked(t *testing.T, key string, form url.Values) url.Values {
	t.Helper()
	w := f.ask(t, key, "/create", form)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	button := regexp.MustCompile(`id="create" name="create" value="([0-9a-f]{64})"`).FindStringSubmatch(w.Body.String())
	require.NotEmpty(t, button, w.Body.String())
	out := url.Values{"create": {button[1]}}
	for name, values := range form {
		out[name] = values
	}
	return out
}

// The button "check" shows the amounts in major units and creates nothing.
func TestACampaignIsChecked(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Equal(t, http.StatusForbidden, f.ask(t, "operator", "/create", nil).Code)
	require.Contains(t, f.ask(t, "treasurer", "/create", nil).Body.String(), `id="check"`)
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {rain}, "check": {"1"}})
	require.Equal(t, http.StatusOK, w.Code)
	for _, part := range []string{"<b>Spring &lt;rain&gt;</b>", "20 packets, 20.00 CNY in all.", "Create, funded by acme with 20.00 CNY",
		"17 Feb 2026 13:00:00", "Tuesday", "That is past: users can win as soon as", "after 1 h", "Each user gets at most 1 packet.", "An example with a seed that is thrown away: 20 packets",
		"acme has funded 340,000.00 CNY so far, less what came back; with this campaign 340,020.00 CNY.",
		"Nothing is created yet", "\nname: Spring &lt;rain&gt;\n"} {
		require.Contains(t, w.Body.String(), part)
	}
	require.NotContains(t, f.ask(t, "treasurer:rain", "/create", url.Values{"spec": {rain}, "check": {"1"}}).Body.String(), "so far",
		"a scope hides what the sponsor has funded in other campaigns")
	other := strings.ReplaceAll(rain, "rain", "other")
	w = f.ask(t, "treasurer", "/create", url.Values{"spec": {other}, "check": {"1"}})
	require.Contains(t, w.Body.String(), "already has this campaign")
	require.Empty(t, f.did)
}

// What is created is what was checked. After a change the page shows the check again.
func TestOnlyWhatWasCheckedIsCreated(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	form := f.checked(t, "treasurer", url.Values{"spec": {rain}})
	form.Set("spec", strings.Replace(rain, "total: 2000", "total: 2001", 1))
	w := f.ask(t, "treasurer", "/create", form)
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "The specification has changed since the check.")
	require.Contains(t, w.Body.String(), "20.01 CNY in all.")
	w = f.ask(t, "treasurer", "/create", url.Values{"spec": {rain}})
	require.Equal(t, http.StatusOK, w.Code, "without a check")
	require.Empty(t, f.did)
	form.Set("spec", "# only a comment\n"+rain)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "treasurer", "/create", form).Code)
	require.Len(t, f.did, 1)
}

// If the form or the ledger rejects a specification, the form keeps the text and shows the reason.
func TestAWrongSpecificationStays(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	stays := func(spec string, status int, why string) {
		t.Helper()
		for _, button := range []string{"create", "check"} {
			w := f.ask(t, "treasurer", "/create", url.Values{"spec": {spec}, button: {"1"}})
			require.Equal(t, status, w.Code, why)
			require.Contains(t, w.Body.String(), why)
			require.Contains(t, w.Body.String(), "sponsor: acme")
			require.Contains(t, w.Body.String(), `aria-invalid="true"`)
		}
	}
	stays(strings.Replace(rain, "total: 2000", "total: 20.5", 1), http.StatusBadRequest, "total: amount_not_integer")
	stays(rain+"codes: {file: /etc/passwd}\n", http.StatusBadRequest, "codes")
	stays(coupons+"codes: {file: codes.csv}\n", http.StatusBadRequest, "give codes.pattern")
	f.refuses = hongbao.Errorf(hongbao.ClassConflict, "there is another")
	stays(rain, http.StatusConflict, "There is another")
	f.refuses = hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
	stays(rain, http.StatusServiceUnavailable, "The ledger is down")
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {strings.Repeat("#", 2*maxForm)}})
	require.Contains(t, w.Body.String(), "more than 65536 bytes")
	require.Empty(t, f.did)
}

// Creating the same campaign twice leads to the same page. A job stores any number of codes.
func TestACampaignIsCreatedTwice(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for done, says := range map[string]string{"created": "The ledger has the campaign", "there": "Nothing was changed"} {
		require.Contains(t, f.ask(t, "treasurer", "/campaigns/rain?done="+done, nil).Body.String(), says)
	}
	for _, done := range []string{"created", "there"} {
		w := f.ask(t, "treasurer", "/create", f.checked(t, "treasurer", url.Values{"spec": {rain}}))
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "/campaigns/rain?done="+done, w.Header().Get("Location"))
	}
	w := f.ask(t, "treasurer", "/create", f.checked(t, "treasurer", url.Values{"spec": {coupons + "codes: {pattern: TEA-########}\n"}}))
	path := w.Header().Get("Location")
	require.Contains(t, f.ask(t, "treasurer", path, nil).Body.String(), `href="/campaigns/tea"`)
	for key, status := range map[string]int{"operator": 200, "operator:tea": 200, "operator:rain": 404} {
		require.Equal(t, status, f.ask(t, key, path, nil).Code, key)
	}
	f.jobs.Close()
	require.Equal(t, []string{"key-treasurer create rain of 2000", "key-treasurer create rain of 2000",
		"key-treasurer create tea of 0", "key-treasurer codes of tea"}, f.did)
}

// If the ledger has the campaign but no job can store the codes, the page says so and keeps the text.
func TestCodesCanNotBegin(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	goOn := make(chan struct{})
	defer close(goOn)
	for i, err := 0, error(nil); err == nil; i++ {
		_, err = f.jobs.Start(t.Context(), &jobs.Order{Name: fmt.Sprint("something long ", i), Do: func(context.Context, *jobs.Report) error {
			<-goOn
			return nil
		}})
	}
	w := f.ask(t, "treasurer", "/create", f.checked(t, "treasurer", url.Values{"spec": {coupons + "codes: {pattern: TEA-########}\n"}}))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	for _, part := range []string{"The ledger has the campaign and its money, but not its codes. Press Create again.", "This server already runs 64 jobs",
		"sponsor: acme"} {
		require.Contains(t, w.Body.String(), part)
	}
}

// The page names every problem of a specification, even if there are many. A caller without the permission
// reads the reason.
func TestAllThatIsWrongIsNamed(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	wrong := rain
	for i := range 40 {
		wrong += fmt.Sprintf("unknown_field_%d: 1\n", i)
	}
	w := f.ask(t, "treasurer", "/create", url.Values{"spec": {wrong}, "check": {"1"}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	page, _, _ := strings.Cut(w.Body.String(), "<textarea")
	_, answer, _ := strings.Cut(w.Body.String(), `id="answer"`)
	require.NotContains(t, page, "unknown_field_39")
	require.Contains(t, answer, "unknown_field_0")
	require.Contains(t, answer, "unknown_field_39")
	w = f.ask(t, "treasurer:tea", "/create", url.Values{"spec": {rain}})
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "Your key is not valid for a campaign with this id.")
	require.Equal(t, 1, f.denied)
}
