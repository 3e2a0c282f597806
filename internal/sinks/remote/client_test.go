package remote

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// closesReused starts a server that answers the first request of each connection. It reads the second request
// completely and then closes the connection. In this case net/http may retry the request automatically.
func closesReused(t *testing.T) (url string, bodies *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	bodies = &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serveTwo(conn, bodies)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return "http://" + l.Addr().String(), bodies
}

func serveTwo(conn net.Conn, bodies *atomic.Int64) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := range 2 {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		bodies.Add(1)
		if n == 0 {
			_, _ = conn.Write([]byte("HTTP/1.1 201 Created\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + string(body)))
		}
	}
}

func itoa(n int) string { return string(encode(n)) }

// Headers and body are sent with one write. Two writes would cost both sides another system call and packet for each
// credit.
func TestOneRequestIsOneWrite(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	parts := make(chan int, 1) // number of reads until a request was complete
	go func() {
		defer close(parts)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf, n := make([]byte, 64<<10), 0
		for reads := 1; ; reads++ {
			got, err := conn.Read(buf[n:])
			if n += got; err != nil {
				return
			}
			if bytes.HasSuffix(buf[:n], []byte("}")) {
				_, _ = conn.Write([]byte("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"))
				parts <- reads
				reads, n = 0, 0
			}
		}
	}()
	h, err := New(testConfig("http://"+l.Addr().String()), campaigns{}, newBooks())
	require.NoError(t, err)
	t.Cleanup(func() { h.Close(); _ = l.Close() })
	list := grants(1, 50)
	for i := range list {
		h.post(t.Context(), &item{grant: &list[i], credit: wire(&list[i])})
		require.Equal(t, 1, <-parts, "request %d", i)
	}
}

// net/http automatically retries a POST with an Idempotency-Key when a kept connection breaks. The requests of a
// Handler are never retried in this way.
func TestNothingIsSentTwiceInSecret(t *testing.T) {
	t.Parallel()
	t.Run("ours", func(t *testing.T) {
		t.Parallel()
		url, bodies := closesReused(t)
		cfg := testConfig(url)
		cfg.Repeats, cfg.Queryable = 0, false
		h, err := New(cfg, campaigns{}, newBooks())
		require.NoError(t, err)
		t.Cleanup(h.Close)
		list := grants(1, 2)
		one, two := &item{grant: &list[0], credit: wire(&list[0])}, &item{grant: &list[1], credit: wire(&list[1])}
		require.Equal(t, Done, h.post(t.Context(), one).outcome)
		r := h.post(t.Context(), two)
		require.Equal(t, Unknown, r.outcome, "%v", r.err)
		require.EqualValues(t, 2, bodies.Load(), "the second request was sent once")
	})
	t.Run("a plain client", func(t *testing.T) { // shows that the test above can fail
		t.Parallel()
		url, bodies := closesReused(t)
		client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
		t.Cleanup(client.CloseIdleConnections)
		for range 2 {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", `"k"`)
			resp, err := client.Do(req)
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			require.NoError(t, resp.Body.Close())
		}
		require.EqualValues(t, 3, bodies.Load(), "the second request was sent twice")
	})
}

func wire(g *hongbao.Grant) credit {
	key := Key("prod", g.Campaign, g.Packet)
	return credit{Key: key, Reference: key, Account: g.User, Currency: "CNY", Amount: g.Amount}
}

// newTransport changes every default that would retry a request, follow a proxy or wait forever.
func TestClientOptions(t *testing.T) {
	t.Parallel()
	cfg := testConfig("http://x")
	tr := newTransport(&cfg)
	require.Nil(t, tr.Proxy)
	require.False(t, tr.DisableKeepAlives)
	require.Equal(t, cfg.HeaderTimeout, tr.ResponseHeaderTimeout)
	require.Equal(t, cfg.Concurrency, tr.MaxConnsPerHost)
	require.True(t, tr.Protocols.HTTP1())
	require.False(t, tr.Protocols.HTTP2())
	require.False(t, tr.Protocols.UnencryptedHTTP2())
	neither(&cfg)
	require.True(t, newTransport(&cfg).DisableKeepAlives, "a kept connection could end as Unknown")
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	cfg := testConfig("http://x")
	blind := cfg
	neither(&blind)
	for status := 100; status < 600; status++ {
		want, wantBlind := Unknown, Unknown
		switch status {
		case 200, 201:
			want, wantBlind = Done, Done
		case 202, 409, 425, 503:
			want = Wait
		case 429:
			want, wantBlind = Wait, NotSent
		case 400, 402, 410, 422:
			want, wantBlind = Rejected, Rejected
		case 401, 403, 404, 405, 406, 411, 413, 414, 415, 421, 431:
			want, wantBlind = NotSent, NotSent
		}
		require.Equal(t, want, cfg.outcomeOf(status, ""), "%d", status)
		require.Equal(t, wantBlind, blind.outcomeOf(status, ""), "%d", status)
	}
	require.Equal(t, Unknown, cfg.outcomeOf(422, codeKeyReused))
	require.Equal(t, Unknown, cfg.outcomeOf(422, codeReferenceReused))
}

// After a Retry-After, no goroutine sends requests until the pause is over.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
		})
		h := newHandler(t, b, l, func(c *Config) { c.Concurrency = 1 })
		start := time.Now()
		now := atomic.Int64{}
		now.Store(start.UnixNano())
		h.now = func() time.Time { return time.Unix(0, now.Load()) }
		errs := h.Handle(t.Context(), testkit.Batch(grants(1, 5)))
		for _, err := range errs {
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
			require.True(t, hongbao.IsOutage(err))
		}
		require.Equal(t, 1, b.all(), "no further request after the first answer")
		b.set(nil)
		require.True(t, hongbao.IsOutage(h.Handle(t.Context(), testkit.Batch(grants(1, 5)))[0]))
		require.Equal(t, 1, b.all())
		now.Add(int64(2100 * time.Millisecond)) // the remote asked for an hour; MaxRetryAfter is 2 s
		require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 5))))
		b.holds(t, grants(1, 5))
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		b.book(c)
		w.WriteHeader(http.StatusBadGateway)
	})
	h := newHandler(t, b, l, func(c *Config) {
		c.BreakerFailures, c.Repeats, c.Concurrency = 4, 0, 1
		c.BreakerOpen = 5 * time.Second
	})
	require.NotNil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 20))))
	require.Equal(t, 4, b.all())
	require.True(t, h.BreakerOpen())
	errs := h.Handle(t.Context(), testkit.Batch(grants(1, 20)))
	require.True(t, hongbao.IsOutage(errs[0]), "%v", errs[0])
	require.Equal(t, 4, b.all(), "nothing is sent while the breaker is open")
	b.set(nil)
	require.Eventually(t, func() bool { return h.Handle(t.Context(), testkit.Batch(grants(1, 20))) == nil }, 30*time.Second,
		10*time.Millisecond)
	b.holds(t, grants(1, 20))
	require.Zero(t, l.left())
	require.False(t, h.BreakerOpen())
}

// If the remote refuses every credit because of the configuration, grants wait or get an outage. No grant becomes a
// dead letter, and no attempt is counted.
func TestRefusedAltogether(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 405, 413, 415} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(status) })
		errs := newHandler(t, b, l).Handle(t.Context(), testkit.Batch(grants(1, 2)))
		for i, err := range errs {
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
			require.True(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "%v", err)
			require.NotEqual(t, hongbao.IsOutage(errs[1-i]), hongbao.IsOutage(err), "only the second refusal shows an outage")
		}
		require.Zero(t, l.left())
	}
}

func TestBatchAnswers(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"too few": `{"results":[]}`, "not a list": `{"results":1}`, "HTML": "<html>", "no status": `{"results":[{},{}]}`,
		"in another order": `{"results":[` +
			`{"status":201,"reference":"prod:rain:2","account":"u2","currency":"CNY","amount":102},` +
			`{"status":201,"reference":"prod:rain:1","account":"u1","currency":"CNY","amount":101}]}`,
	} {
		b, l := newBank(t), newBooks()
		h := newHandler(t, b, l, func(c *Config) { c.BatchCredits = 10 })
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
			b.set(nil)
			for _, g := range grants(1, 2) {
				b.book(wire(&g))
			}
			_, _ = w.Write([]byte(body))
		})
		require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 2))), name)
		b.holds(t, grants(1, 2))
		require.Greater(t, b.all()+int(b.queries.Load()), 1, "%s: the answer was not trusted", name)
	}
}

// The remote's certificate is from a private authority, and the remote requires a client certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	server := httptest.NewUnstartedServer(b.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	h := func(l *fakeLedger, config *tls.Config) *Handler {
		cfg := testConfig(server.URL)
		cfg.TLS, cfg.Repeats = config, 0
		h, err := New(cfg, campaigns{}, l)
		require.NoError(t, err)
		t.Cleanup(h.Close)
		return h
	}
	l := newBooks()
	strange := h(l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: server.TLS.Certificates})
	for _, err := range strange.Handle(t.Context(), testkit.Batch(grants(1, 2))) {
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
		var untrusted x509.UnknownAuthorityError
		require.ErrorAs(t, err, &untrusted)
		require.True(t, hongbao.IsOutage(err))
	}
	require.Zero(t, l.left(), "no credit is in doubt")
	bare := h(newBooks(), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})
	for _, err := range bare.Handle(t.Context(), testkit.Batch(grants(1, 2))) {
		require.Error(t, err, "the client has no certificate")
	}
	require.Zero(t, b.times(), "no credit reached the remote")
	good := h(newBooks(), &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: server.TLS.Certificates})
	require.Nil(t, good.Handle(t.Context(), testkit.Batch(grants(1, 2))))
	b.holds(t, grants(1, 2))
}

// A redirect is not followed, and its result is Unknown.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		b := newBank(t)
		redirects := atomic.Int64{}
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
			redirects.Add(1)
			w.Header().Set("Location", b.URL+"/inside")
			w.WriteHeader(status)
		})
		h := newHandler(t, b, newBooks(), repeats)
		for _, err := range h.Handle(t.Context(), testkit.Batch(grants(1, 2))) {
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%d: %v", status, err)
		}
		require.Positive(t, redirects.Load())
		require.Zero(t, b.inside.Load(), "%d was followed", status)
	}
}

// The request for a credit, and each retry, carries the traceparent of its grant. Without a traceparent in the grant,
// the request has none.
func TestTraceparentGoesAlong(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	var mu sync.Mutex
	parents := map[string][]string{}
	b.set(func(w http.ResponseWriter, r *http.Request, c credit) {
		mu.Lock()
		defer mu.Unlock()
		parents[c.Account] = append(parents[c.Account], r.Header.Get("Traceparent"))
		if len(parents[c.Account]) == 1 {
			drop(w)
			return
		}
		b.say(w, http.StatusCreated, b.book(c))
	})
	h := newHandler(t, b, newBooks())
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	list := grants(1, 2)
	list[0].Trace = trace
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(list)))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string][]string{"u1": {trace, trace}, "u2": {"", ""}}, parents)
}
