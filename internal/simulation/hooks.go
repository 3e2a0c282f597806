package simulation

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Hook is no deed of a moment: a webhook is the third sink of the deployment, and its receiver fails now and then.
const Hook = "hook"

const hookSink, hookAddr = "crm", "127.0.0.1:8090"

// hookSecret is a secret of histories only.
const hookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" //nolint:gosec // see above

// drawHook adds the webhook to a plan. The other sinks stay, and no ledger loses anything.
func (p *Plan) drawHook(on []string) {
	r := rand.New(rand.NewPCG(p.Seed, 9))
	drawn := r.IntN(4) == 0 || len(on) == 1
	others := without(slices.Concat(Books, Deliveries), []string{Serve})
	p.Hook = drawn && slices.Contains(on, Hook) && !slices.ContainsFunc(others, p.has)
}

// hookKnobs are the knobs of the webhook.
func (w *world) hookKnobs(set map[string]string) {
	if !w.plan.Hook {
		return
	}
	for k, v := range map[string]string{"url": "http://" + hookAddr + "/hooks", "secret": hookSecret, "allow_private": "true",
		"connect_timeout": "1s", "timeout": "2s", "breaker_failures": "5", "breaker_open": "1s", "max_retry_after": "2s"} {
		set["webhook."+hookSink+"."+k] = v
	}
	set["unsafe.allow"] += ",webhook_without_tls"
}

// receiver is the program at the webhook's URL. It checks signatures, and answers badly now and then.
type receiver struct {
	w      *world
	verify *standardwebhooks.Webhook
	server *http.Server

	mu     sync.Mutex
	tries  map[string]uint64 // by id
	posted []judge.Win
	has    map[string]string // body, by id
}

// openHook starts the receiver.
func (w *world) openHook() error {
	if !w.plan.Hook {
		return nil
	}
	verify, err := standardwebhooks.NewWebhook(hookSecret)
	if err != nil {
		return fmt.Errorf("the webhook's secret: %w", err)
	}
	w.hook = &receiver{w: w, verify: verify, tries: map[string]uint64{}, has: map[string]string{}}
	l := virtual.NewListener(8090)
	w.net.Serve(hookAddr, Hook, virtual.HTTP, func(c net.Conn) { go l.Give(c) })
	w.hook.server = &http.Server{Handler: w.hook, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.hook.server.Serve(l) }()
	w.cover.note("deed", Hook)
	return nil
}

func (h *receiver) close() {
	if h != nil {
		_ = h.server.Close()
	}
}

// ServeHTTP implements http.Handler.
func (h *receiver) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // the connection broke
		return
	}
	id := r.Header.Get("Webhook-Id")
	if err := h.verify.Verify(body, r.Header); err != nil {
		h.w.bug("the receiver of %s can't verify a request: %v", id, err)
	}
	h.mu.Lock()
	h.tries[id]++
	draw := rand.New(rand.NewPCG(h.w.plan.Seed^uint64(len(id)), h.tries[id]*31+uint64(len(body))))
	h.mu.Unlock()
	faulty := h.w.net.IsFaulty()
	how := 100
	if faulty {
		how = draw.IntN(100)
	}
	if how < 10 { // it has not taken the event
		h.fail(answer, r, how)
		return
	}
	h.take(id, body)
	if how < 15 { // it has taken the event, and says otherwise
		h.fail(answer, r, how)
		return
	}
	answer.WriteHeader(http.StatusNoContent)
}

// fail answers with a failure, or not at all.
func (h *receiver) fail(answer http.ResponseWriter, r *http.Request, how int) {
	h.w.cover.note(Hook, []string{"500", "429", "503", "hangs", "401"}[how%5])
	switch how % 5 {
	case 0:
		answer.WriteHeader(http.StatusInternalServerError)
	case 1:
		answer.Header().Set("Retry-After", "1")
		answer.WriteHeader(http.StatusTooManyRequests)
	case 2:
		answer.WriteHeader(http.StatusServiceUnavailable)
	case 3:
		_ = virtual.Sleep(r.Context(), 10*time.Second)
	case 4:
		answer.WriteHeader(http.StatusUnauthorized)
	}
}

// take keeps an event. A repeat must have the same body.
func (h *receiver) take(id string, body []byte) {
	var e struct {
		ID   string
		Data struct {
			Campaign, User string
			Packet, Amount int64
			Shard          int
			Seq            int64
			Request        string `json:"request_id"`
		}
	}
	if err := json.Unmarshal(body, &e); err != nil || e.ID != id || id != fmt.Sprintf("%s-%d", e.Data.Campaign, e.Data.Packet) {
		h.w.bug("the receiver got %s under the id %s: %v", body, id, err)
	}
	d := &e.Data
	h.mu.Lock()
	defer h.mu.Unlock()
	key := strings.Join([]string{d.User, fmt.Sprint(d.Amount), d.Request}, " ") // a restored grant may have another seq
	switch was, again := h.has[id]; {
	case !again:
		h.has[id] = key
		h.posted = append(h.posted, judge.Win{Campaign: d.Campaign, User: d.User, Request: d.Request, Packet: d.Packet,
			Amount: d.Amount, Shard: d.Shard, Seq: d.Seq})
	case was != key:
		h.w.bug("the receiver got %s twice: for %s, and for %s", id, was, key)
	default:
		h.w.cover.note(Hook, "the same again")
	}
}

// all returns what the receiver has; nil if there is none.
func (h *receiver) all() []judge.Win {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.posted)
}
