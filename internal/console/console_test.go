package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/audit"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

// books is a Source with one campaign, and Actions that note what they were told.
type books struct {
	looks atomic.Int64
	did   []string

	denied int
	live   Live
	err    error
}

func (b *books) Campaigns(context.Context) (Campaigns, error) {
	b.looks.Add(1)
	other := b.live.Campaign
	other.ID, other.Name = "other", "<b>Other</b>"
	return Campaigns{List: []Campaign{b.live.Campaign, other}}, b.err
}

func (b *books) Campaign(_ context.Context, id string) (*Live, error) {
	b.looks.Add(1)
	if id != "rain" {
		return nil, fmt.Errorf("campaign %s: %w", id, ErrNotFound)
	}
	live := b.live
	live.Granted += b.looks.Load()
	return &live, b.err
}

func (b *books) Sinks(context.Context) ([]Sink, error) {
	return []Sink{{Name: "kafka", Waiting: 12, Dead: 1, Oldest: 2.5, Workers: []Worker{{Name: "w1", Alive: true}}}}, nil
}

func (b *books) letter() deadletter.Letter {
	return deadletter.Letter{ID: "kafka/0/1-1", Sink: "kafka", Class: "permanent", Reason: "too <large>",
		Fields: []string{"c", "rain"}, Grant: &hongbao.Grant{Campaign: "rain", Packet: 3, User: "u1", Amount: 185,
			Currency: "CNY"}}
}

func (b *books) Letters(context.Context, deadletter.Filter, string) ([]deadletter.Letter, string, error) {
	return []deadletter.Letter{b.letter()}, "kafka/0/1-1", nil
}

func (b *books) Letter(_ context.Context, id string) (deadletter.Letter, error) {
	if id != b.letter().ID {
		return deadletter.Letter{}, ErrNotFound
	}
	return b.letter(), nil
}

func (b *books) quarantined() ledger.Quarantined {
	return ledger.Quarantined{ID: 7, Reason: "other_user", Grant: hongbao.Grant{Campaign: "rain", Packet: 3, User: "u1",
		Amount: 185, Currency: "CNY"}, Has: &hongbao.Grant{User: "u2", Amount: 185}}
}

func (b *books) Quarantine(context.Context, int64, bool) ([]ledger.Quarantined, error) {
	return []ledger.Quarantined{b.quarantined()}, nil
}

func (b *books) Quarantined(_ context.Context, id int64) (ledger.Quarantined, error) {
	if id != 7 {
		return ledger.Quarantined{}, ErrNotFound
	}
	return b.quarantined(), nil
}

func (b *books) Trail(context.Context, Question) (Trails, error) {
	return Trails{List: []Trail{{Packet: 3, User: "u1", Amount: "1.85 CNY",
		Stations: []Station{{"Receipt in Redis", true, "yes"}, {"Row of the ledger", false, "no"}}}}}, nil
}

func (b *books) Replays(context.Context) ([]Progress, error) {
	return []Progress{{Name: "again", What: "kafka", Done: 5, Of: 10}}, nil
}

func (b *books) Denied(context.Context, access.Action, string, error) { b.denied++ }

func (b *books) do(who *access.Caller, format string, args ...any) error {
	b.did = append(b.did, who.Key+" "+fmt.Sprintf(format, args...))
	return nil
}

func (b *books) TurnCampaign(_ context.Context, who *access.Caller, id string, pause bool) error {
	return b.do(who, "campaign %s %v", id, pause)
}

func (b *books) TurnSink(_ context.Context, who *access.Caller, sink string, pause bool) error {
	return b.do(who, "sink %s %v", sink, pause)
}

func (b *books) Requeue(_ context.Context, who *access.Caller, o LetterOrder) (*deadletter.Report, error) {
	return &deadletter.Report{Decision: "requeued", DryRun: o.DryRun, Matched: 4},
		b.do(who, "requeue %v %v %v %s", o.Pick.IDs, o.Pick.Filter.Campaign, o.DryRun, o.Why)
}

func (b *books) Drop(_ context.Context, who *access.Caller, o LetterOrder) (*deadletter.Report, error) {
	return &deadletter.Report{Decision: "dropped", Matched: 1, Resolved: 1}, b.do(who, "drop %v %s", o.Pick.IDs, o.Why)
}

func (b *books) Decide(_ context.Context, who *access.Caller, d ledger.Decision) error {
	return b.do(who, "decide %d %v %s %s", d.ID, d.Pay, d.By, d.Why)
}

func (b *books) Replay(_ context.Context, who *access.Caller, o ReplayOrder) (string, error) {
	return "Replay again", b.do(who, "replay %s %s", o.Name, o.To)
}

var audited = time.Unix(1_800_000_000, 0)

func (b *books) Audit(_ context.Context, who *access.Caller) (*audit.Report, error) {
	return &audit.Report{Verdict: audit.Differs, Started: audited, Differences: []audit.Difference{{Kind: audit.Lost, Campaign: "rain",
		Where: "ledger", Detail: "a <lost> grant"}}}, b.do(who, "audit")
}

// keys are an Authority: the text of a key is its role, and a scope behind a colon.
type keys struct{ revoked, away atomic.Bool }

const sessionOf = "session-of-"

func (k *keys) StartSession(_ context.Context, key string, lasts time.Duration) (string, error) {
	if lasts != time.Hour {
		return "", errors.New("it lasts as long as the knob says")
	}
	return sessionOf + key, nil
}

func (k *keys) Session(ctx context.Context, session string) (access.Caller, error) {
	return k.Identify(ctx, strings.TrimPrefix(session, sessionOf))
}

func (k *keys) Identify(_ context.Context, text string) (access.Caller, error) {
	if k.away.Load() {
		return access.Caller{}, hongbao.Outagef(hongbao.ClassTransient, "the ledger is away")
	}
	role, scope, scoped := strings.Cut(text, ":")
	for _, r := range access.Roles() {
		if string(r) == role && !k.revoked.Load() {
			who := access.Caller{Key: "key-" + role, Role: r}
			if scoped {
				who.Campaigns = []string{scope}
			}
			return who, nil
		}
	}
	return access.Caller{}, access.ErrUnauthorized
}

func (k *keys) EndSession(context.Context, string) error { return nil }

// fixture is a Console over books and keys.
type fixture struct {
	*Console
	*books
	keys *keys
}

func setup(t *testing.T, change func(*Config, *Deps)) *fixture {
	t.Helper()
	f := &fixture{books: &books{live: Live{Campaign: Campaign{ID: "rain", Name: "Spring rain", Currency: "CNY",
		State: "open", Packets: 1000, Granted: 10, Left: 990, InRedis: true}}}, keys: &keys{}}
	f.live.Spread = []Bin{{Low: 1, High: 5, Granted: 10, Plan: 4711}}
	cfg := Config{Every: time.Second, Watchers: 3, SessionTime: time.Hour}
	deps := Deps{Source: f.books, Actions: f.books, Authority: f.keys, Log: zap.NewNop()}
	if change != nil {
		change(&cfg, &deps)
	}
	var err error
	f.Console, err = New(cfg, deps)
	require.NoError(t, err)
	t.Cleanup(f.jobs.close)
	return f
}

// ask sends a request as the role's browser does. form is nil for GET.
func (f *fixture) ask(t *testing.T, role, path string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if form != nil {
		r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if role != "" {
		r.AddCookie(&http.Cookie{Name: f.cookieName(), Value: sessionOf + role})
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

var pagePaths = []string{"/", "/campaigns/rain", "/sinks", "/jobs", "/letters", "/letters/kafka/0/1-1", "/quarantine",
	"/quarantine/7", "/trail?campaign=rain&user=u1"}

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
		require.Equal(t, http.StatusForbidden, f.ask(t, "gateway", path, nil).Code, "a gateway's key opens no page")
	}
	require.Equal(t, http.StatusUnauthorized, f.ask(t, "", "/events?page=/", nil).Code)
	require.Equal(t, http.StatusUnauthorized, f.ask(t, "", "/audits", url.Values{}).Code)
	for _, path := range []string{"/nothing", "/campaigns/none", "/letters/kafka/0/9-9", "/quarantine/8", "/jobs/1"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, "viewer", path, nil).Code, path)
	}
	require.Contains(t, f.ask(t, "viewer", "/", nil).Body.String(), "&lt;b&gt;Other")
}

func TestLogin(t *testing.T) {
	t.Parallel()
	f := setup(t, func(_ *Config, d *Deps) { d.TLS = true })
	w := f.ask(t, "", "/login", url.Values{"key": {"wrong"}, "to": {"/sinks"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Empty(t, w.Result().Cookies())
	require.Equal(t, http.StatusForbidden, f.ask(t, "", "/login", url.Values{"key": {"gateway"}}).Code)
	w = f.ask(t, "", "/login", url.Values{"key": {" viewer "}, "to": {"/sinks?a=b"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Equal(t, "/sinks?a=b", w.Header().Get("Location"))
	c := w.Result().Cookies()[0]
	require.Equal(t, "__Host-hongbao", c.Name)
	require.True(t, c.HttpOnly && c.Secure && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "")
	for _, to := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, "javascript:alert(1)", ""} {
		w = f.ask(t, "", "/login", url.Values{"key": {"viewer"}, "to": {to}})
		require.Equal(t, "/", w.Header().Get("Location"), to)
	}
	w = f.ask(t, "viewer", "/logout", url.Values{})
	require.Negative(t, w.Result().Cookies()[0].MaxAge)
}

func TestAnotherSiteChangesNothing(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://console.example/audits", nil)
		r.Header.Set(header, value)
		r.AddCookie(&http.Cookie{Name: "hongbao", Value: "session-of-treasurer"})
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		require.Equal(t, http.StatusForbidden, w.Code)
	}
	require.Empty(t, f.did)
}

// changes are all that the buttons do, each with a page that has the button.
var changes = []struct {
	path, page, button string
	form               url.Values
	action             access.Action
	did                string
}{
	{"/campaigns/rain/pause", "/campaigns/rain", `id="pause"`, url.Values{}, access.PauseCampaign, "campaign rain true"},
	{"/campaigns/rain/resume", "/campaigns/rain", `id="resume"`, url.Values{}, access.ResumeCampaign, "campaign rain false"},
	{"/sinks/kafka/pause", "/sinks", `id="turn-kafka"`, url.Values{}, access.PauseSink, "sink kafka true"},
	{"/letters/requeue", "/letters", `id="requeue"`, url.Values{"id": {"kafka/0/1-1"}, "why": {"mended"}},
		access.RequeueLetters, "requeue [kafka/0/1-1]  false mended"},
	{"/letters/drop", "/letters/kafka/0/1-1", `id="drop"`, url.Values{"id": {"kafka/0/1-1"}, "why": {"a test"}},
		access.DropLetters, "drop [kafka/0/1-1] a test"},
	{"/quarantine/7", "/quarantine/7", `id="decide"`, url.Values{"decision": {"pay"}, "why": {"asked"}},
		access.DecideQuarantine, "decide 7 true key:key-treasurer asked"},
	{"/replays", "/jobs", `id="replay"`, url.Values{"name": {"again"}, "to": {"kafka"}}, access.Replay,
		"replay again kafka"},
	{"/audits", "/jobs", `id="audit"`, url.Values{}, access.RunAudit, "audit"},
}

func TestButtonsAreThoseOfTheRole(t *testing.T) {
	t.Parallel()
	for _, role := range access.Roles() {
		if role == access.RoleGateway {
			continue // no page opens
		}
		for _, c := range changes {
			f := setup(t, nil)
			may := (&access.Caller{Role: role}).May(c.action) == nil
			page := f.ask(t, string(role), c.page, nil).Body.String()
			require.Equal(t, may, strings.Contains(page, c.button), "%s on %s for %s", c.button, c.page, role)
			w := f.ask(t, string(role), c.path, c.form)
			if !may {
				require.Equal(t, http.StatusForbidden, w.Code, "%s by %s", c.path, role)
				require.Empty(t, f.did)
				require.Equal(t, 1, f.denied, "it is recorded")
				continue
			}
			require.Equal(t, http.StatusSeeOther, w.Code, "%s by %s: %s", c.path, role, w.Body)
			f.jobs.wg.Wait()
			require.Equal(t, []string{"key-" + string(role) + " " + c.did}, f.did)
			after := f.ask(t, string(role), w.Header().Get("Location"), nil)
			require.Equal(t, http.StatusOK, after.Code)
		}
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, func(c *Config, _ *Deps) { c.ReadOnly = true })
	for _, c := range changes {
		require.NotContains(t, f.ask(t, "treasurer", c.page, nil).Body.String(), c.button)
		require.Equal(t, http.StatusForbidden, f.ask(t, "treasurer", c.path, c.form).Code)
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
	require.Contains(t, f.ask(t, "treasurer:other", "/trail?campaign=rain&user=u1", nil).Body.String(), nameOne)
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
	refused(url.Values{"why": {"mended"}})
	require.Empty(t, f.did)
	w := f.ask(t, "operator", "/letters/requeue", url.Values{"all": {"1"}, "dry": {"1"}, "why": {"mended"},
		"campaign": {"rain"}})
	require.Equal(t, http.StatusSeeOther, w.Code)
	require.Contains(t, f.ask(t, "operator", w.Header().Get("Location"), nil).Body.String(), "dry run: 4 would be")
	require.Equal(t, []string{"key-operator requeue [] rain true mended"}, f.did)
}

func TestVerdictOfTheLastAudit(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Contains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "Nobody has audited")
	require.Equal(t, http.StatusSeeOther, f.ask(t, "operator", "/audits", url.Values{}).Code)
	f.live.Audit = Verdict{Differences: 3, At: audited}
	page := f.ask(t, "viewer", "/campaigns/rain", nil).Body.String()
	require.Contains(t, page, "The audit found 3 differences")
	require.Contains(t, page, "a &lt;lost&gt; grant")
	f.live.Audit = Verdict{Differences: 1, At: audited.Add(time.Minute)}
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "a &lt;lost&gt; grant",
		"somebody else has audited since")
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
	f.err = hongbao.Outagef(hongbao.ClassTransient, "redis is <away>")
	w := f.ask(t, "viewer", "/campaigns/rain", nil)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "Redis is &lt;away&gt;")
	f.err = errors.New("broken")
	require.Equal(t, http.StatusServiceUnavailable, f.ask(t, "viewer", "/", nil).Code)
}

// Whatever a page needs comes from this server, and the policy allows no code or style inside a page.
func TestPagesAskNobodyElse(t *testing.T) {
	t.Parallel()
	inside := regexp.MustCompile(`(?i)https?:|src="//|href="//|<style|style=|<script>| on[a-z]+=|javascript:`)
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, failed := fs.ReadFile(templateFiles, path)
			require.NoError(t, failed)
			require.Empty(t, inside.FindString(string(text)), path)
		}
		return err
	}))
	f := setup(t, nil)
	for _, path := range []string{"/static/console.js", "/static/console.css", "/static/uplot/uPlot.iife.min.js",
		"/static/uplot/LICENSE", "/static/icon.svg"} {
		require.Equal(t, http.StatusOK, f.ask(t, "", path, nil).Code, path)
	}
}

// A campaign that can't exist goes no further than the form.
func TestMadeUpCampaigns(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, id := range []string{"rain\x00", "Rain", strings.Repeat("r", 300), "\xff"} {
		for path, form := range map[string]url.Values{
			"/replays":         {"name": {"again"}, "to": {"kafka"}, "campaign": {id}},
			"/letters/requeue": {"all": {"1"}, "why": {"mended"}, "campaign": {id}},
			"/letters/drop":    {"all": {"1"}, "why": {"mended"}, "campaign": {id}},
		} {
			w := f.ask(t, "treasurer", path, form)
			require.Equal(t, http.StatusBadRequest, w.Code, "%s %q", path, id)
			require.Contains(t, w.Body.String(), "no campaign", "%s %q", path, id)
		}
	}
	require.Empty(t, f.did)
}

// Audits read everything: one runs at a time, beside the other jobs, and who wants a second gets the first.
func TestOneAuditAtATime(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	end := make(chan struct{})
	begin := func(want Job) (*Job, error) {
		return f.jobs.start(want, func(context.Context, *Job) error {
			<-end
			return nil
		})
	}
	first, err := begin(Job{What: "Audit", auditing: true})
	require.NoError(t, err)
	again, err := begin(Job{What: "Audit", auditing: true})
	require.NoError(t, err)
	require.Same(t, first, again)
	for range maxJobs {
		_, err := begin(Job{What: "Requeue"})
		require.NoError(t, err)
	}
	_, err = begin(Job{What: "Requeue"})
	require.ErrorIs(t, err, errManyJobs)
	close(end)
	f.jobs.wg.Wait()
	again, err = begin(Job{What: "Audit", auditing: true})
	require.NoError(t, err)
	require.NotSame(t, first, again)
}
