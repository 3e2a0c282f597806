package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hongbao-project/hongbao"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memClaims is what package dedup does on Redis, in memory, for several workers.
type memClaims struct {
	mu    sync.Mutex
	fence int64
	open  map[string]*memClaim
	done  map[int64]bool
	noted map[int64]bool
	fail  error
	// noNotes refuses to note anything.
	noNotes bool
}

type memClaim struct {
	hongbao.Claim
	owner string
	live  bool
}

func newClaims() *memClaims {
	return &memClaims{open: map[string]*memClaim{}, done: map[int64]bool{}, noted: map[int64]bool{}}
}

// as is one worker's view of the claims.
func (m *memClaims) as(owner string) *worker { return &worker{m, owner, m.done} }

// requeues is the view of who requeues dead letters: by the sink's own bits they are done.
func (m *memClaims) requeues(owner string) *worker { return &worker{m, owner, map[int64]bool{}} }

// died ends the leases of a worker.
func (m *memClaims) died(owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.open {
		c.live = c.live && c.owner != owner
	}
}

func (m *memClaims) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.open)
}

// ack marks grants as the consumer does when a handler said that they are done, or set them aside.
func (m *memClaims) ack(grants []hongbao.Grant, errs []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, g := range grants {
		if errs == nil || errs[i] == nil || hongbao.ClassOf(errs[i]) == hongbao.Permanent {
			m.done[g.Seq] = true
		}
	}
}

type worker struct {
	*memClaims
	owner string
	bits  map[int64]bool // what is done for it
}

func overlap(a, b []hongbao.SeqRange) bool {
	return slices.ContainsFunc(a, func(r hongbao.SeqRange) bool {
		return slices.ContainsFunc(b, func(s hongbao.SeqRange) bool { return r.First <= s.Last && s.First <= r.Last })
	})
}

func (w *worker) Claim(_ context.Context, _ int, id string, events []hongbao.SeqRange, payload string) (a hongbao.ClaimAnswer, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		return a, w.fail
	}
	for _, seq := range slices.Sorted(maps.Keys(w.bits)) {
		if holds(events, seq) {
			a.Done = append(a.Done, hongbao.SeqRange{First: seq, Last: seq})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(w.open)) {
		c := w.open[key]
		if !overlap(events, c.Events) {
			continue
		}
		if c.live && c.owner != w.owner {
			a.Held++
			continue
		}
		w.fence++
		c.Fence, c.owner, c.live = w.fence, w.owner, true
		a.Open = append(a.Open, c.Claim)
	}
	if a.Granted() {
		w.fence++
		a.Fence = w.fence
		w.open[id] = &memClaim{hongbao.Claim{ID: id, Fence: w.fence, Events: events, Payload: payload}, w.owner, true}
	}
	return a, nil
}

func (w *worker) end(c hongbao.Claim, done bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	has := w.open[c.ID]
	if has == nil || has.Fence != c.Fence {
		return hongbao.ErrFenced
	}
	delete(w.open, c.ID)
	if done {
		w.mark(c.Events)
	}
	return nil
}

func (w *worker) mark(events []hongbao.SeqRange) {
	for _, r := range events {
		for seq := r.First; seq <= r.Last; seq++ {
			w.done[seq], w.bits[seq] = true, true
		}
	}
}

func (w *worker) Complete(_ context.Context, _ int, c hongbao.Claim) error { return w.end(c, true) }
func (w *worker) Release(_ context.Context, _ int, c hongbao.Claim) error  { return w.end(c, false) }

func (w *worker) Narrow(_ context.Context, _ int, c hongbao.Claim, left []hongbao.SeqRange) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	has := w.open[c.ID]
	if has == nil || has.Fence != c.Fence {
		return hongbao.ErrFenced
	}
	has.Events = left
	w.mark(c.Events)
	return nil
}

func (w *worker) Note(ctx context.Context, _ int, events []hongbao.SeqRange) error {
	if ctx.Err() != nil {
		return hongbao.Outagef(hongbao.Unknown, "redis: %w", ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noNotes {
		return hongbao.Outagef(hongbao.Transient, "redis is down")
	}
	for _, r := range events {
		for seq := r.First; seq <= r.Last; seq++ {
			w.noted[seq] = true
		}
	}
	return nil
}

func (w *worker) Noted(_ context.Context, _ int, events []hongbao.SeqRange) (list []hongbao.SeqRange, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(w.noted)) {
		if holds(events, seq) {
			list = append(list, hongbao.SeqRange{First: seq, Last: seq})
		}
	}
	return list, w.fail
}

// campaigns is a plan in which every packet has the amount 100 + packet, and packet 900 has none.
type campaigns struct{}

func (campaigns) Amount(_ context.Context, campaign string, packet int64) (hongbao.Amount, bool, error) {
	switch {
	case campaign == "down":
		return 0, false, hongbao.Outagef(hongbao.Transient, "the ledger is down")
	case packet == 900:
		return 0, true, nil
	}
	return hongbao.Amount(100 + packet), campaign == "rain", nil
}

func (campaigns) Currency(context.Context, string) (string, error) { return "CNY", nil }

// bank is a remote that counts what it booked. answer decides what becomes of a request; nil books and says so.
type bank struct {
	*httptest.Server
	mu       sync.Mutex
	booked   map[string][]credit // by reference: more than one is a double credit
	posts    map[string]int
	requests int
	inside   atomic.Int64 // visits where a redirect leads to
	answer   func(w http.ResponseWriter, r *http.Request, c credit)
	forgets  bool        // does not know keys: every post is booked
	deaf     atomic.Bool // to questions
	refused  map[string]int
}

// How long a test waits for what must come, and how often it looks.
const (
	patient = 20 * time.Second
	tick    = 5 * time.Millisecond
)

func newBank(t *testing.T) *bank {
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

// book books unless the key is known; it tells what is booked under it.
func (b *bank) book(c credit) credit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if has := b.booked[c.Reference]; len(has) > 0 && !b.forgets {
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
	for _, c := range in.Credits { // one bad account spoils the batch
		if refused[c.Account] != 0 {
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
		c = b.book(c)
		results = append(results, map[string]any{"status": 201, "reference": c.Reference, "account": c.Account, "currency": c.Currency, "amount": c.Amount})
	}
	b.say(w, http.StatusOK, map[string]any{"results": results})
}

func (b *bank) get(w http.ResponseWriter, r *http.Request) {
	if b.deaf.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	b.mu.Lock()
	has := b.booked[r.PathValue("reference")]
	b.mu.Unlock()
	if len(has) == 0 {
		b.say(w, http.StatusNotFound, map[string]string{"code": "credit_not_found"})
		return
	}
	b.say(w, http.StatusOK, has[0])
}

// holds tells that exactly these grants are booked, each once.
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

// asked is how often a credit was asked for.
func (b *bank) asked(reference string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.posts[reference]
}

// times is how often each credit was asked for, at most.
func (b *bank) times() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := 0
	for _, n := range b.posts {
		most = max(most, n)
	}
	return most
}

func testConfig(url string) Config {
	return Config{
		URL: url, Token: "secret", Deployment: "prod", ConnectTimeout: 5 * time.Second, HeaderTimeout: 5 * time.Second,
		Timeout: 6 * time.Second, IdleTimeout: time.Second, BodyBytes: 4096, Concurrency: 32,
		Retention: 24 * time.Hour, Margin: time.Minute, Queryable: true,
		ClaimTime: 30 * time.Second, Repeats: 2, Pause: time.Millisecond,
		BreakerFailures: 1000, BreakerOpen: 50 * time.Millisecond, MaxRetryAfter: 2 * time.Second,
	}
}

// impatient gives up on an answer that comes late.
func impatient(c *Config) {
	c.HeaderTimeout, c.Timeout, c.Repeats = 300*time.Millisecond, 400*time.Millisecond, 5
}

// neither can neither repeat nor be asked; queryable can be asked only.
func neither(c *Config)   { c.Retention, c.Margin, c.Queryable = 0, 0, false }
func queryable(c *Config) { c.Retention, c.Margin = 0, 0 }
func repeats(c *Config)   { c.Queryable = false }

func newHandler(t *testing.T, b *bank, claims Claims, change ...func(*Config)) *Handler {
	t.Helper()
	return newRecording(t, b, claims, newBooks(), change...)
}

func newRecording(t *testing.T, b *bank, claims Claims, l *books, change ...func(*Config)) *Handler {
	t.Helper()
	cfg := testConfig(b.URL)
	for _, f := range change {
		f(&cfg)
	}
	h, err := New(cfg, claims, campaigns{}, l)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func grants(first, last int64) []hongbao.Grant {
	var list []hongbao.Grant
	for p := first; p <= last; p++ {
		list = append(list, hongbao.Grant{Seq: p, Campaign: "rain", Packet: p, Amount: hongbao.Amount(100 + p), User: fmt.Sprintf("u%d", p%7)})
	}
	return list
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}
