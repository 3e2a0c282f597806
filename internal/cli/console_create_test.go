package cli

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// sends posts a form, and returns the status, the target of the redirect, and the text of the page.
func (v *visitor) sends(path string, form url.Values) (status int, to, text string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+path, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	r.Header.Set("Authorization", "Bearer "+v.key)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(v.t, err)
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	require.NoError(v.t, err)
	return res.StatusCode, res.Header.Get("Location"), string(all)
}

// checked checks a specification, and returns the form that creates it.
func (v *visitor) checked(spec string) url.Values {
	v.t.Helper()
	status, _, page := v.sends("/create", url.Values{"spec": {spec}, "check": {"1"}})
	require.Equal(v.t, http.StatusOK, status, page)
	button := regexp.MustCompile(`name="create" value="([0-9a-f]{64})"`).FindStringSubmatch(page)
	require.NotEmpty(v.t, button)
	return url.Values{"spec": {spec}, "create": {button[1]}}
}

// In the console a treasurer checks, creates and loads a campaign. An operator may only load it.
func TestConsoleCreates(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("treasurer")}
	text, err := os.ReadFile(spec(t, "rain", 20, 2_000))
	require.NoError(t, err)
	windows := strings.ReplaceAll(string(text), "\n", "\r\n") // browsers send lines that end in CRLF
	status, _, page := v.sends("/create", url.Values{"spec": {windows}, "check": {"1"}})
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, page, "20 packets, 20.00 CNY in all.")
	require.Contains(t, page, "acme has funded 0.00 CNY so far, less what came back; with this campaign 20.00 CNY.")
	require.Contains(t, page, "Nothing is created yet")
	v.sees("/", "There is no campaign yet.", `href="/create"`)
	past := regexp.MustCompile(`\d{4}-`).ReplaceAllString(windows, "2001-")
	for _, button := range []string{"check", "create"} {
		status, _, page = v.sends("/create", url.Values{"spec": {past}, button: {"1"}})
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, page, "window_past")
	}
	for _, says := range []string{"The ledger has the campaign and its money", "The ledger already had this campaign"} {
		status, to, _ := v.sends("/create", v.checked(windows))
		require.Equal(t, http.StatusSeeOther, status)
		v.sees(to, "Not loaded", "Load the campaign", says)
	}
	_, _, page = v.sends("/create", url.Values{"spec": {windows}, "check": {"1"}})
	require.Contains(t, page, "already has this campaign")
	require.Contains(t, page, "acme has funded 20.00 CNY so far, less what came back.")
	other := strings.Replace(windows, "packets: 20", "packets: 19", 1)
	status, _, page = v.sends("/create", url.Values{"spec": {other}})
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, page, "with another specification")
	require.Contains(t, page, "packets: 19", "the text stays")

	operator := &visitor{t, v.base, d.key("operator")}
	status, _, _ = operator.sends("/create", url.Values{"spec": {windows}})
	require.Equal(t, http.StatusForbidden, status)
	_, to, _ := operator.sends("/campaigns/rain/load", nil)
	testkit.Eventually(t, 30*time.Second, func() bool { return strings.Contains(operator.sees(to), "Done in") }, "it is loaded")
	require.NotContains(t, operator.sees("/campaigns/rain", "Raining"), "Load the campaign")
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	journal := d.ok("journal")
	for _, action := range []string{"create_campaign", "load_campaign", "denied"} {
		require.Contains(t, journal, action)
	}
}

// In the console a treasurer closes, refunds and reveals a campaign, and cancels one that was never loaded. Each step
// names its amount first. An operator has no buttons for them.
func TestConsoleEnds(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000, "mode: random, min: 1, max: 1000", "mode: even")
	d.ok("campaign", "create", spec(t, "mistake", 10, 1_000))
	d.ok("grab", "rain", "u1")
	control := testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	v := &visitor{t, "http://" + control, d.key("treasurer")}
	operator := &visitor{t, v.base, d.key("operator")}
	do := func(path string, form url.Values, says ...string) {
		t.Helper()
		status, to, text := v.sends(path, form)
		require.Equal(t, http.StatusSeeOther, status, text)
		v.sees(to, says...)
	}
	v.sees("/campaigns/mistake", `href="/campaigns/mistake/end"`)
	v.sees("/campaigns/mistake/end", "returns 10.00 CNY to the sponsor", "This can&#39;t be undone")
	do("/campaigns/mistake/cancel", url.Values{"confirm": {"mistake"}}, "Cancelled: the sponsor has the money back.")

	v.sees("/campaigns/rain/end", "1 of 10", "1.00 CNY", "The close ends it now", `id="close"`)
	require.NotContains(t, operator.sees("/campaigns/rain/end"), `id="close"`)
	require.NotContains(t, operator.sees("/campaigns/rain"), `href="/campaigns/rain/end"`)
	status, _, _ := operator.sends("/campaigns/rain/close", url.Values{"early": {"1"}})
	require.Equal(t, http.StatusForbidden, status)
	status, _, text := v.sends("/campaigns/rain/close", url.Values{"confirm": {"rain"}})
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, text, "its window is open until")
	do("/campaigns/rain/close", url.Values{"early": {"1"}, "confirm": {"rain"}}, "Closed.", "Workers are still settling grants")
	d.start("work")
	d.quiet()
	v.sees("/campaigns/rain/end", "The refund returns 9.00 CNY to the sponsor: 9 packets", "Type the amount to confirm: 9.00")
	status, _, _ = v.sends("/campaigns/rain/refund", url.Values{"amount": {"9.01"}, "currency": {"CNY"}})
	require.Equal(t, http.StatusConflict, status)
	do("/campaigns/rain/refund", url.Values{"amount": {"9.00"}, "currency": {"CNY"}}, "Refunded: the sponsor has the money back.", "The sponsor has 9.00 CNY back")
	do("/campaigns/rain/reveal", url.Values{"confirm": {"rain"}}, "The seed is public.", "The campaign is refunded, and its seed is public.")
	require.EqualValues(t, 900, d.show("rain").Ledger.Refunded)
	require.Contains(t, d.ok("audit", "--wait", "30s"), "agrees")
	require.Contains(t, d.ok("journal"), "reveal_campaign")
}
