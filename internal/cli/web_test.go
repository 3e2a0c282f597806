//go:build web

package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A person works with the console in Chromium, from the login to the audit.
func TestConsole(t *testing.T) {
	d := setup(t, options{kafka: true})
	key, control := d.key("treasurer"), testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	b := newBrowser(t, "http://"+control)
	b.logIn(key)
	b.creates(spec(t, "spring-rain", 200, 20_000))
	b.requeues(d)
	b.watchesLive(d, g)
	b.decides(d, g)
	b.pausesASink(d)
	b.audits()
	b.open("/jobs")
	b.sees("#live", "Audit")
	b.check("")
	b.open("/journal")
	b.sees("main", "decide_quarantine")
	b.check("")
	b.open("/restores")
	b.check("")
	for _, path := range []string{"/runbooks", "/runbooks/sink_down"} {
		b.open(path)
		b.check("")
	}
	b.open("/campaigns/spring-rain/end")
	b.sees("main", "Type the campaign's id to confirm")
	b.check("")
	b.press(`form[action="/logout"] button`)
	require.Contains(t, b.path(), "/login")
	b.open("/sinks")
	require.Contains(t, b.path(), "/login?to=", "the session is over")
	journal := d.ok("journal", "--json")
	id := strings.Split(key, "_")[1]
	for _, action := range []string{"create_campaign", "load_campaign", "requeue_letters", "decide_quarantine", "resume_campaign", "pause_sink", "resume_sink"} {
		require.Regexp(t, `"who": ?"key:`+id+`",\s*"action": ?"`+action+`"`, journal)
	}
}

// A page stays open while its server is replaced. It says that it has no connection. When the next server is up, the page
// updates without a reload.
func TestConsoleComesBack(t *testing.T) {
	d := setup(t, options{})
	key, control := d.key("viewer"), "--control.listen="+testkit.FreeAddr(t)
	g := d.serve(control)
	b := newBrowser(t, "http://"+strings.TrimPrefix(control, "--control.listen="))
	b.logIn(key)
	b.open("/")
	b.sees("#status", "Live")
	g.Signal(syscall.SIGTERM)
	b.sees("#status", "Connecting again")
	g.Kill()
	d.ok("campaign", "create", spec(t, "after", 20, 2_000))
	d.serve(control)
	b.sees("#live", "Spring rain") // without a reload
	b.sees("#status", "Live")
	b.check("")
}

// While Redis or the server hangs, the page says that its data is old. After its key is revoked, the page says that the
// session is over.
func TestConsoleSaysThatItIsOld(t *testing.T) {
	server := testkit.NewRedis(t, testkit.RedisOptions{})
	d := setup(t, options{redis: server})
	key, control := d.key("viewer"), testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	d.ok("campaign", "load", "rain")
	b := newBrowser(t, "http://"+control)
	b.logIn(key)
	b.open("/campaigns/rain")
	b.sees("#status", "Live")

	require.NoError(t, server.Stop())
	b.sees("#status", "could not be read")
	require.NoError(t, server.Cont())
	b.seesOnly("#status", "Live")
	g.Signal(syscall.SIGSTOP)
	b.sees("#status", "the server has said nothing since")
	g.Signal(syscall.SIGCONT)
	b.seesOnly("#status", "Live")
	b.open("/sinks")
	b.seesOnly("#status", "Live")
	d.start("work").says(`"working"`)
	b.sees("#live", "Alive")
	green := `[...document.querySelectorAll("#live .good")].some((x) => getComputedStyle(x.closest("#live")).filter === "none")`
	require.True(t, get(b, chromedp.Evaluate[bool](green)))
	require.NoError(t, server.Stop())
	b.sees("#status", "Not up to date")
	b.sees("#old", "This page is as it was at")
	require.False(t, get(b, chromedp.Evaluate[bool](green)), "an old page shows no green")
	require.NoError(t, server.Cont())
	b.seesOnly("#status", "Live")
	get(b, chromedp.Poll[bool](`!document.querySelector("#old") && !document.body.classList.contains("stale")`))
	require.True(t, get(b, chromedp.Evaluate[bool](green)))
	d.ok("key", "revoke", strings.Split(key, "_")[1])
	b.sees("#status", "Your session is over")
}

// When a session ends, an open page becomes grey at once, says so and leads to the login. The login leads back.
func TestConsoleSessionEnds(t *testing.T) {
	d := setup(t, options{})
	key, control := d.key("viewer"), testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	d.ok("campaign", "create", spec(t, "rain", 20, 2_000))
	b := newBrowser(t, "http://"+control)
	b.logIn(key)
	b.press(`button[value="zh-CN"]`)
	b.sees("h1", "入账与下游")
	for _, path := range []string{"/campaigns/rain", "/?q=rain"} {
		b.open(path)
		b.seesOnly("#status", "实时")
		d.ok("key", "revoke", strings.Split(key, "_")[1])
		b.sees("#old", "会话已结束，本页停留在")
		require.Equal(t, "会话已结束，请重新登录。", b.text("#status"))
		require.Equal(t, "grayscale(1)", get(b, chromedp.Evaluate[string](`getComputedStyle(document.getElementById("live")).filter`)))
		require.Contains(t, b.text("#live"), "Spring rain", "what it showed stays")
		b.check("")
		b.press("#old a")
		require.Equal(t, "/login?to="+url.QueryEscape(path), b.path())
		key = d.key("viewer")
		b.do(chromedp.SendKeys("#key", key))
		b.press("main button")
		require.Equal(t, path, b.path())
		b.seesOnly("#status", "实时")
	}
}

// creates enters a specification as YAML, and checks, creates and loads the campaign. After a mistake the page shows the
// errors and keeps the entered text.
func (b *browser) creates(path string) {
	b.t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(b.t, err)
	b.open("/")
	b.press("#new")
	b.check("")
	b.press("#to-yaml")
	wrong := strings.Replace(string(text), "packets: 200", "packets: many", 1)
	b.do(chromedp.SetValue("#spec", wrong))
	b.press("#check")
	b.sees("#answer", "packets: ")
	require.Equal(b.t, wrong, get(b, chromedp.Value("#spec")))
	require.True(b.t, b.at("#spec"), "the focus makes a screen reader read the mistakes")
	b.check("")
	b.do(chromedp.SetValue("#spec", string(text)))
	b.press("#to-form")
	require.Equal(b.t, "200.00", get(b, chromedp.Value("#total")))
	b.press("#check")
	b.sees("#answer", "200 packets, 200.00 CNY in all.")
	b.sees("#answer", "Nothing is created yet.")
	b.check("create")
	b.press("#create")
	b.sees("#live", "Not loaded")
	b.check("")
	b.press("#load")
	b.sees("#result", "Done in")
	b.press("#campaign")
	b.sees("#live", "Raining")
}

func (b *browser) logIn(key string) {
	b.t.Helper()
	b.open("/sinks")
	require.Equal(b.t, "/login?to="+url.QueryEscape("/sinks"), b.path())
	b.check("")
	b.do(chromedp.SendKeys("#key", "hb_wrong_wrong"))
	b.press("main button")
	require.Contains(b.t, b.text("main"), "not valid here")
	b.do(chromedp.SendKeys("#key", key))
	b.press("main button")
	require.Equal(b.t, "/sinks", b.path())
	require.Empty(b.t, get(b, chromedp.Evaluate[string]("document.cookie")), "no script reads the session")
}

// watchesLive checks that numbers and chart change without a reload while users grab and a worker delivers.
func (b *browser) watchesLive(d *deployment, g *grabber) {
	b.t.Helper()
	b.open("/")
	b.sees("#live", "Spring rain")
	b.check("campaigns")
	b.press("#c-spring-rain")
	b.sees("#status", "Live")
	b.do(chromedp.WaitVisible("#rates"))
	require.Regexp(b.t, `a second, [0-9:]+ to [0-9:]+\.$`,
		get(b, chromedp.Evaluate[string](`document.getElementById("rates").getAttribute("aria-label")`)))
	w := d.start("work")
	for wave := range 6 {
		for i := range 5 * (wave + 1) {
			user := fmt.Sprint("user-", wave, "-", i)
			require.Equal(b.t, "granted", g.grab("spring-rain", user, "r1").Outcome)
			require.Equal(b.t, "already_granted", g.grab("spring-rain", user, "r2").Outcome)
		}
		b.sees("#granted", fmt.Sprint(2+5*(wave+1)*(wave+2)/2)) // without a reload
	}
	b.sees("#verdict", "All 107 winners are paid")
	b.sees("#live", "What happened")
	b.check("campaign")
	status, _ := g.call(http.MethodGet, "/v1/campaigns/spring-rain", "k1", "user-0-0", "")
	require.Equal(b.t, http.StatusOK, status)
	d.quiet()
	w.Kill()
}

// requeues opens a dead letter from the page of sinks, and requeues it.
func (b *browser) requeues(d *deployment) {
	b.t.Helper()
	for i := range 2 {
		d.ok("grab", "spring-rain", fmt.Sprint("late-", i))
	}
	d.buried(configs.SinkBalance)
	b.open("/sinks")
	b.check("sinks")
	b.press("#dead-balance")
	b.check("letters")
	b.press("main table a")
	require.Contains(b.t, b.text("main"), "the account is closed")
	b.check("")
	b.do(chromedp.SendKeys("#why", "the account is open again"))
	b.press("#requeue")
	b.sees("#result", "Done in")
	b.open("/letters")
	b.press("#requeue-0")
	require.Regexp(b.t, `(?s)Requeue 1 dead letter.+the account is closed.+[0-9.]+ CNY.+Hongbao tries again to pay`, b.text("main"))
	b.check("")
	b.do(chromedp.SendKeys("#why", "the account is open again"))
	b.press("#requeue")
	b.sees("#result", "Done in")
	b.check("")
	b.open("/letters")
	require.Contains(b.t, b.text("main"), "There is no dead letter here.")
}

// decides voids a grant that contradicts the ledger, with a name and a reason, and resumes the campaign.
func (b *browser) decides(d *deployment, g *grabber) {
	b.t.Helper()
	w := d.start("work")
	d.quiet()
	d.plant("spring-rain", grantEntry("spring-rain", 1, "7", "thief")...)
	w.says("grant went to quarantine")
	b.open("/quarantine")
	b.check("")
	b.press("main table a")
	require.Contains(b.t, b.text("main"), "thief")
	b.check("quarantine")
	b.do(chromedp.Click(`input[value="void"]`), chromedp.SendKeys("#why", "no grab granted it"))
	b.press("#decide")
	require.Contains(b.t, b.text("#decision"), "no grab granted it")
	b.open("/campaigns/spring-rain")
	b.sees("#live", "Paused")
	b.press("#turn")
	b.sees("#live", "Raining")
	require.Equal(b.t, "granted", g.grab("spring-rain", "after", "r1").Outcome)
	d.quiet()
	w.Kill()
	b.open("/trail")
	b.do(chromedp.SendKeys("#campaign", "spring-rain"), chromedp.SendKeys("#user", "after"))
	b.press("main button")
	require.Regexp(b.t, `^after won [0-9.]+ CNY at .+, paid .+, announced .+\.$`, b.text("#say-0"))
	b.do(chromedp.Click("#stores-0 > summary"))
	require.Equal(b.t, 6, strings.Count(b.text("main"), "there\n"), b.text("main"))
	b.check("trail")
}

// pausesASink pauses a sink: its grants wait and are delivered after the resume.
func (b *browser) pausesASink(d *deployment) {
	b.t.Helper()
	w := d.start("work")
	b.open("/sinks")
	b.press("#turn-kafka")
	b.check("")
	b.do(chromedp.SendKeys("#why", "Kafka is being upgraded"))
	b.press("#pause")
	b.sees("#live", "Paused")
	d.ok("grab", "spring-rain", "patient")
	b.sees(`section[aria-labelledby="s-kafka"]`, "Waiting grants\n1")
	b.check("")
	b.press("#turn-kafka")
	b.sees(`section[aria-labelledby="s-kafka"]`, "Waiting grants\n0")
	d.quiet()
	w.Kill()
}

// audits runs an audit from the page of a campaign, and comes back. The audit finds the planted grant in the stream and in
// the topic.
func (b *browser) audits() {
	b.t.Helper()
	b.open("/campaigns/spring-rain")
	b.press("#audit")
	b.sees("main", "Verdict")
	b.check("")
	b.press("#back")
	b.sees("#verdict", "The audit at")
}
