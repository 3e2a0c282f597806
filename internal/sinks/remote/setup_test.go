package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// campaigns is a plan in which packet N has the amount 100 + N. Packet 900 has no value.
type campaigns struct{}

func (campaigns) Amount(_ context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	switch {
	case campaign == "down":
		return 0, false, hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
	case packet == 900:
		return 0, true, nil
	}
	return hongbao.Amount(100 + packet), campaign == "rain", nil
}

func (campaigns) Currency(context.Context, string) (string, error) { return "CNY", nil }

// bank is a fake remote that records what it has booked. If answer is set, it handles each request. Otherwise the bank
// books the credit and confirms it.
type bank struct {
	*httptest.Server
	mu            sync.Mutex
	booked        map[string][]credit // by reference; more than one is a double credit
	posts         map[string]int
	requests      int
	queries       atomic.Int64 // number of answered queries
	inside        atomic.Int64 // number of requests to the target of a redirect
	answer        func(w http.ResponseWriter, r *http.Request, c credit)
	notIdempotent bool        // has no idempotency: books every request
	failsQueries  atomic.Bool // answers queries with 500
	refused       map[string]int
	refusesEach   bool // of a batch, only the credits of refused accounts fail
}

// patient limits how long a test waits for an expected state. tick is the interval between checks.
const (
	patient = 20 * time.Second
	tick    = 5 * time.Millisecond
)

func newBank(t testing.TB) *bank {
	t.Helper()
	b := &bank{booked: map[string][]credit{}, posts: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/credits", b.post)
	mux.HandleFunc("POST /v1/credits:batch", b.batch)
	mux.HandleFunc("GET /v1/credits/{reference}", b.get)
	mux.HandleFunc("/inside", func(http.ResponseWriter, *http.Request) { b.inside.Add(1) })
	b.Server = httptest.NewServer(mux)
	t.Cleanup(b.Close)
	return b
}

func (b *bank) set(answer func(w http.ResponseWriter, r *http.Request, c credit)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = answer
}

// book books the credit, unless the bank has idempotency and knows the key. It returns the credit that is booked under
// the key.
func (b *bank) book(c credit) credit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.booked[c.Reference]; len(has) > 0 && !b.notIdempotent {
		return has[0]
	}
	b.booked[c.Reference] = append(b.booked[c.Reference], c)
	return c
}

func (b *bank) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var c credit
	if err != nil || json.Unmarshal(body, &c) != nil || r.Header.Get("Idempotency-Key") != `"`+c.Reference+`"` {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	b.mu.Lock()
	b.posts[c.Reference]++
	b.requests++
	answer, refused := b.answer, b.refused[c.Account]
	b.mu.Unlock()
	if refused != 0 {
		w.WriteHeader(refused)
		return
	}
	if answer != nil {
		answer(w, r, c)
		return
	}
	b.say(w, http.StatusCreated, b.book(c))
}

func (b *bank) say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v))
}

func (b *bank) batch(w http.ResponseWriter, r *http.Request) {
	var in struct{ Credits []credit }
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	b.mu.Lock()
	b.requests++
	answer, refused := b.answer, b.refused
	b.mu.Unlock()
	for _, c := range in.Credits { // one refused account makes the whole batch fail
		if refused[c.Account] != 0 && !b.refusesEach {
			w.WriteHeader(refused[c.Account])
			return
		}
	}
	if answer != nil {
		answer(w, r, in.Credits[0])
		return
	}
	var results []map[string]any
	for _, c := range in.Credits {
		if status := refused[c.Account]; status != 0 {
			results = append(results, map[string]any{"status": status, "reference": c.Reference, "code": "account_invalid"})
			continue
		}
		c = b.book(c)
		results = append(results, map[string]any{"status": 201, "reference": c.Reference, "account": c.Account,
			"currency": c.Currency, "amount": c.Amount})
	}
	b.say(w, http.StatusOK, map[string]any{"results": results})
}

func (b *bank) get(w http.ResponseWriter, r *http.Request) {
	if b.failsQueries.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	b.queries.Add(1)
	b.mu.Lock()
	has := b.booked[r.PathValue("reference")]
	b.mu.Unlock()
	if len(has) == 0 {
		b.say(w, http.StatusNotFound, map[string]string{"code": "credit_not_found"})
		return
	}
	b.say(w, http.StatusOK, has[0])
}

// holds checks that the bank has booked exactly these grants, each once.
func (b *bank) holds(t *testing.T, grants []hongbao.Grant) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.booked, len(grants))
	for _, g := range grants {
		has := b.booked[Key("prod", g.Campaign, g.Packet)]
		require.Len(t, has, 1, "packet %d", g.Packet)
		require.Equal(t, g.User, has[0].Account)
		require.Equal(t, g.Amount, has[0].Amount)
	}
}

// asked returns the number of requests for a credit.
func (b *bank) asked(reference string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts[reference]
}

// times returns the highest number of requests for the same credit.
func (b *bank) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	for _, n := range b.posts {
		most = max(most, n)
	}
	return most
}

const testClaimTime = 30 * time.Second

func testConfig(url string) Config {
	return Config{
		URL: url, Token: "secret", Deployment: "prod", ConnectTimeout: 5 * time.Second, HeaderTimeout: 5 * time.Second,
		Timeout: 6 * time.Second, IdleTimeout: time.Second, BodyBytes: 4096, Concurrency: 32,
		Retention: 24 * time.Hour, Margin: time.Minute, Queryable: true,
		ClaimTime: testClaimTime, Repeats: 2, Pause: time.Millisecond,
		BreakerFailures: 1000, BreakerOpen: 50 * time.Millisecond, MaxRetryAfter: 2 * time.Second,
	}
}

// impatient sets short timeouts for tests with a late answer.
func impatient(c *Config) {
	c.HeaderTimeout, c.Timeout, c.Repeats = 300*time.Millisecond, 400*time.Millisecond, 5
}

// neither, queryable and repeats configure the kind of remote: one without idempotency and queries, one with queries
// only, and one with idempotency only.
func neither(c *Config)   { c.Retention, c.Margin, c.Queryable = 0, 0, false }
func queryable(c *Config) { c.Retention, c.Margin = 0, 0 }
func repeats(c *Config)   { c.Queryable = false }

// newHandler returns a Handler that acts as a separate worker.
func newHandler(t *testing.T, b *bank, l Ledger, change ...func(*Config)) *Handler {
	t.Helper()
	cfg := testConfig(b.URL)
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg, campaigns{}, l)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func grants(first, last int64) []hongbao.Grant {
	var list []hongbao.Grant
	for p := first; p <= last; p++ {
		list = append(list, hongbao.Grant{Seq: p, Campaign: "rain", Packet: p, Amount: hongbao.Amount(100 + p),
			User: fmt.Sprintf("u%d", p%7)})
	}
	return list
}

// drop closes the connection without a response.
func drop(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
