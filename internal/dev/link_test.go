package dev

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// linkSite is a console behind the links. It records the log-ins.
type linkSite struct {
	*links
	h        http.Handler
	at       net.Addr
	loggedIn []url.Values
}

func newLinkSite(t *testing.T) *linkSite {
	t.Helper()
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081}
	s := &linkSite{links: &links{}, at: at}
	s.h = s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == "/login" {
			if err := r.ParseForm(); err != nil {
				t.Error(err)
			}
			s.loggedIn = append(s.loggedIn, r.PostForm)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	}))
	s.open("http://127.0.0.1:8081", at, "hb_key_secret")
	return s
}

// do sends a request, which change may change, and returns the answer.
func (s *linkSite) do(method, link string, change func(r *http.Request)) (int, string) {
	r := httptest.NewRequest(method, link, nil)
	r.RemoteAddr = "127.0.0.1:5000"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, s.at))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	text, _ := io.ReadAll(w.Body)
	return w.Code, string(text)
}

// A preview of the link, as terminals and chats make it, shows a button and spends nothing. The button logs in, once.
func TestLinkLogsInOnce(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	link := s.next()
	require.Regexp(t, `^http://127\.0\.0\.1:8081/link/[A-Z2-7]{26}$`, link)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodGet} {
		code, text := s.do(method, link, nil)
		require.Equal(t, http.StatusOK, code)
		require.NotContains(t, text, "hb_key", "the page has no key")
	}
	_, text := s.do(http.MethodGet, link, nil)
	require.Contains(t, text, `<form class="panel" method="post">`)
	code, _ := s.do(http.MethodPost, link, nil)
	require.Equal(t, http.StatusSeeOther, code)
	require.Equal(t, []url.Values{{"key": {"hb_key_secret"}, "to": {"/"}}}, s.loggedIn)
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		code, text = s.do(method, link, nil)
		require.Equal(t, http.StatusGone, code)
		require.Contains(t, text, "type o and Enter")
	}
	require.Len(t, s.loggedIn, 1)
}

func TestLinkIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   int
		change func(r *http.Request)
	}{
		"another machine":  {http.StatusTeapot, func(r *http.Request) { r.RemoteAddr = "192.0.2.7:5000" }},
		"another site":     {http.StatusForbidden, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		"another link":     {http.StatusGone, func(r *http.Request) { r.URL.Path = "/link/AAAAAAAAAAAAAAAAAAAAAAAAAA" }},
		"no link":          {http.StatusGone, func(r *http.Request) { r.URL.Path = "/link/" }},
		"another page":     {http.StatusTeapot, func(r *http.Request) { r.URL.Path = "/sinks" }},
		"another method":   {http.StatusMethodNotAllowed, func(r *http.Request) { r.Method = http.MethodPut }},
		"another listener": {http.StatusTeapot, func(r *http.Request) { *r = *toAPI(r) }},
	} {
		s := newLinkSite(t)
		link := s.next()
		code, _ := s.do(http.MethodPost, link, c.change)
		require.Equal(t, c.code, code, name)
		require.Empty(t, s.loggedIn, name)
		code, _ = s.do(http.MethodPost, link, nil)
		require.Equal(t, http.StatusSeeOther, code, "%s: nothing was spent", name)
	}
	empty := &links{}
	w := httptest.NewRecorder()
	empty.guard(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/link/", nil))
	require.Equal(t, http.StatusNotFound, w.Code, "the console is not open yet")
}

func toAPI(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey,
		net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})))
}

// A link is valid for ten minutes, and only until the next one is printed.
func TestLinkEnds(t *testing.T) {
	t.Parallel()
	s := newLinkSite(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	first := s.next()
	second := s.next()
	require.NotEqual(t, first, second)
	code, _ := s.do(http.MethodGet, first, nil)
	require.Equal(t, http.StatusGone, code)
	now = now.Add(linkTime - time.Second)
	code, _ = s.do(http.MethodGet, second, nil)
	require.Equal(t, http.StatusOK, code)
	now = now.Add(time.Second)
	code, _ = s.do(http.MethodPost, second, nil)
	require.Equal(t, http.StatusGone, code)
	require.Empty(t, s.loggedIn)
}

// A console that other machines reach has no link.
func TestLinkOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	l := &links{}
	l.open("https://dev.example:8081", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8081}, "hb_key")
	require.Empty(t, l.next())
}
