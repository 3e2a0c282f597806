package webhook

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// Retry-After silences the whole sink, but not for longer than MaxRetryAfter.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		for _, value := range []string{"3600", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)} {
			r := newReceiver(t)
			r.set(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(status)
			})
			h := newHandler(t, r, oneAtATime)
			var ahead atomic.Int64
			start := time.Now()
			h.now = func() time.Time { return start.Add(time.Duration(ahead.Load())) }
			require.Equal(t, []string{"outage, transient", "outage, transient"}, kinds(h.handle(t.Context(), grants(1, 2))))
			r.set(nil)
			ahead.Store(int64(2*time.Second - 1))
			require.Equal(t, []string{"outage, transient"}, kinds(h.handle(t.Context(), grants(3, 3))), "other events wait, too")
			require.Len(t, r.got(), 1)
			ahead.Store(int64(2 * time.Second)) // the receiver asked for an hour; MaxRetryAfter is 2 s
			require.Nil(t, h.handle(t.Context(), grants(1, 3)))
		}
	}
}

// With another status, Retry-After concerns one event, and the sink goes on.
func TestRetryAfterOfOneEvent(t *testing.T) {
	t.Parallel()
	for _, status := range []int{202, 409, 500} {
		r := newReceiver(t)
		r.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(status)
		})
		h := newHandler(t, r)
		h.handle(t.Context(), grants(1, 1))
		r.set(nil)
		require.Nil(t, h.handle(t.Context(), grants(2, 2)), "%d", status)
	}
}

// A receiver that asks for no time is asked again at the next call.
func TestUnavailableWithoutRetryAfter(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.status(http.StatusTooManyRequests)
	h := newHandler(t, r)
	require.Equal(t, []string{"outage, transient"}, kinds(h.handle(t.Context(), grants(1, 1))))
	r.set(nil)
	require.Nil(t, h.handle(t.Context(), grants(1, 1)))
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.status(http.StatusBadGateway)
	h := newHandler(t, r, oneAtATime, func(c *Config) { c.BreakerFailures, c.BreakerOpen = 4, time.Millisecond })
	require.False(t, h.BreakerOpen())
	errs := h.handle(t.Context(), grants(1, 4))
	require.True(t, h.BreakerOpen())
	for _, err := range errs {
		require.Equal(t, "outage, unknown", kind(err))
	}
	r.set(nil)
	require.Eventually(t, func() bool { return h.handle(t.Context(), grants(1, 4)) == nil }, patient, tick)
	require.False(t, h.BreakerOpen())

	r.status(http.StatusBadGateway)
	slow := newHandler(t, r, oneAtATime, func(c *Config) { c.BreakerFailures = 4 })
	before := len(r.got())
	require.Equal(t, "outage, transient", kind(slow.handle(t.Context(), grants(1, 20))[19]))
	require.Len(t, r.got(), before+4, "nothing is sent while the breaker is open")
}

// An endpoint that refuses every event is up. An outage by the breaker would hide what is wrong.
func TestRefusalsDoNotOpenTheBreaker(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 302, 409, 429} {
		r := newReceiver(t)
		r.status(status)
		h := newHandler(t, r, func(c *Config) { c.BreakerFailures = 1 })
		for range 3 {
			require.Error(t, h.handle(t.Context(), grants(1, 1))[0])
			require.False(t, h.BreakerOpen(), "%d", status)
		}
	}
}

// impatient has a timeout that a test can wait for.
func impatient(c *Config) { c.Timeout = time.Second }

// The receiver does not answer, or does not end its answer.
func TestHang(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.set(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	h := newHandler(t, r, impatient, func(c *Config) { c.BreakerFailures = 2 })
	errs := h.handle(t.Context(), grants(1, 2))
	require.Equal(t, []string{"outage, unknown", "outage, unknown"}, kinds(errs))
	require.ErrorIs(t, errs[0], context.DeadlineExceeded)
	require.True(t, h.BreakerOpen())

	r.set(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	})
	require.Nil(t, newHandler(t, r, impatient).handle(t.Context(), grants(3, 3)), "the status decides")
}

// accept returns a listener whose connections are given to serve.
func accept(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return "http://" + l.Addr().String() + "/"
}

func to(url string) func(*Config) { return func(c *Config) { c.URL = url } }

// Nothing was sent: a connection is refused, or its TLS handshake hangs.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	silent := accept(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	plain := accept(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	for name, url := range map[string]string{"refused": "http://" + l.Addr().String(),
		"handshake": strings.Replace(silent, "http:", "https:", 1), "no TLS": strings.Replace(plain, "http:", "https:", 1)} {
		h := newHandler(t, newReceiver(t), to(url), func(c *Config) { c.ConnectTimeout = 100 * time.Millisecond })
		errs := h.handle(t.Context(), grants(1, 3))
		require.Equal(t, []string{"outage, transient", "outage, transient", "outage, transient"}, kinds(errs), name)
		require.ErrorContains(t, errs[2], "nothing was sent", name)
	}
}

// A complete status line and headers are an answer, whatever follows. Anything less is none.
func TestHalfAnswers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{":      "done",
		"HTTP/1.1 422 No\r\nContent-Length: 100\r\n\r\n{":      "permanent",
		"HTTP/1.1 200 OK\r\nContent-Length: 0":                 "waiting",
		"HTTP/1.1 200 OK":                                      "waiting",
		"HTTP/1.1 2":                                           "waiting",
		"":                                                     "waiting",
		"SSH-2.0-OpenSSH_9.2p1\r\n":                            "waiting",
		"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n":         "waiting",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n":         "waiting",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10): "waiting",
	} {
		r := newReceiver(t)
		r.set(func(w http.ResponseWriter, _ *http.Request) { drop(w, text) })
		h := newHandler(t, r)
		errs := h.handle(t.Context(), grants(1, 1))
		require.Equal(t, want, kind(append(errs, nil)[0]), "%.60q", text)
		if want == "waiting" {
			r.set(nil)
			require.Nil(t, h.handle(t.Context(), grants(1, 1)), "%.60q", text)
			require.Equal(t, map[string]int{"rain-1": 2}, r.ids())
		}
	}
}

// The receiver processes each event, and its answers are lost. The events come again with the same ids.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter, _ *http.Request) { drop(w, "") })
	h := newHandler(t, r)
	require.Equal(t, []string{"outage, unknown", "outage, unknown"}, kinds(h.handle(t.Context(), grants(1, 2))))
	r.set(nil)
	require.Nil(t, h.handle(t.Context(), grants(1, 2)))
	require.Equal(t, map[string]int{"rain-1": 2, "rain-2": 2}, r.ids())
}

// When ctx ends, nothing more is sent, and Handle returns.
func TestEndOfCall(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	ctx, cancel := context.WithCancel(t.Context())
	r.set(func(_ http.ResponseWriter, req *http.Request) {
		cancel()
		<-req.Context().Done()
	})
	h := newHandler(t, r, oneAtATime)
	errs := h.handle(ctx, grants(1, 5))
	require.Equal(t, []string{"unknown", "waiting", "waiting", "waiting", "waiting"}, kinds(errs))
	require.Len(t, r.got(), 1)
	require.False(t, h.BreakerOpen())
	require.Equal(t, []string{"waiting"}, kinds(h.handle(ctx, grants(1, 1))))
	require.Len(t, r.got(), 1)
}

// A request is not sent if its time limit is longer than the rest of the call.
func TestTooLateInTheCall(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r, func(c *Config) { c.Timeout = time.Minute })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Second)
	defer cancel()
	errs := h.handle(ctx, grants(1, 2))
	require.Equal(t, []string{"waiting", "waiting"}, kinds(errs))
	require.ErrorContains(t, errs[0], "a request may take 1m0s, and the call ends before that")
	require.Empty(t, r.got())
	longer, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	require.Nil(t, h.handle(longer, grants(1, 2)))
}

// suspended is the context of a call whose process was stopped beyond the deadline: no timer has fired yet.
type suspended struct{ context.Context }

func (suspended) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

func TestSuspendedProcess(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.Equal(t, []string{"waiting"}, kinds(newHandler(t, r, impatient).handle(suspended{t.Context()}, grants(1, 1))))
	require.Empty(t, r.got())
}

// Calls of all shards share the slots.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	r.set(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		running++
		most = max(most, running)
		if running == 4 {
			close(full)
		}
		mu.Unlock()
		<-full // until 4 requests run at once
		mu.Lock()
		running--
		if running == 0 {
			full = make(chan struct{})
		}
		mu.Unlock()
	})
	h := newHandler(t, r, func(c *Config) { c.Concurrency = 4 })
	var wg sync.WaitGroup
	for call := range int64(3) {
		wg.Go(func() {
			if errs := h.handle(t.Context(), grants(1+4*call, 4+4*call)); errs != nil {
				t.Error(errs)
			}
		})
	}
	wg.Wait()
	require.Equal(t, 4, most)
	require.Len(t, r.ids(), 12)
}

// A sink without free slots waits no longer than the call.
func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	entered := make(chan struct{}, 1)
	r.set(func(_ http.ResponseWriter, req *http.Request) {
		entered <- struct{}{}
		<-req.Context().Done()
	})
	h := newHandler(t, r, oneAtATime)
	long, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { h.handle(long, grants(1, 1)) })
	<-entered
	ctx, end := context.WithTimeout(t.Context(), h.cfg.Timeout+20*time.Millisecond)
	defer end()
	errs := h.handle(ctx, grants(2, 2))
	require.Equal(t, []string{"waiting"}, kinds(errs))
	require.NoError(t, ctx.Err(), "Handle returns when no request has its time any more")
	require.Len(t, r.got(), 1)
	cancel()
	wg.Wait()
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(errs[0]))
}
