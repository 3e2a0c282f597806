package webhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	earlier = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhrscChlQIMV+b5sS"
)

// patient limits how long a test waits for an expected state. tick is the interval between checks.
const (
	patient = 20 * time.Second
	tick    = 2 * time.Millisecond
)

// request is a request that the receiver has got.
type request struct {
	id, body string
	header   http.Header
}

// receiver is an endpoint that records its requests. It verifies each signature with the library of Standard Webhooks.
// If answer is set, it handles the request, otherwise the receiver answers 204.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
	answer   http.HandlerFunc
	inside   atomic.Int64 // number of requests to the target of a redirect
}

func newReceiver(t *testing.T, secrets ...string) *receiver {
	t.Helper()
	if len(secrets) == 0 {
		secrets = []string{secret}
	}
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(r.handler(t, secrets))
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) handler(t *testing.T, secrets []string) http.Handler {
	t.Helper()
	var verifiers []*standardwebhooks.Webhook
	for _, s := range secrets {
		v, err := standardwebhooks.NewWebhook(s)
		require.NoError(t, err)
		verifiers = append(verifiers, v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/inside", func(http.ResponseWriter, *http.Request) { r.inside.Add(1) })
	mux.HandleFunc("POST /hooks/hongbao", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Errorf("read a body: %v", err)
		}
		for _, v := range verifiers {
			if err := v.Verify(body, req.Header); err != nil {
				t.Errorf("verify: %v", err)
			}
		}
		r.mu.Lock()
		r.requests = append(r.requests, request{req.Header.Get("webhook-id"), string(body), req.Header.Clone()})
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (r *receiver) set(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// status makes the receiver answer with a status.
func (r *receiver) status(status int) {
	r.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// got returns the requests so far.
func (r *receiver) got() []request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]request(nil), r.requests...)
}

// ids returns how often each event came.
func (r *receiver) ids() map[string]int {
	ids := map[string]int{}
	for _, req := range r.got() {
		ids[req.id]++
	}
	return ids
}

func testConfig(url string) Config {
	return Config{URL: url, Secret: secret, Deployment: "prod", ConnectTimeout: 5 * time.Second, Timeout: 10 * time.Second,
		Concurrency: 8, MaxRetryAfter: 2 * time.Second, BreakerFailures: 1000, BreakerOpen: 5 * time.Second, AllowPrivate: true}
}

func newHandler(t *testing.T, r *receiver, change ...func(*Config)) *Handler {
	t.Helper()
	cfg := testConfig(r.URL + "/hooks/hongbao")
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// oneAtATime makes the order of the requests that of the grants.
func oneAtATime(c *Config) { c.Concurrency = 1 }

func grants(first, last int64) []hongbao.Grant {
	var list []hongbao.Grant
	for p := first; p <= last; p++ {
		list = append(list, hongbao.Grant{Seq: p, Epoch: 1, Campaign: "rain", Packet: p, Amount: hongbao.Amount(100 + p),
			User: fmt.Sprintf("u%d", p), Currency: "CNY", Time: time.UnixMilli(1_770_000_000_000)})
	}
	return list
}

func (h *Handler) handle(ctx context.Context, list []hongbao.Grant) []error {
	return h.Handle(ctx, testkit.Batch(list))
}

// drop closes the connection without an answer, after it has written a text.
func drop(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = io.Copy(conn, strings.NewReader(text))
		_ = conn.Close()
	}
}

// kind names what a consumer does with an error.
func kind(err error) string {
	switch class := hongbao.ClassOf(err); {
	case err == nil:
		return "done"
	case class == hongbao.ClassBroken:
		return "broken" // takes precedence over Outage
	case hongbao.IsOutage(err):
		return "outage, " + class.String()
	case hongbao.IsWaiting(err):
		return "waiting"
	default:
		return class.String()
	}
}

func kinds(errs []error) []string {
	list := make([]string, len(errs))
	for i, err := range errs {
		list[i] = kind(err)
	}
	return list
}
