//go:build web

package main

import (
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
)

// A person breaks a development server in a real Chromium, and the page tells by itself what becomes of the grants.
func TestConsoleFaults(t *testing.T) {
	tmp, _ := demoEnv(t)
	d := startDev(t, []string{"TMPDIR=" + tmp}, "--crowd", "100")
	b := newBrowser(t, d.Console)
	b.logIn(d.Key)
	b.press(`nav a[href="/faults"]`)
	b.sees("#status", "Live")
	b.sees("main", "Nothing was broken yet.")
	b.press("#f-" + faults.CutKafka)
	b.sees("#story", "grants wait, the oldest for")
	b.press("#f-" + faults.KillWorker)
	b.sees("#story", "for sink kafka; its lease ends in")
	b.do(chromedp.WaitVisible("#f-" + faults.MendKafka))
	b.press("#f-" + faults.MendKafka)
	b.sees("#story", "held is done")
	b.seesTimes(2, "#story", "The audit agrees") // after the kill, and after the cut
	b.press("#f-" + faults.LoseAnswers)
	b.sees("#story", "answers were lost (")
	b.seesTimes(3, "#story", "The audit agrees")
	b.check("faults")
	b.press(`form[action="/logout"] button`)
	require.Contains(t, b.path(), "/login")
	d.end(syscall.SIGTERM)
}
