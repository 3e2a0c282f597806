package dev

import (
	"crypto/rand"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// linkTime is how long a log-in link is valid.
const linkTime = 10 * time.Minute

const linkPath = "/link/"

// links makes links that log in to the console once. Only the newest link is valid. Its methods may be called
// concurrently.
type links struct {
	now func() time.Time // nil: time.Now

	mu      sync.Mutex
	console string   // URL of the console; empty until it is open, and if it is not on loopback
	at      net.Addr // of the console's listener
	key     string   // API key with which a link logs in
	token   string   // of the newest link; empty once it is spent
	ends    time.Time
}

// open says where the console is. A console on another address than loopback has no links.
func (l *links) open(console string, at net.Addr, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if onLoopback(at.String()) {
		l.console, l.at, l.key = console, at, key
	}
}

func onLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// next returns a new link, and ends the one before. It returns "" if the console has no links.
func (l *links) next() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.console == "" {
		return ""
	}
	l.token, l.ends = rand.Text(), l.time().Add(linkTime)
	return l.console + linkPath + l.token
}

func (l *links) time() time.Time {
	if l.now != nil {
		return l.now()
	}
	return time.Now()
}

// use reports whether a token is valid, and returns the key. If spend is set, the token is not valid any more.
func (l *links) use(token string, spend bool) (key string, valid bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(l.token)) == 0 || !l.time().Before(l.ends) {
		return "", false
	}
	if spend {
		l.token = ""
	}
	return l.key, true
}

// concerns reports whether a request is for a link: it comes from this machine to the console's listener.
func (l *links) concerns(r *http.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && l.console != "" && at.String() == l.at.String() && onLoopback(r.RemoteAddr) &&
		strings.HasPrefix(r.URL.Path, linkPath)
}

// guard answers the requests for links, and passes all others to h. GET shows a button and changes nothing, because
// terminals and chats open links for a preview. The button's POST spends the link and logs in at h.
func (l *links) guard(h http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.concerns(r) {
			h.ServeHTTP(w, r)
			return
		}
		token := strings.TrimPrefix(r.URL.Path, linkPath)
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			if _, valid := l.use(token, false); !valid {
				linkPage(w, http.StatusGone, linkOver)
				return
			}
			linkPage(w, http.StatusOK, linkButton)
		case http.MethodPost:
			if protection.Check(r) != nil {
				linkPage(w, http.StatusForbidden, "<p>This request came from another site.</p>")
				return
			}
			key, valid := l.use(token, true)
			if !valid {
				linkPage(w, http.StatusGone, linkOver)
				return
			}
			h.ServeHTTP(w, loginBy(r, key))
		default:
			linkPage(w, http.StatusMethodNotAllowed, "<p>Open the link in a browser.</p>")
		}
	})
}

// loginBy returns the request by which the form of the log-in page logs in.
func loginBy(r *http.Request, key string) *http.Request {
	form := url.Values{"key": {key}, "to": {"/"}}.Encode()
	login := r.Clone(r.Context())
	login.URL.Path, login.URL.RawPath, login.URL.RawQuery, login.RequestURI = "/login", "", "", "/login"
	login.Body, login.ContentLength = io.NopCloser(strings.NewReader(form)), int64(len(form))
	login.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return login
}

const (
	linkButton = `<form class="panel" method="post"><p><button class="main" autofocus>Log in to the console</button></p>` +
		`<p class="dim">The link works once, and for ten minutes after it was printed.</p></form>`
	linkOver = `<p class="note">This link was used, is older than ten minutes, or is not the newest one. In the terminal of ` +
		`hongbao dev type o and Enter for another one, or <a href="/login">log in with the key</a>.</p>`
)

// linkPage writes a page. It has no data of the request.
func linkPage(w http.ResponseWriter, status int, body string) {
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "+
		"frame-ancestors 'none'")
	head.Set("Cache-Control", "no-store")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" `+
		`content="width=device-width, initial-scale=1"><title>Log in - Hongbao</title><link rel="icon" href="/static/icon.svg">`+
		`<link rel="stylesheet" href="/static/console.css"></head><body><main><h1>Hongbao on this machine</h1>`+body+
		`</main></body></html>`) // the browser may be gone
}
