package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/front/web/webtest"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// administrator calls the control listener with an API key.
type administrator struct {
	t        *testing.T
	url, key string
}

// post sends a request that changes something. It retries until the answer is final, like a client of a server that was
// killed.
func (a *administrator) post(path, body, key string, to any) int {
	a.t.Helper()
	var status int
	var text []byte
	testkit.EventuallyOK(a.t, 90*time.Second, func() (err error) {
		req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+path, strings.NewReader(body))
		require.NoError(a.t, err)
		req.Header.Set("Authorization", "Bearer "+a.key)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err = io.ReadAll(res.Body); err != nil {
			return err
		}
		if status = res.StatusCode; status >= 500 || strings.Contains(string(text), `"idempotency_key_in_use"`) {
			return errors.New(string(text))
		}
		return nil
	}, "%s is answered", path)
	if to != nil && status < 300 {
		require.NoError(a.t, json.Unmarshal(text, to), "%s", text)
	}
	if status >= 300 {
		a.t.Logf("%s: %d %s", path, status, text)
	}
	return status
}

// ageClaims makes the idempotency claims of unanswered requests a minute older, so that a retry takes them over at
// once.
func (d *deployment) ageClaims() {
	d.t.Helper()
	c, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer c.Close(d.t.Context())
	_, err = c.Exec(d.t.Context(), `UPDATE idempotency SET claimed_at = claimed_at - 60001
		WHERE answer = '' AND claimed_at > extract(epoch FROM clock_timestamp()) * 1000 - 60000`)
	require.NoError(d.t, err)
}

// A campaign is created, loaded, paused, resumed, closed and refunded over HTTP only. The server is killed and
// restarted during the requests, and the client retries. Each change has its effect once, and the audit agrees.
func TestAdministrationByHTTP(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	dsn, err := url.Parse(d.dsn)
	require.NoError(t, err)
	ledger := testkit.NewProxy(t, dsn.Host)
	dsn.Host = ledger.Addr
	d.set("LEDGER_DSN", dsn.String())
	key := strings.TrimSpace(d.ok("key", "create", "--role", "treasurer", "--note", "ann"))
	at := testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + at)
	a := &administrator{t, "http://" + at, key}
	// killed sends a request while the server is killed and restarted.
	answered := false
	killed := func(path, body, key string, to any, when func() bool) int {
		t.Helper()
		done := make(chan int, 1)
		go func() { done <- a.post(path, body, key, to) }()
		testkit.Eventually(t, 30*time.Second, when, "the moment to kill it")
		g.Kill()
		ledger.Delay(0)
		answered = len(done) > 0
		d.ageClaims()
		g = d.serve("--control.listen=" + at)
		testkit.Eventually(t, 90*time.Second, func() bool { return len(done) > 0 }, "%s is answered", path)
		return <-done
	}
	atOnce := func() bool { return true }
	now := time.Now().UTC().Truncate(time.Second)
	spec, err := json.Marshal(map[string]any{
		"id": "rain", "name": "Spring rain", "kind": "red_packet", "currency": "CNY", "total": 1000, "packets": 10,
		"split": map[string]any{"mode": "even"}, "from": now.Add(-time.Minute), "to": now.Add(time.Hour),
		"time_zone": "Asia/Shanghai", "sponsor": "acme", "durability": "fast",
	})
	require.NoError(t, err)
	var created campaigns.Created
	require.Equal(t, 200, killed("/v1/campaigns", string(spec), "create", &created, atOnce))
	require.True(t, created.Created, "the retry gets the first answer")
	require.Equal(t, 200, killed("/v1/campaigns/rain/load", "{}", "load", nil, atOnce))
	require.Equal(t, "granted", g.grab("rain", "u1", "r1").Outcome)
	require.Equal(t, 200, a.post("/v1/campaigns/rain/pause", "{}", "pause", nil))
	require.Equal(t, "paused", g.grab("rain", "u2", "r1").Outcome)
	require.Equal(t, 200, a.post("/v1/campaigns/rain/resume", "{}", "resume", nil))
	require.Equal(t, "granted", g.grab("rain", "u2", "r1").Outcome)
	require.Equal(t, 409, a.post("/v1/campaigns/rain/close", "{}", "close", nil), "its window is open")
	var ending campaigns.Ending
	ledger.Delay(700 * time.Millisecond) // to kill it after the effect and before the answer
	require.Equal(t, 200, killed("/v1/campaigns/rain/close", `{"early":true}`, "close-early", &ending, func() bool {
		state, err := d.rdb.HGet(t.Context(), d.store.Home("rain").Keys.Campaign("rain"), "state").Result()
		return err == nil && state == "closed"
	}))
	require.False(t, answered, "it died before it answered")
	require.EqualValues(t, 800, ending.Amount)
	require.Equal(t, 202, a.post("/v1/campaigns/rain/refund", `{"amount":800}`, "refund-1", nil), "it settles")
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Equal(t, 200, killed("/v1/campaigns/rain/refund", `{"amount":800}`, "refund-2", &ending, atOnce))
	require.EqualValues(t, 800, ending.Amount)
	require.EqualValues(t, 8, ending.Refunded.Packets)
	require.Equal(t, 200, a.post("/v1/campaigns/rain/refund", `{"amount":800}`, "refund-3", &ending))
	require.EqualValues(t, 800, d.show("rain").Ledger.Refunded)
	r := d.auditNow()
	require.Equal(t, model.Agrees, r.Verdict, "%v", r.Differences)
	g.Signal(syscall.SIGTERM)
	require.Zero(t, g.wait(30*time.Second).code)
}

// The control listener answers 404 to an odd path, for callers with and without a key. A redirect would be an answer
// before the check of the caller.
func TestControlRedirectsNothing(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	key := strings.TrimSpace(d.ok("key", "create", "--role", "treasurer"))
	at := testkit.FreeAddr(t)
	d.serve("--control.listen=" + at)
	for _, path := range []string{"/v1", "/v1/", "//v1/campaigns", "/v1//campaigns", "/v1/./campaigns", "/v1/campaigns/",
		"/v1/campaigns/x/../rain/close", "/v1/campaigns/rain/close/.", "/sinks/../v1/campaigns", "//"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, key := range []string{"", key} {
				req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, strings.NewReader("{}"))
				require.NoError(t, err)
				req.Header.Set("Authorization", "Bearer "+key)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Idempotency-Key", "odd")
				a, err := webtest.Send(req)
				require.NoError(t, err)
				a.Refused(t, "not_found", method, path)
			}
		}
	}
}
