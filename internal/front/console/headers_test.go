package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// No header of a request makes a page panic, and none but a valid key or session opens one.
func FuzzHeaders(f *testing.F) {
	c, err := New(configs.Console{Every: time.Second, Watchers: 1, SessionTime: time.Hour, IdleTime: time.Minute}, Deps{Source: &fakeSource{},
		Actions: &fakeSource{}, Operations: (&fakeSource{}).operations, Authority: &keys{}, Jobs: jobs.New(noLedger{}, "p1", zap.NewNop()), Log: zap.NewNop(), Deployment: "test"})
	require.NoError(f, err)
	f.Cleanup(c.jobs.Close)
	for _, text := range []string{"", "Bearer ", "Bearer x", "hongbao-test=x", "hongbao-test=\"", "hongbao-test==;;", "a=b; hongbao-test="} {
		f.Add(text, text, "same-origin")
	}
	f.Fuzz(func(t *testing.T, authorization, cookie, site string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/journal", nil)
		r.Header.Set("Authorization", authorization)
		r.Header.Set("Cookie", cookie)
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code)
	})
}

// After a log-in, no text leads to another site.
func FuzzLocal(f *testing.F) {
	for _, to := range []string{"/campaigns?x=1", "//evil.test", `/\evil.test`, "https://evil.test", "/%2f/evil.test", "/\t/evil.test"} {
		f.Add(to)
	}
	f.Fuzz(func(t *testing.T, to string) {
		u, err := url.Parse(local(to))
		require.NoError(t, err)
		require.Empty(t, u.Host)
		require.Empty(t, u.Scheme)
		require.NotRegexp(t, `^(//|/\\)`, local(to))
	})
}

// The cookie is Secure if the browser speaks TLS, also if a proxy in front of the console ends it.
func TestCookieBehindAProxy(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for origin, secure := range map[string]bool{"https://console.example.com": true, "http://127.0.0.1:8081": false, "": false} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader(url.Values{"key": {"viewer"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		cookie := w.Result().Cookies()[0]
		require.Equal(t, secure, cookie.Secure, origin)
		require.Equal(t, f.cookieName(secure), cookie.Name)
		again := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		again.AddCookie(cookie)
		w = httptest.NewRecorder()
		f.ServeHTTP(w, again)
		require.Equal(t, http.StatusOK, w.Code)
	}
}

// The field of a reason takes no more than the server does. A reason that is too long is on the page of the refusal.
func TestLongReasonIsNotLost(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	for _, path := range []string{"/campaigns/rain", "/letters/requeue?all=1", "/letters/kafka/0/1-1", "/quarantine/7"} {
		require.Regexp(t, `name="why" required maxlength="500"`, f.ask(t, "treasurer", path, nil).Body.String(), path)
	}
	why := strings.Repeat("红", 501)
	w := f.ask(t, "treasurer", "/letters/drop", url.Values{"id": {"kafka/0/1-1"}, "why": {why}})
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Contains(t, w.Body.String(), why)
}
