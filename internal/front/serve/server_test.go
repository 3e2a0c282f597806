package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// raw sends text that no HTTP client would send, and returns what the server sends until it closes the
// connection.
func (s *server) raw(t *testing.T, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if _, err = io.WriteString(conn, text); err != nil {
		t.Error(err)
	}
	all, err := io.ReadAll(conn) // a reset of the connection is also an end
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server still waits for the rest of %.60q", text)
	}
	return string(all)
}

// The server cuts off a slow header without an answer, and a slow body with an answer. Meanwhile it answers other
// requests.
func TestSlowSenders(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.ReadHeaderTimeout, c.ReadTimeout = 4*time.Second, 5*time.Second }})
	head, body := make(chan string, 1), make(chan string, 1)
	grab := "POST /v1/campaigns/granted/grabs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
		hs().sign(t, "u1") + "\r\n"
	go func() { head <- s.raw(t, grab) }()
	go func() { body <- s.raw(t, grab+"Content-Length: 18\r\n\r\n{\"request") }()
	require.Equal(t, http.StatusOK, s.call(t, "POST", "/v1/campaigns/granted/grabs", good).Status)
	require.Empty(t, <-head)
	answer := <-body
	require.True(t, strings.HasPrefix(answer, "HTTP/1.1 408 Request Timeout\r\n"), answer)
	require.Contains(t, answer, `"code":"body_incomplete"`)
	require.Len(t, s.grabbed(), 1)
}

// A header that is too large, and text that is not HTTP, get an error answer. Nothing is grabbed.
func TestOddHeads(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	head := "POST /v1/campaigns/granted/grabs HTTP/1.1\r\nHost: x\r\n"
	for text, want := range map[string]string{
		head + "X: " + strings.Repeat("x", 20<<10) + "\r\n\r\n": "431 ",
		"junk\r\n\r\n": "400 ",
		"POST /v1/campaigns/granted/grabs HTTP/1.1\r\n\r\n":                                            "400 ",
		head + "Content-Length: -1\r\n\r\n":                                                            "400 ",
		head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}":                                      "400 ",
		head + "Transfer-Encoding: gzip, chunked\r\n\r\n":                                              "501 ",
		"POST /v1/campaigns/granted/grabs HTTP/3.0\r\nHost: x\r\n\r\n":                                 "505 ",
		"CONNECT /v1/campaigns/granted/grabs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":         "405 ",
		"PUT http://other/v1/campaigns/granted/grabs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": "405 ",
	} {
		answer := s.raw(t, text)
		require.True(t, strings.HasPrefix(answer, "HTTP/1.1 "+want), "%.60q: %.60q", text, answer)
	}
	require.Empty(t, s.grabbed())
}

// Connections above the limit wait until others are closed.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.Connections = 1 }})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/campaigns/c HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.NoError(t, res.Body.Close())
	done := make(chan int, 1)
	go func() { done <- s.call(t, "GET", "/v1/campaigns/c", "").Status }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	select {
	case <-done:
		t.Error("two connections were served at once")
	case <-ctx.Done():
	}
	require.NoError(t, conn.Close())
	require.Equal(t, http.StatusOK, <-done)
}

// The health endpoints do not depend on Redis or the ledger, and only the ops listener serves them.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := setup(t, options{fake: &fake{err: io.ErrUnexpectedEOF}})
	for _, path := range []string{"/livez", "/readyz"} {
		r := s.call(t, "GET", s.ops+path, "", header("Authorization", ""))
		require.Equal(t, http.StatusOK, r.Status)
		require.Equal(t, "ok", r.Body["status"])
		s.call(t, "GET", path, "").Refused(t, "not_found")
	}
	require.Equal(t, http.StatusNotFound, s.call(t, "POST", s.ops+"/v1/campaigns/granted/grabs", good).Status)
}

// The metrics are served on the ops listener only.
func TestMetricsAreNotPublic(t *testing.T) {
	t.Parallel()
	s := setup(t, options{metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "metric 1")
	})})
	require.Equal(t, "metric 1", s.call(t, "GET", s.ops+"/metrics", "").Text)
	s.call(t, "GET", "/metrics", "").Refused(t, "not_found")
}

// If a listener can't be opened, the open ones are closed.
func TestListenersOpenTogether(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
	cfg, f, text := testConfig(), &fake{}, allKeys(t)
	cfg.Listen, cfg.OpsListen = address, address
	s, err := New(cfg, Deps{Grabber: f, Reader: f, Log: zap.NewNop(),
		KeyFile: func() ([]byte, string, error) { return text, "", nil }})
	require.NoError(t, err)
	err = s.Run(t.Context(), func(Addresses) { t.Error("it is ready") })
	require.ErrorContains(t, err, "serve.ops_listen")
	again, err := net.Listen("tcp", address)
	require.NoError(t, err, "the public listener was closed")
	require.NoError(t, again.Close())
}

// A user who exceeds the rate must wait; other users are not affected. Reads count, too, and a limited request
// grabs nothing.
func TestRate(t *testing.T) {
	t.Parallel()
	s := setup(t, options{cfg: func(c *Config) { c.Rate, c.Burst = 1, 2 }})
	require.Equal(t, http.StatusOK, s.call(t, "POST", "/v1/campaigns/granted/grabs", good).Status)
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/v1/campaigns/granted/grabs/me", "").Status)
	refused := 0
	for range 20 {
		if r := s.call(t, "POST", "/v1/campaigns/granted/grabs", good); r.Status != http.StatusOK {
			r.Refused(t, "rate_limited")
			require.Equal(t, "1", r.Head.Get("Retry-After"))
			refused++
		}
	}
	require.Positive(t, refused)
	require.Len(t, s.grabbed(), 21-refused)
	require.Equal(t, http.StatusOK,
		s.call(t, "POST", "/v1/campaigns/granted/grabs", good, as(hs().sign(t, "u2"))).Status)
}

// limits permits a burst at once and then the rate, even while many other users come and go.
func TestLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(2, 4)
	now := time.Unix(1_700_000_000, 0)
	let := 0
	for i := range 100_000 { // 100 s
		at := now.Add(time.Duration(i) * time.Millisecond)
		if wait := l.take("u1", 1, at); wait == 0 {
			let++
		} else {
			require.LessOrEqual(t, wait, time.Second/2)
		}
		require.Zero(t, l.take(fmt.Sprint("other", i), 1, at))
	}
	require.InDelta(t, 4+2*100, let, 1)
	require.Less(t, len(l.now)+len(l.before), 2*2_100, "who has gone is forgotten")
}

// The public state of a campaign follows its state and Redis' clock. In a cached answer the clock still advances.
func TestCampaign(t *testing.T) {
	t.Parallel()
	s := setup(t, options{})
	r := s.call(t, "GET", "/v1/campaigns/rain", "", header("Authorization", ""))
	require.Equal(t, http.StatusOK, r.Status)
	require.Equal(t, []any{"rain", "Rain", "red_packet", "CNY", "open", "2023-11-14T22:13:20.123Z", float64(0)},
		[]any{r.Body["campaign"], r.Body["name"], r.Body["kind"], r.Body["currency"], r.Body["status"], r.Body["starts"],
			r.Body["starts_in_ms"]})
	at, err := time.Parse(time.RFC3339, r.Body["time"].(string))
	require.NoError(t, err)
	require.WithinRange(t, at, decided.Add(time.Minute), decided.Add(2*time.Minute))
	require.EqualValues(t, decided.Add(time.Hour).Sub(at).Milliseconds(), r.Body["ends_in_ms"])
	s.call(t, "GET", "/v1/campaigns/absent", "").Refused(t, "unknown_campaign")
	s.fake.mu.Lock()
	s.fake.err = io.ErrUnexpectedEOF
	s.fake.mu.Unlock()
	s.call(t, "GET", "/v1/campaigns/other", "").Refused(t, "unavailable")
	s.call(t, "GET", "/v1/campaigns/other/grabs/me", "").Refused(t, "unavailable")
	s.call(t, "GET", "/v1/campaigns/absent/grabs/me", "").Refused(t, "unknown_campaign")
}

// Many reads of one campaign cause only one read from Redis per second.
func TestWindowsAreRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{window: model.PublicView{Now: decided}}
		v := newWindows(f)
		for range 1_000 {
			for _, id := range []string{"rain", "absent"} {
				_, _ = v.get(t.Context(), id)
			}
		}
		require.Equal(t, 2, f.reads)
		retry.Pause(t.Context(), windowAge)
		w, err := v.get(t.Context(), "rain")
		require.NoError(t, err)
		require.Equal(t, decided.Add(windowAge), w.Now)
		retry.Pause(t.Context(), time.Millisecond)
		_, err = v.get(t.Context(), "absent")
		require.ErrorIs(t, err, store.ErrNotInRedis)
		require.Equal(t, 3, f.reads)
	})
}

func TestStatusOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state string
		now   time.Duration // time since the start; the campaign lasts an hour
		sold  bool
		want  string
	}{
		"loading":                  {"loading", -time.Minute, false, "not_started"},
		"loading, late":            {"loading", time.Minute, false, "not_started"},
		"before":                   {"open", -time.Millisecond, false, "not_started"},
		"at the start":             {"open", 0, false, "open"},
		"sold out":                 {"open", time.Minute, true, "sold_out"},
		"at the end":               {"open", time.Hour, false, "ended"},
		"sold out, and ended":      {"open", time.Hour, true, "ended"},
		"closed early":             {"closed", time.Minute, false, "ended"},
		"refunded":                 {"refunded", time.Minute, false, "ended"},
		"paused":                   {"paused", time.Minute, false, "paused"},
		"paused before":            {"paused", -time.Minute, false, "paused"},
		"paused, and ended":        {"paused", time.Hour, false, "ended"},
		"frozen":                   {"frozen", time.Minute, false, "frozen"},
		"closed before it started": {"closed", -time.Minute, false, "ended"},
	} {
		w := model.PublicView{State: c.state, From: decided, To: decided.Add(time.Hour), Now: decided.Add(c.now),
			SoldOut: c.sold}
		require.Equal(t, c.want, w.Status(), name)
	}
}

// New rejects a configuration that could hang or leak, and reports all problems at once.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Rate: -1}, Deps{})
	require.ErrorContains(t, err, "no one could grab")
	for _, want := range []string{"Listen ", "OpsListen ", "ReadHeaderTimeout is 0s", "ReadTimeout is 0s",
		"WriteTimeout is 0s", "IdleTimeout is 0s", "DrainTimeout is 0s", "Rate is -1", "Burst is 0", "KeyRate is 0", "KeyBurst is 0: want 128", "Connections is 0",
		"Grabber, Reader and Log are required"} {
		require.ErrorContains(t, err, want)
	}
	_, err = New(Config{Issuer: "x"}, Deps{})
	for _, want := range []string{"serve.keys is empty", "serve.audience is empty", "serve.user_claim is empty"} {
		require.ErrorContains(t, err, want)
	}
	for change, want := range map[*Config]string{
		{TrustedProxies: []string{"10.0.0.1/8"}}:        `"10.0.0.1/8": want a network, as 10.0.0.0/8`,
		{TrustedProxies: []string{"10.0.0.1"}}:          "want a network",
		{CORSOrigins: []string{"*"}}:                    "want an origin",
		{CORSOrigins: []string{"https://*.x.test"}}:     "want an origin",
		{CORSOrigins: []string{"https://x.test/"}}:      "want an origin",
		{CORSOrigins: []string{"null"}}:                 "want an origin",
		{Facts: []string{"d=claim:x", "d=claim:y"}}:     "has such a source already",
		{Facts: []string{"d=gateway:x", "e=gateway:x"}}: "has such a source already",
		{Facts: []string{"d=signed:x"}}:                 "want it as device=claim:device_id", {Facts: []string{"d=gateway:x y"}}: "want a name like that of a fact",
		{Facts: []string{"d=gateway:"}}: "want it as device=claim:device_id",
	} {
		_, err := New(*change, Deps{})
		require.ErrorContains(t, err, want)
	}
	for item, want := range map[string]string{
		"user=claim:x": `"user" is who grabs`, "device": "want it as device=claim:device_id",
		"device=body:x": "want it as device=claim:device_id", "device=claim:": "want it as device=claim:device_id",
		"d=claim:x": "",
	} {
		cfg := testConfig()
		cfg.Facts = []string{item}
		if err := cfg.Check(); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	for keys, good := range map[string]bool{
		"https://id.test/keys": true, "http://127.0.0.1:1/keys": true, "http://localhost/keys": true,
		"http://id.test/keys": false, "ftp://id.test/keys": false, "file:///keys": false,
	} {
		cfg := testConfig()
		cfg.Keys = keys
		require.Equal(t, good, cfg.Check() == nil, keys)
	}
}

// A read is refused with `frozen` if Redis may have lost the campaign, and with `not_durable` if its receipts are not
// durable yet. The campaign must not look like one that does not exist.
func TestReadsThatSayNothing(t *testing.T) {
	t.Parallel()
	frozen := fmt.Errorf("%w: it is so", store.ErrFrozen)
	for code, err := range map[string]error{
		"frozen":      hongbao.Errorf(hongbao.ClassPermanent, "campaign c: %w: %w", store.ErrNotInRedis, store.ErrLost),
		"not_durable": hongbao.Outagef(hongbao.ClassUnknown, "%w: it is so", store.ErrNotDurable),
		"unavailable": io.ErrUnexpectedEOF,
	} {
		s := setup(t, options{fake: &fake{err: err}})
		r := s.call(t, "GET", "/v1/campaigns/c/grabs/me", "")
		r.Refused(t, code)
		require.Equal(t, "1", r.Head.Get("Retry-After"))
	}
	s := setup(t, options{fake: &fake{err: errors.Join(frozen, errAbsent)}})
	s.call(t, "GET", "/v1/campaigns/c/grabs/me", "").Refused(t, "frozen")
	s.call(t, "GET", "/v1/campaigns/c", "").Refused(t, "frozen")
}

// limits keeps a copy of the user's id, so that the token or batch that contained the id can be freed.
func TestLimitsRememberTheIDOnly(t *testing.T) {
	const users, token = 20_000, 1 << 10
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	l, before := newLimits(5, 20), heap()
	at := time.Now()
	for range 2 { // the same user with another token
		for i := range users {
			l.take((fmt.Sprintf("%08d", i) + strings.Repeat("x", token))[:8], 1, at)
		}
	}
	require.Less(t, (heap()-before)/users, int64(300), "bytes a user")
	runtime.KeepAlive(l)
}
