package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/sink/sinktest"
)

func TestSink(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(t testing.TB) sinktest.Subject {
		e := newEndpoint(t)
		return sinktest.Subject{Open: e.open, Effects: e.effects, Poison: e.poison, Down: e.down, Lose: e.loss.Lose}
	})
}

// endpoint is a receiver as docs/webhooks.md wants it: it applies the event of an id once, for the id's first user.
type endpoint struct {
	server *httptest.Server
	loss   testkit.Loss

	mu      sync.Mutex
	users   map[string]string // by id: the user whose event had its effect
	applied map[string]int    // by campaign, packet and user: how often an event had its effect
	refused map[string]bool   // by id
	isDown  bool
}

func newEndpoint(t testing.TB) *endpoint {
	t.Helper()
	e := &endpoint{users: map[string]string{}, applied: map[string]int{}, refused: map[string]bool{}}
	e.server = httptest.NewUnstartedServer(e)
	e.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.server.Start()
	t.Cleanup(e.server.Close)
	return e
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var event struct{ Data hongbao.Grant }
	if err := json.NewDecoder(req.Body).Decode(&event); err != nil {
		panic(http.ErrAbortHandler) // the sender has gone
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	request, answer := e.loss.Step()
	if e.isDown || request {
		panic(http.ErrAbortHandler)
	}
	status := e.apply(req.Header.Get("Webhook-Id"), &event.Data)
	if answer {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// apply returns the status for an event.
func (e *endpoint) apply(id string, g *hongbao.Grant) int {
	user, known := e.users[id]
	switch {
	case e.refused[id], known && user != g.User:
		return http.StatusUnprocessableEntity
	case !known:
		e.users[id] = g.User
		e.applied[unit(g)]++
	}
	return http.StatusNoContent
}

func unit(g *hongbao.Grant) string { return fmt.Sprintf("%s/%d/%s", g.Campaign, g.Packet, g.User) }

func (e *endpoint) open(t testing.TB) hongbao.Handler {
	t.Helper()
	cfg := testConfig(e.server.URL)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.isDown {
			return nil, errors.New("connection refused")
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	h, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

func (e *endpoint) effects(_ testing.TB, grants []hongbao.Grant) []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	counts := make([]int, len(grants))
	for i := range grants {
		counts[i] = e.applied[unit(&grants[i])]
	}
	return counts
}

func (e *endpoint) poison(_ testing.TB, g hongbao.Grant) hongbao.Grant {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused[ID(g.Campaign, g.Packet)] = true
	return g
}

func (e *endpoint) down(_ testing.TB, down bool) {
	e.mu.Lock()
	e.isDown = down
	e.mu.Unlock()
	if down {
		e.server.CloseClientConnections()
	}
}
