package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// The values of -hook.
const (
	hookBad  = "bad"
	hookDead = "dead"
)

const (
	hookSink   = "crm"
	hookSecret = "whsec_c29hay1zb2FrLXNvYWstc29hay1zb2FrLXNvYWs=" //nolint:gosec // of this run only
	// hookTime is how long a worker waits for an answer of the receiver.
	hookTime = 2 * time.Second
)

// hook is the receiver of a webhook. While the callers grab it fails, hangs, and forgets to say that it has an event,
// or it is dead.
type hook struct {
	mode   string
	url    string
	verify *standardwebhooks.Webhook
	quiet  atomic.Bool // it answers well from now on

	mu     sync.Mutex
	bodies map[string]hongbao.Grant // by id
	// again counts repeats with the same facts, and wrong everything that must not be: a repeat with others, a signature
	// that is not right.
	again, wrong, fails, hangs, forgets int64
}

// startHook starts the receiver, and adds the sink to the environment.
func (s *soak) startHook(ctx context.Context) error {
	if s.hookMode == "" {
		return nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hookSecret, "whsec_"))
	if err != nil {
		return fmt.Errorf("the webhook's secret: %w", err)
	}
	verify, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return fmt.Errorf("the webhook's secret: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start the receiver: %w", err)
	}
	s.hook = &hook{mode: s.hookMode, url: "http://" + l.Addr().String() + "/hooks", verify: verify, bodies: map[string]hongbao.Grant{}}
	server := &http.Server{Handler: s.hook, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	for name, value := range map[string]string{"DEPLOYMENT_SINKS": "balance,kafka," + hookSink, "UNSAFE_ALLOW": "webhook_without_tls",
		"WEBHOOK_CRM_URL": s.hook.url, "WEBHOOK_CRM_SECRET": hookSecret, "WEBHOOK_CRM_ALLOW_PRIVATE": "true",
		"WEBHOOK_CRM_TIMEOUT": hookTime.String(), "WEBHOOK_CRM_BREAKER_OPEN": "1s"} {
		s.env = append(s.env, "HONGBAO_"+name+"="+value)
	}
	s.sinks = append(s.sinks, hookSink, hookSink)
	return nil
}

// ServeHTTP implements http.Handler.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	how := 100
	if !h.quiet.Load() {
		how = rand.N(100)
		if h.mode == hookDead {
			how = 0
		}
	}
	switch {
	case how < 5:
		h.count(&h.fails)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case how < 6:
		h.count(&h.hangs)
		select {
		case <-r.Context().Done():
		case <-time.After(2 * hookTime):
		}
		return
	}
	h.take(body, r.Header)
	if how < 9 {
		h.count(&h.forgets)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// count counts in n, if it is not nil, and returns how many events the receiver has.
func (h *hook) count(n *int64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n != nil {
		*n++
	}
	return len(h.bodies)
}

// take keeps an event.
func (h *hook) take(body []byte, header http.Header) {
	var e struct{ Data hongbao.Grant }
	err := errors.Join(h.verify.Verify(body, header), json.Unmarshal(body, &e))
	id, g := header.Get("Webhook-Id"), e.Data
	h.mu.Lock()
	defer h.mu.Unlock()
	was, again := h.bodies[id]
	switch {
	case err != nil, id != fmt.Sprintf("%s-%d", g.Campaign, g.Packet), again && (was.User != g.User || was.Amount != g.Amount):
		h.wrong++
	case again:
		h.again++
	default:
		h.bodies[id] = g
	}
}

// compareHook compares the callers' history with what the receiver has. An audit does not wait for a webhook, so
// compareHook gives it some time.
func (s *soak) compareHook(ctx context.Context) {
	if s.hook == nil {
		return
	}
	h := s.hook
	want := int(newTally(s.campaigns).announced)
	for end := time.Now().Add(90 * time.Second); h.count(nil) < want && time.Now().Before(end) && retry.Pause(ctx, time.Second); {
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := newTally(s.campaigns)
	for id := range h.bodies {
		g := h.bodies[id]
		t.add(&g)
	}
	s.outcome.Posted, s.outcome.PostedAgain, s.outcome.PostedWrong = t.events, h.again, h.wrong
	s.outcome.Lost += t.missing()
	s.say("the receiver has %d events, %d came again; it failed %d times, hung %d times, and forgot %d times to say that it has one",
		t.events, h.again, h.fails, h.hangs, h.forgets)
}

// judgeHook returns an error unless the receiver was bad and has each grant.
func (s *soak) judgeHook() error {
	o := &s.outcome
	switch {
	case s.hook == nil:
		return nil
	case o.Posted != o.Granted || o.PostedWrong > 0:
		return fmt.Errorf("the receiver has %d of %d grants, and got %d wrong requests", o.Posted, o.Granted, o.PostedWrong)
	case s.hook.fails == 0, s.hookMode == hookBad && (s.hook.hangs == 0 || s.hook.forgets == 0 || o.PostedAgain == 0):
		return errors.New("the receiver did not fail in each of its ways, so the run tests nothing")
	}
	return nil
}
