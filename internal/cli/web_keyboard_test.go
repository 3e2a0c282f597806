//go:build web

package cli

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A user works with the keyboard or a screen reader. They keep the focus and the scroll position while the page
// updates, and can hear the rates.
func TestConsoleByKeyboard(t *testing.T) {
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	b := newBrowser(t, "http://"+control)
	d.campaign("rain", 200, 20_000)
	w := d.start("work")
	grab := func(user string) { require.Equal(t, "granted", g.grab("rain", user, "r1").Outcome) }
	grab("first")
	d.quiet()
	d.ok("audit") // the page shows the audit's age, which changes each second
	b.logIn(d.key("operator"))

	b.open("/campaigns/rain")
	b.sees("#live", "As a table")
	b.tabsTo("#d-spread > summary")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.changes(func(i int) { grab(fmt.Sprint("summary-", i)) })
	b.sees("#granted", "4")
	require.True(t, b.at("#d-spread > summary"), "the focus has stayed")
	require.True(t, get(b, chromedp.Evaluate[bool](`document.querySelector("#d-spread").open`)))
	b.sees("#rates-now", "Each second")
	require.Equal(t, "rates-now", get(b, chromedp.Evaluate[string](
		`document.querySelector("#rates[role=img]").getAttribute("aria-describedby")`)))
	require.True(t, get(b, chromedp.Evaluate[bool](
		`!document.querySelector("#rates-now").closest("[role=img], [aria-live]")`)), "a screen reader reads the rates only on request")

	for _, path := range []string{"/", "/sinks"} {
		b.open(path)
		b.sees("#status", "Live")
		// Make the table wider than its region, as a long name or a large font does.
		get(b, chromedp.Evaluate[int](`[...document.styleSheets].at(-1).insertRule(".scroll table { width: 200rem }")`))
		b.tabsTo("#live [role=region]")
		get(b, chromedp.Evaluate[int](`document.activeElement.scrollLeft = 100`))
		b.changes(func(i int) { grab(fmt.Sprint(path, "-", i)) })
		require.True(t, b.at("#live [role=region]"), path)
		require.Equal(t, 100, get(b, chromedp.Evaluate[int](`document.activeElement.scrollLeft`)), path)
	}
	w.Kill()

	b.open("/")
	b.tabsTo("#c-rain")
	d.campaign("snow", 20, 2_000)
	b.seesTimes(3, "#live", "Raining") // the heading, too
	require.Equal(t, "c-snow", get(b, chromedp.Evaluate[string](`document.querySelector("#live a").id`)), "it is above")
	require.True(t, b.at("#c-rain"), "the focus has moved with the link")
}

// tabsTo presses Tab until the element has the focus.
func (b *browser) tabsTo(selector string) {
	b.t.Helper()
	for range 50 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if b.at(selector) {
			return
		}
	}
	require.Fail(b.t, "Tab does not reach the element", selector)
}

// at reports whether the element has the focus and shows it.
func (b *browser) at(selector string) bool {
	b.t.Helper()
	return get(b, chromedp.Evaluate[bool](fmt.Sprintf(`document.activeElement.matches(%q + ":focus-visible")`, selector)))
}

// changes calls do after each of three live updates of the page, and returns after a fourth update. So at least two
// updates show what do has changed.
func (b *browser) changes(do func(i int)) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	messages := chromedp.Events(ctx, network.EventSourceMessageReceived)
	looks := 0
	for e, err := range messages {
		require.NoError(b.t, err)
		if e.EventName != "live" {
			continue
		}
		if looks == 3 {
			return
		}
		do(looks)
		looks++
	}
}
