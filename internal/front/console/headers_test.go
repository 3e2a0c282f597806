package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/configs"
)

// No header of a request makes a page panic, and none but a valid key or session opens one.
func FuzzHeaders(f *testing.F) {
	c, err := New(configs.Console{Every: time.Second, Watchers: 1, SessionTime: time.Hour, IdleTime: time.Minute}, Deps{Source: &fakeSource{},
		Actions: &fakeSource{}, Operations: (&fakeSource{}).operations, Authority: &keys{}, Log: zap.NewNop(), Deployment: "test"})
	require.NoError(f, err)
	f.Cleanup(c.jobs.close)
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
