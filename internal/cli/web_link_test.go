//go:build web

package cli

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// An operator shares a campaign. A browser without a key opens the link, sees the page and its live updates without amounts,
// and neither the address nor a log has what opens it. When the operator ends the link, the page becomes grey.
func TestConsoleLink(t *testing.T) {
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	d.ok("campaign", "load", "rain")
	b := newBrowser(t, "http://"+control)
	b.logIn(d.key("operator"))
	b.open("/campaigns/rain")
	b.press("#links")
	b.do(chromedp.SendKeys("#why", "the growth team"))
	b.press("#share")
	address := get(b, chromedp.Value("#address"))
	b.check("")
	text := address[len("http://"+control+"/watch#"):]
	require.Len(t, text, 52)

	reader := newBrowser(t, "http://"+control)
	reader.open("/watch")
	reader.check("")
	reader.do(chromedp.SetValue("#link", "wrong"))
	reader.press("main button")
	reader.sees("main", "it is incomplete, or it has ended")
	reader.open("/login")
	reader.open("/watch#" + text)
	reader.sees("#status", "Live")
	require.Equal(t, "/campaigns/rain", reader.path())
	require.NotContains(t, get(reader, chromedp.Evaluate[string]("JSON.stringify(performance.getEntries()) + document.cookie + document.referrer")), text)
	require.Equal(t, "granted", g.grab("rain", "user-1", "r1").Outcome)
	reader.seesOnly("#granted", "1") // without a reload
	require.NotContains(t, reader.text("body"), "CNY")
	reader.check("")
	reader.press("#stage")
	reader.sees("#status", "Live")
	require.Equal(t, "1", reader.text("#granted"))
	reader.open("/campaigns/rain/rain?money=1")
	reader.sees("#status", "Live")
	require.NotContains(t, reader.text("body"), "CNY")
	reader.open("/")
	require.Contains(t, reader.text("main"), "This link shows one campaign and nothing else.")
	reader.open("/campaigns/rain")
	reader.sees("#status", "Live")

	b.press("main table button")
	b.sees("main", "No link shows this campaign now.")
	reader.sees("#old", "This link has ended.")
	reader.check("")
	require.NotContains(t, g.Out.String()+g.Err.String(), text)
	journal := d.ok("journal", "--json")
	require.Regexp(t, `"action": ?"share_campaign"`, journal)
	require.NotContains(t, journal, text)
}
