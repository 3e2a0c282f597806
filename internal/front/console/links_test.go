package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// byLink sends a GET request with the cookie of a link.
func (f *fixture) byLink(t *testing.T, link, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: f.cookieName(f.tls) + linkSuffix, Value: link})
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// An operator makes a link, sees its address once, and ends it.
func TestLinksAreMadeAndEnded(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	const path = "/campaigns/rain/links"
	require.Contains(t, f.ask(t, "operator", "/campaigns/rain", nil).Body.String(), `href="`+path+`"`)
	require.NotContains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), path)
	page := f.ask(t, "operator", path, nil)
	require.Equal(t, http.StatusOK, page.Code)
	for _, text := range []string{"key:key-operator", "the &lt;growth&gt; team", `name="link" value="01234567"`} {
		require.Contains(t, page.Body.String(), text)
	}
	require.NotContains(t, page.Body.String(), "/watch#")
	w := f.ask(t, "operator", path, url.Values{"why": {"growth"}, "money": {"1"}})
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), `value="http://example.com/watch#link-to-rain"`)
	require.Equal(t, path+"?done=ended", f.ask(t, "operator", path+"/end", url.Values{"link": {"01234567"}}).Header().Get("Location"))
	require.Equal(t, []string{"key-operator share rain true: growth", "key-operator end link 01234567 of rain"}, f.did)
	for _, form := range []url.Values{nil, {"why": {"x"}}} {
		require.Equal(t, http.StatusForbidden, f.ask(t, "viewer", path, form).Code)
	}
	require.Equal(t, http.StatusNotFound, f.ask(t, "operator:snow", path, url.Values{"why": {"x"}}).Code)
	require.Len(t, f.did, 2)
}

// The address of a link shows an empty form and sets nothing, so a chat program may open it. The form's answer has a cookie
// that lasts as long as the link.
func TestLinkOpens(t *testing.T) {
	t.Parallel()
	f := setup(t, func(_ *configs.Console, d *Deps) { d.TLS = true })
	w := f.ask(t, "", "/watch", nil)
	require.Equal(t, http.StatusOK, w.Code)
	require.Empty(t, w.Result().Cookies())
	for _, text := range []string{linkText + "rain", " https://console.test/watch#" + linkText + "rain "} {
		w = f.ask(t, "", "/watch", url.Values{"link": {text}})
		require.Equal(t, http.StatusSeeOther, w.Code)
		require.Equal(t, "/campaigns/rain", w.Header().Get("Location"))
		cookies := w.Result().Cookies()
		cookie := cookies[len(cookies)-1]
		require.Equal(t, "__Host-hongbao-test-link", cookie.Name)
		require.Equal(t, linkText+"rain", cookie.Value)
		require.True(t, cookie.HttpOnly && cookie.Secure && cookie.SameSite == http.SameSiteStrictMode)
		require.InDelta(t, time.Hour.Seconds(), cookie.MaxAge, 2)
	}
	w = f.ask(t, "operator:snow", "/watch", url.Values{"link": {linkText + "rain"}})
	require.Empty(t, w.Result().Cookies(), "a link logs nobody out")
	w = f.ask(t, "", "/watch", url.Values{"link": {"wrong"}})
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Empty(t, w.Result().Cookies())
	require.Contains(t, w.Body.String(), "it is incomplete, or it has ended")
	require.NotContains(t, w.Body.String(), "wrong", "the page does not repeat what was typed")
}

// A link shows one campaign and its page for a stage, without money, users, names and reasons. It opens nothing else.
func TestLinkShowsOneCampaign(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	note := model.Say("a note")
	f.live = model.Live{Campaign: model.Campaign{ID: "rain", Name: "Spring rain", Currency: "CNY", Sponsor: "acme", Status: "paused",
		Packets: 1000, Dealt: 1000, Granted: 10, Left: 990, InRedis: true, Funded: 111_11, GrantedSum: 222_22, LeftSum: 333_33,
		Paid: 444_44, Refunded: 555_55, Paused: &model.Pause{By: "key:wei", Why: "wrong users"}, CanResume: true}, Settled: 10,
		Notes: []model.Sentence{note}, Spread: []model.Bin{{Low: 666_66, High: 777_77, Granted: 10}}, Hash: "4711",
		Split:   hongbao.Split{Min: 888_88, Max: 999_99},
		Spans:   []model.Span{{Kind: model.SpanPaused, From: audited, By: "cli:li", Why: "a leak"}},
		Moments: []model.Moment{{What: note, At: audited}}, Audit: model.Verdict{Differences: 3, At: audited},
		Lags: []model.Lag{{Sink: "kafka", Grants: 3}}}
	secret := []string{"acme", "wei", "wrong users", "cli:li", "a leak", "a note", "4711", "key-operator", "audit", "/journal", "/sinks", "<form method=\"post\" action=\"/campaigns",
		"66.66", "77.77", "88.88", "555.55"}
	sums := []string{"222.22", "444.44", "111.11", "333.33"}
	for _, link := range []string{linkText + "rain", linkText + "rain+money"} {
		for _, path := range []string{"/campaigns/rain", "/campaigns/rain/rain", "/campaigns/rain/rain?money=1"} {
			w := f.byLink(t, link, path)
			require.Equal(t, http.StatusOK, w.Code, path)
			require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			body := w.Body.String()
			require.Contains(t, body, "Spring rain")
			for _, s := range secret {
				if s != "555.55" || link == linkText+"rain" {
					require.NotContains(t, body, s, path)
				}
			}
			shown := 0
			for _, s := range sums {
				if strings.Contains(body, s) {
					shown++
				}
			}
			require.Equal(t, link != linkText+"rain" && path != "/campaigns/rain/rain", shown > 0, "%s by %s", path, link)
		}
	}
	for _, path := range append(pagePaths, "/create", "/jobs/1", "/campaigns/rain/links", "/campaigns/rain/end", "/campaigns/rain/pause",
		"/campaigns/other", "/campaigns/other/rain", "/events?page=/", "/events?page=/sinks", "/events?page=/jobs", "/events?page=/campaigns/other") {
		if path != "/campaigns/rain" {
			require.Equal(t, http.StatusNotFound, f.byLink(t, linkText+"rain", path).Code, path)
		}
	}
	require.Zero(t, f.denied, "the owner of the key is not blamed for it")
	f.keys.revoked.Store(true)
	w := f.byLink(t, linkText+"rain", "/campaigns/rain")
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.NotContains(t, w.Body.String(), "Spring rain")
}

// A link shows that something can't be read, and no text of an error, which may name servers.
func TestLinkShowsNoErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, nil)
		stop := inBackground(t, func(ctx context.Context) { _ = f.Run(ctx) })
		defer stop()
		f.err = hongbao.Outagef(hongbao.ClassTransient, "dial tcp 10.0.0.5:6379")
		for _, path := range []string{"/campaigns/rain", "/campaigns/rain/rain", "/campaigns/rain/result.svg"} {
			w := f.byLink(t, linkText+"rain", path)
			require.Equal(t, http.StatusServiceUnavailable, w.Code, path)
			require.NotContains(t, w.Body.String(), "10.0.0.5")
			require.Contains(t, f.ask(t, "viewer", path, nil).Body.String(), "10.0.0.5")
		}
		ctx, leave := context.WithCancel(t.Context())
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page=/campaigns/rain", nil)
		request.AddCookie(&http.Cookie{Name: f.cookieName(false) + linkSuffix, Value: linkText + "rain"})
		r, ended := f.stream(request)
		synctest.Wait()
		leave()
		<-ended
		require.Positive(t, r.count("trouble"))
		require.NotContains(t, r.text.String(), "10.0.0.5")
	})
}

// What a link leaves out, it leaves out of the live updates, too.
func TestLinkWatches(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.live.GrantedSum = 222_22
	f.live.Lags = []model.Lag{{Sink: "balance", Grants: 3}}
	who, err := f.keys.Link(t.Context(), linkText+"rain")
	require.NoError(t, err)
	for path, name := range map[string]string{"/campaigns/rain": "watched-live", "/campaigns/rain/rain?money=1": "rain-live"} {
		v, ok := f.viewOf(t.Context(), path, &who)
		require.True(t, ok)
		require.Equal(t, name, v.live)
		data, err := v.load(t.Context())
		require.NoError(t, err)
		w := data.(*watched)
		w.sinks = []deliveries.SinkStatus{{Sink: "balance", State: deliveries.SinkPaused, Pause: deliveries.SinkPause{Paused: true, By: "key:wei", Why: "why"}}}
		for _, in := range f.tongues {
			html, err := in.render(v.live, page{Caller: &who, View: v.filter(&reading{data: w}, &who), Link: true})
			require.NoError(t, err)
			require.NotContains(t, html, "222.22")
			require.NotContains(t, html, "wei")
		}
		require.Equal(t, "key:wei", w.sinks[0].Pause.By, "other readers of the same reading still see it")
		require.EqualValues(t, 222_22, w.GrantedSum)
	}
}

// A server answers a bounded number of requests of each link.
func TestLinkIsLimited(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	codes := map[int]int{}
	for range linkBurst + 50 {
		codes[f.byLink(t, linkText+"rain", "/events?page=/none").Code]++
	}
	require.GreaterOrEqual(t, codes[http.StatusNotFound], linkBurst)
	require.Positive(t, codes[http.StatusTooManyRequests])
	require.Equal(t, http.StatusNotFound, f.byLink(t, linkText+"new", "/events?page=/none").Code, "another link has its own limit")
	old := doors{all: map[string]door{"old": {ends: time.Now().Add(-time.Second)}}}
	require.True(t, old.open(&access.Session{Hash: "new"}))
	require.Len(t, old.all, 1, "links that have ended are forgotten")
}
