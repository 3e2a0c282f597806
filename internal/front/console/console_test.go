package console

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

var pagePaths = []string{"/", "/campaigns/rain", "/sinks", "/jobs", "/letters", "/letters/kafka/0/1-1", "/quarantine",
	"/quarantine/7", "/trail?campaign=rain&user=u1", "/restores", "/journal"}

func TestPagesAreForThoseWhoLoggedIn(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, path := range pagePaths {
		w := f.ask(t, "", path, nil)
		require.Equal(t, http.StatusSeeOther, w.Code, path)
		require.Equal(t, "/login?to="+url.QueryEscape(path), w.Header().Get("Location"))
		w = f.ask(t, "viewer", path, nil)
		require.Equal(t, http.StatusOK, w.Code, "%s: %s", path, w.Body)
		require.Equal(t, policy, w.Header().Get("Content-Security-Policy"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		require.NotContains(t, w.Body.String(), "<no value>")
		for _, role := range access.Roles() {
			opens := f.ask(t, string(role), path, nil).Code == http.StatusOK
			require.Equal(t, slices.Contains(openers, role), opens, "%s opens %s", role, path)
		}
	}
	require.Equal(t, http.StatusUnauthorized, f.ask(t, "", "/events?page=/", nil).Code)
	require.Equal(t, http.StatusUnauthorized, f.ask(t, "", "/audits", url.Values{}).Code)
	for _, path := range []string{"/nothing", "/campaigns/none", "/letters/kafka/0/9-9", "/quarantine/8", "/jobs/1"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, "viewer", path, nil).Code, path)
	}
	body := f.ask(t, "viewer", "/", nil).Body.String()
	require.Contains(t, body, "&lt;b&gt;Other")
	require.Contains(t, body, "<b>key-viewer</b>viewer<br>until 2027-02-25 09:30:00 UTC")
}

// Each request of a session keeps it, except the stream of events, which an open page requests without its user.
func TestRequestsKeepTheSession(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	kept := func(session string) bool { _, ok := f.keys.kept.Load(session); return ok }
	require.Equal(t, http.StatusNotFound, f.ask(t, "viewer", "/events", nil).Code)
	require.False(t, kept(sessionOf+"viewer"))
	f.ask(t, "viewer", "/", nil)
	require.True(t, kept(sessionOf+"viewer"))
	f.ask(t, "gateway", "/", nil)
	require.False(t, kept(sessionOf+"gateway"), "a refused request keeps nothing")
}

func TestLogin(t *testing.T) {
	t.Parallel()
	f := setup(t, func(_ *configs.Console, d *Deps) { d.TLS = true })
	w := f.ask(t, "", "/login", url.Values{"key": {"wrong"}, "to": {"/sinks"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Empty(t, w.Result().Cookies())
	for _, role := range []string{"gateway", "client", "accountant"} {
		require.Equal(t, http.StatusForbidden, f.ask(t, "", "/login", url.Values{"key": {role}}).Code, role)
	}
	w = f.ask(t, "", "/login", url.Values{"key": {" viewer "}, "to": {"/sinks?a=b"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/sinks?a=b", w.Header().Get("Location"))
	c := w.Result().Cookies()[0]
	require.Equal(t, "__Host-hongbao-test", c.Name)
	require.True(t, c.HttpOnly && c.Secure && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "")
	for _, to := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "javascript:alert(1)", ""} {
		w = f.ask(t, "", "/login", url.Values{"key": {"viewer"}, "to": {to}})
		require.Equal(t, "/", w.Header().Get("Location"), to)
	}
	w = f.ask(t, "viewer", "/logout", url.Values{})
	require.Negative(t, w.Result().Cookies()[0].MaxAge)
	require.Len(t, f.logins, 1+3+6+1)
	require.Equal(t, "log_in 192.0.2.1 "+access.ErrUnauthorized.Error(), f.logins[0])
	require.Equal(t, "log_in 192.0.2.1 "+access.ErrForbidden.Error(), f.logins[1])
	require.Equal(t, "log_in 192.0.2.1 <nil>", f.logins[4])
	require.Equal(t, "log_out 192.0.2.1 <nil>", f.logins[10])
	f.ask(t, "", "/logout", url.Values{})
	require.Len(t, f.logins, 11, "no one was logged in")
}

// A wrong key in the header is noted for the journal. A session that is over and a request without a key are not.
func TestWrongKeysAreNoted(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "", "/", nil).Code)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "over", "/", nil).Code)
	require.Zero(t, f.denied)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Host = "127.0.0.1"
	r.Header.Set("Authorization", "Bearer wrong")
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, 1, f.denied)
}

func TestAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://console.example/audits", nil)
		r.Header.Set(header, value)
		r.AddCookie(&http.Cookie{Name: "hongbao-test", Value: "session-of-treasurer"})
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		require.Equal(t, http.StatusForbidden, w.Code)
	}
	require.Empty(t, f.did)
}

// Live updates replace parts of a page. Every focusable element in such a part has an id, so that the script
// can restore the focus.
func TestTheKeyboardFindsItsPlaceAgain(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	who := access.Caller{Role: access.RoleTreasurer}
	f.starts(t, &jobs.Order{Name: "a", What: model.Say("Audit"), Do: func(context.Context, *jobs.Report) error { return nil }})
	reached := regexp.MustCompile(`<(a|button|summary|input|select|textarea)\b[^>]*>|<[^>]* tabindex="0"[^>]*>`)
	for path, n := range map[string]int{"/": 4, "/campaigns/rain": 10, "/sinks": 6, "/jobs": 3} {
		v, ok := f.viewOf(t.Context(), path, &who)
		require.True(t, ok)
		data, err := v.load(t.Context())
		require.NoError(t, err)
		html, err := f.tongues[0].render(v.live, page{Caller: &who, View: v.filter(&reading{data: data}, &who)})
		require.NoError(t, err)
		found := slices.DeleteFunc(reached.FindAllString(html, -1), func(tag string) bool { return strings.Contains(tag, `type="hidden"`) })
		require.Len(t, found, n, path)
		for _, tag := range found {
			require.Contains(t, tag, ` id="`, path)
		}
	}
}

// changes lists the changes that the console can make, each with the page that has its button.
var changes = []struct {
	path, page, button string
	form               url.Values
	action             access.Action
	did                string
}{
	{"/create", "/", `href="/create"`, url.Values{"spec": {rain}}, access.CreateCampaign, "create rain of 2000"},
	{"/campaigns/rain/load", "/campaigns/new", `id="load"`, url.Values{}, access.LoadCampaign, "load rain"},
	{"/campaigns/rain/pause", "/campaigns/rain", "Pause the campaign", url.Values{"why": {"wrong users"}}, access.PauseCampaign, "campaign rain true: wrong users"},
	{"/campaigns/rain/resume", "/campaigns/paused", "Resume the campaign", url.Values{}, access.ResumeCampaign, "campaign rain false"},
	{"/campaigns/rain/top-ups", "/campaigns/rain", `id="top-up"`, url.Values{"packets": {"5"}, "total": {"1.00"}, "currency": {"CNY"},
		"expect": {"1000"}, "order": {"o1"}, "why": {"more rain"}}, access.TopUpCampaign, "top-up rain o1 5 of 100 to 1000: more rain"},
	{"/campaigns/rain/cancel", "/campaigns/new/end", `id="cancel"`, url.Values{"confirm": {"rain"}}, access.CancelCampaign, "cancel rain"},
	{"/campaigns/rain/close", "/campaigns/rain/end", `id="close"`, url.Values{"early": {"1"}, "confirm": {"rain"}}, access.CloseCampaign, "close rain true"},
	{"/campaigns/rain/refund", "/campaigns/closed/end", `id="refund"`, url.Values{"amount": {"2.50"}, "currency": {"CNY"}}, access.Refund, "refund rain 250 0"},
	{"/campaigns/rain/reveal", "/campaigns/refunded/end", `id="reveal"`, url.Values{"confirm": {"rain"}}, access.RevealCampaign, "reveal rain"},
	{"/sinks/kafka/pause", "/sinks", `id="turn-kafka"`, url.Values{"why": {"maintenance"}}, access.PauseSink, "sink kafka true: maintenance"},
	{"/letters/requeue", "/letters?sink=kafka", `id="requeue"`, url.Values{"id": {"kafka/0/1-1"}, "why": {"repaired"}},
		access.RequeueLetters, "requeue [kafka/0/1-1]  false repaired"},
	{"/letters/drop", "/letters/kafka/0/1-1", `id="drop"`, url.Values{"id": {"kafka/0/1-1"}, "why": {"a test"}},
		access.DropLetters, "drop [kafka/0/1-1]  false a test"},
	{"/quarantine/7", "/quarantine/7", `id="decide"`, url.Values{"decision": {"pay"}, "why": {"asked"}},
		access.DecideQuarantine, "decide 7 pay asked"},
	{"/replays", "/jobs", `id="replay"`, url.Values{"name": {"again"}, "to": {"kafka"}}, access.Replay,
		"replay again kafka"},
	{"/audits", "/jobs", `id="audit"`, url.Values{}, access.RunAudit, "audit"},
}

// openers are the roles that may use the console.
var openers = []access.Role{access.RoleViewer, access.RoleOperator, access.RoleTreasurer}

func TestButtonsAreThoseOfTheRole(t *testing.T) {
	t.Parallel()
	for _, role := range openers {
		for _, c := range changes {
			f := setup(t, nil)
			may := (&access.Caller{Role: role}).May(c.action) == nil
			page := f.ask(t, string(role), c.page, nil).Body.String()
			require.Equal(t, may, strings.Contains(page, c.button), "%s on %s for %s", c.button, c.page, role)
			form := c.form
			if may && c.action == access.CreateCampaign {
				form = f.checked(t, string(role), form)
			}
			w := f.ask(t, string(role), c.path, form)
			if !may {
				require.Equal(t, http.StatusForbidden, w.Code, "%s by %s", c.path, role)
				require.Empty(t, f.did)
				require.Equal(t, 1, f.denied, "it is recorded")
				continue
			}
			require.Equal(t, http.StatusSeeOther, w.Code, "%s by %s: %s", c.path, role, w.Body)
			f.jobs.Close()
			require.Equal(t, []string{"key-" + string(role) + " " + c.did}, f.did)
			after := f.ask(t, string(role), w.Header().Get("Location"), nil)
			require.Equal(t, http.StatusOK, after.Code)
		}
	}
}

// A pause is no single click: its page asks for a reason, and without one nothing happens.
func TestAPauseNeedsAReason(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, path := range []string{"/campaigns/rain/pause", "/sinks/kafka/pause"} {
		page := f.ask(t, "operator", path, nil).Body.String()
		require.Contains(t, page, `<form class="card" method="post" action="`+path+`">`)
		require.Contains(t, page, `name="why" required`)
		require.Equal(t, http.StatusForbidden, f.ask(t, "viewer", path, nil).Code)
		w := f.ask(t, "operator", path, url.Values{"why": {" "}})
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), noReason.Text)
	}
	require.Equal(t, http.StatusNotFound, f.ask(t, "operator:other", "/campaigns/rain/pause", nil).Code)
	require.Empty(t, f.did)
}

// An audit that began on a campaign's page leads back there.
func TestAnAuditLeadsBack(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	w := f.ask(t, "operator", "/audits", url.Values{"from": {"rain"}})
	path, from, _ := strings.Cut(w.Header().Get("Location"), "?")
	require.Equal(t, "from=rain", from)
	require.Contains(t, f.ask(t, "operator", path+"?from=rain", nil).Body.String(), `id="back" href="/campaigns/rain"`)
	require.NotContains(t, f.ask(t, "operator", path+"?from=//evil.example", nil).Body.String(), `id="back"`)
}

// A page of a campaign shows only the button that fits the campaign's state.
func TestACampaignIsPausedOrResumed(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	open := f.ask(t, "operator", "/campaigns/rain", nil).Body.String()
	paused := f.ask(t, "operator", "/campaigns/paused", nil).Body.String()
	require.NotContains(t, open, "Resume the campaign")
	require.NotContains(t, paused, "Pause the campaign")
	f.live.CanPause = false // campaigns that have ended or are frozen have neither button
	require.NotContains(t, f.ask(t, "operator", "/campaigns/rain", nil).Body.String(), `id="turn"`)
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, func(c *configs.Console, _ *Deps) { c.ReadOnly = true })
	for _, c := range changes {
		require.NotContains(t, f.ask(t, "treasurer", c.page, nil).Body.String(), c.button)
		require.Equal(t, http.StatusForbidden, f.ask(t, "treasurer", c.path, c.form).Code)
	}
	for _, path := range []string{"/letters/requeue?all=1", "/letters/drop?all=1"} {
		require.NotContains(t, f.ask(t, "treasurer", path, nil).Body.String(), `name="why"`, path)
	}
	require.Empty(t, f.did)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "", "/login", url.Values{"key": {"viewer"}}).Code)
}

func TestAKeyForOneCampaignSeesThatOne(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	list := f.ask(t, "treasurer:other", "/", nil).Body.String()
	require.Contains(t, list, "Other")
	require.NotContains(t, list, "Spring rain")
	for _, path := range []string{"/campaigns/rain", "/letters/kafka/0/1-1", "/quarantine/7"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer:other", path, nil).Code, path)
	}
	require.NotContains(t, f.ask(t, "treasurer:other", "/quarantine", nil).Body.String(), "u1")
	require.NotContains(t, f.ask(t, "treasurer:other", "/letters", nil).Body.String(), "kafka/0/1-1")
	require.Contains(t, f.ask(t, "treasurer:other", "/trail?campaign=rain&user=u1", nil).Body.String(), nameOne.Text)
	for _, c := range changes {
		before := f.denied
		if w := f.ask(t, "treasurer:other", c.path, c.form); w.Code < 400 {
			require.Fail(t, "done for another campaign", c.path)
		}
		require.Equal(t, before+1, f.denied, "%s is recorded", c.path)
	}
	require.Equal(t, http.StatusBadRequest, f.ask(t, "treasurer:other", "/letters/requeue",
		url.Values{"all": {"1"}, "why": {"x"}}).Code)
	require.Empty(t, f.did)
	require.Equal(t, http.StatusOK, f.ask(t, "treasurer:rain", "/letters?campaign=rain", nil).Code)
}

func TestLettersAreWorkedOnByFilterAndWithAReason(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	refused := func(form url.Values) {
		require.Equal(t, http.StatusBadRequest, f.ask(t, "operator", "/letters/requeue", form).Code, form)
	}
	refused(url.Values{"id": {"kafka/0/1-1"}})
	refused(url.Values{"why": {"repaired"}})
	require.Empty(t, f.did)
	w := f.ask(t, "operator", "/letters/requeue", url.Values{"all": {"1"}, "why": {"repaired"},
		"campaign": {"rain"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Contains(t, f.ask(t, "operator", w.Header().Get("Location"), nil).Body.String(), "dry run: 4 would be")
	require.Equal(t, []string{"key-operator requeue [] rain true repaired"}, f.did)
}

func TestVerdictOfTheLastAudit(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Contains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "No audit has begun")
	require.Equal(t, http.StatusSeeOther, f.ask(t, "operator", "/audits", url.Values{}).Code)
	f.live.Audit = model.Verdict{Differences: 3, At: audited.Truncate(time.Millisecond)}
	page := f.ask(t, "viewer", "/campaigns/rain", nil).Body.String()
	require.Contains(t, page, "The audit found 3 differences")
	require.Contains(t, page, "a &lt;lost&gt; grant")
	f.live.Audit = model.Verdict{Differences: 1, At: audited.Add(time.Minute)}
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "a &lt;lost&gt; grant",
		"another process has audited since")
}

func TestThePlanIsHiddenBeforeTheReveal(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	page := f.ask(t, "treasurer", "/campaigns/rain", nil).Body.String()
	require.NotContains(t, page, "4,711")
	require.NotContains(t, page, `class="plan"`)
	f.live.Revealed = true
	page = f.ask(t, "treasurer", "/campaigns/rain", nil).Body.String()
	require.Contains(t, page, "4,711")
	require.Contains(t, page, `class="plan"`)
}

func TestErrorsOfASource(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.err = hongbao.Outagef(hongbao.ClassTransient, "redis is <down>")
	w := f.ask(t, "viewer", "/campaigns/rain", nil)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "Redis is &lt;down&gt;")
	f.err = errors.New("broken")
	require.Equal(t, http.StatusServiceUnavailable, f.ask(t, "viewer", "/", nil).Code)
}

// Pages load resources from this server only, and the policy allows no inline scripts or styles.
func TestPagesAskNobodyElse(t *testing.T) {
	t.Parallel()
	inside := regexp.MustCompile(`(?i)https?:|src="//|href="//|<style|style=|<script>| on[a-z]+=|javascript:`)
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, failed := fs.ReadFile(templateFiles, path)
			require.NoError(t, failed)
			asks := strings.ReplaceAll(string(text), ` xmlns="http://www.w3.org/2000/svg"`, "") // a name, which nobody opens
			require.Empty(t, inside.FindString(asks), path)
		}
		return err
	}))
	f := setup(t, nil)
	for _, path := range []string{"/static/console.js", "/static/console.css", "/static/icon.svg"} {
		require.Equal(t, http.StatusOK, f.ask(t, "", path, nil).Code, path)
	}
}

// A form with an invalid campaign id is rejected before any store is queried.
func TestMadeUpCampaigns(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, id := range []string{"rain\x00", "Rain", strings.Repeat("r", 300), "\xff"} {
		for path, form := range map[string]url.Values{
			"/replays":         {"name": {"again"}, "to": {"kafka"}, "campaign": {id}},
			"/letters/requeue": {"all": {"1"}, "why": {"repaired"}, "campaign": {id}},
			"/letters/drop":    {"all": {"1"}, "why": {"repaired"}, "campaign": {id}},
		} {
			w := f.ask(t, "treasurer", path, form)
			require.Equal(t, http.StatusBadRequest, w.Code, "%s %q", path, id)
			require.Contains(t, w.Body.String(), "1 to 64 of a-z", "%s %q", path, id)
		}
	}
	require.Empty(t, f.did)
}

// The page of a campaign on several shards has a table of them. A campaign on one shard has no such table.
func TestShardsOfACampaign(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "h-places")
	f.live.Places = []model.Place{{Shard: 3, State: "open", Packets: 500, Granted: 7, Left: 493},
		{Shard: 0, State: "missing"}}
	page := f.ask(t, "viewer", "/campaigns/rain", nil).Body.String()
	require.Contains(t, page, "divided among 2 shards")
	for _, cell := range []string{">3<", ">493<", `class="tag bad">Missing<`} {
		require.Contains(t, page, cell)
	}
}

// The page of a trail denies that the grant exists only if all stores could be read.
func TestATrailDeniesOnlyWhatItAsked(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	const path, denied = "/trail?campaign=rain&user=u1", "Neither Redis nor the ledger has such a grant."
	require.NotContains(t, f.ask(t, "viewer", path, nil).Body.String(), denied)
	f.trails = model.Trails{}
	require.Contains(t, f.ask(t, "viewer", path, nil).Body.String(), denied)
	f.trails.Notes = []model.Sentence{model.Say("%s could not be read.", "ledger")}
	page := f.ask(t, "viewer", path, nil).Body.String()
	require.Contains(t, page, "ledger could not be read")
	require.NotContains(t, page, denied)
}

// A new login ends the browser's previous session, because its cookie is replaced and nobody could log it out. A failed
// login does not end it.
func TestALoginEndsTheSessionBefore(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.ask(t, "operator", "/login", url.Values{"key": {"wrong"}})
	_, ended := f.keys.ended.Load(sessionOf + "operator")
	require.False(t, ended)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "operator", "/login", url.Values{"key": {"viewer"}}).Code)
	_, ended = f.keys.ended.Load(sessionOf + "operator")
	require.True(t, ended)
	_, ended = f.keys.ended.Load(sessionOf + "viewer")
	require.False(t, ended, "the new one")
}

// HEAD is answered like GET, except for the stream of events, which rejects HEAD.
func TestHead(t *testing.T) {
	t.Parallel()
	f := setup(t, func(c *configs.Console, _ *Deps) { c.ReadOnly = true })
	head := func(role, path string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodHead, path, nil)
		r.AddCookie(&http.Cookie{Name: f.cookieName(f.tls), Value: sessionOf + role})
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		return w.Code
	}
	for _, path := range append(slices.Clone(pagePaths), "/login", "/nothing") {
		require.Equal(t, f.ask(t, "viewer", path, nil).Code, head("viewer", path), path)
		require.Equal(t, f.ask(t, "nobody", path, nil).Code, head("nobody", path), path)
	}
	require.Equal(t, http.StatusMethodNotAllowed, head("viewer", "/events?page=/"))
}

// A live update shows the end of a job to every user who may see the job.
func TestAJobsPageIsLive(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	going := make(chan struct{})
	run, path := f.starts(t, &jobs.Order{Name: "a", What: model.Say("Requeue"), By: "key-operator", Campaign: "rain",
		Do: func(context.Context, *jobs.Report) error {
			<-going
			return nil
		}})
	require.Contains(t, f.ask(t, "viewer", path, nil).Body.String(), `data-page="`+path+`"`)
	v, ok := f.viewOf(t.Context(), path, &access.Caller{Key: "key-viewer", Role: access.RoleViewer})
	require.True(t, ok)
	look := func() string {
		now, err := v.load(t.Context())
		require.NoError(t, err)
		text, err := f.tongues[0].render(v.live, page{View: now})
		require.NoError(t, err)
		return text
	}
	require.Contains(t, look(), "The job is running.")
	close(going)
	_, err := run.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Contains(t, look(), "Done in")
	require.Equal(t, http.StatusNotFound, f.ask(t, "viewer:other", path, nil).Code)
	_, ok = f.viewOf(t.Context(), "/jobs/4711", &access.Caller{Role: access.RoleViewer})
	require.False(t, ok)
}

// Each page of a search can be watched by its path. An invalid page number answers 404.
func TestCampaignsAreSearchedByPages(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	first := f.ask(t, "viewer", "/", nil).Body.String()
	require.Contains(t, first, `data-page="/"`)
	require.Contains(t, first, `href="/?page=2"`)
	require.NotContains(t, first, "Previous page")
	second := f.ask(t, "viewer", "/?page=2&q=spring+%25", nil).Body.String()
	require.Contains(t, second, `data-page="/?page=2&amp;q=spring&#43;%25"`)
	require.Contains(t, second, `value="spring %"`)
	require.Contains(t, second, `href="/?q=spring&#43;%25"`)
	require.NotContains(t, second, "Next page")
	v, ok := f.viewOf(t.Context(), "/?page=2&q=spring+%25", &access.Caller{Role: access.RoleViewer})
	require.True(t, ok)
	data, err := v.load(t.Context())
	require.NoError(t, err)
	require.Equal(t, model.Search{Text: "spring %", Page: 1}, data.(model.Campaigns).Search)
	scoped, ok := f.viewOf(t.Context(), "/", &access.Caller{Role: access.RoleViewer, Campaigns: []string{"rain", "spring-*"}})
	require.True(t, ok)
	data, err = scoped.load(t.Context())
	require.NoError(t, err)
	require.Equal(t, model.Search{Scope: "rain,spring-*"}, data.(model.Campaigns).Search, "the ledger filters out other campaigns")
	for _, path := range []string{"/?page=0", "/?page=x", "/?page=10001", "/?q=" + strings.Repeat("x", 101), "/?q=%ff"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, "viewer", path, nil).Code, path)
	}
	for path, s := range map[string]model.Search{"/": {}, "/?page=2": {Page: 1}, "/?q=a": {Text: "a"}} {
		require.Equal(t, path, s.Path())
	}
}
