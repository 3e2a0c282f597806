package frontend

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// The bounds of a Hub.
const (
	maxBehind  = 256      // messages that wait for a browser before the Hub disconnects it; it then reconnects by itself
	maxBrowser = 10_000   // browsers at once
	maxMessage = 16 << 10 // bytes
)

// Hub is the front end. POST sends it a message. GET streams all later messages to a browser as server-sent events. The
// zero value is ready to use.
type Hub struct {
	mu       sync.Mutex
	browsers map[chan string]struct{}
	received int64
}

// ServeHTTP implements http.Handler.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		h.stream(w, r)
	case http.MethodPost:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		id := r.Header.Get("Event-Id")
		if err != nil || id == "" || strings.ContainsAny(id+string(body), "\r\n") {
			http.Error(w, "want one line of at most 16 KiB, and its id in the header Event-Id", http.StatusBadRequest)
			return
		}
		h.send(id, string(body))
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "GET to listen, POST to send", http.StatusMethodNotAllowed)
	}
}

func (h *Hub) send(id, data string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received++
	for b := range h.browsers {
		select {
		case b <- "id: " + id + "\ndata: " + data + "\n\n":
		default:
			delete(h.browsers, b)
			close(b)
		}
	}
}

// Received returns the number of messages that the front end received, including copies.
func (h *Hub) Received() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.received
}

func (h *Hub) stream(w http.ResponseWriter, r *http.Request) {
	browser, ok := h.enter()
	if !ok {
		http.Error(w, "too many browsers; try again in a minute", http.StatusServiceUnavailable)
		return
	}
	defer h.leave(browser)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for out.Flush() == nil {
		select {
		case m, ok := <-browser:
			if !ok {
				return
			}
			if _, err := fmt.Fprint(w, m); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (h *Hub) enter() (chan string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.browsers) >= maxBrowser {
		return nil, false
	}
	if h.browsers == nil {
		h.browsers = map[chan string]struct{}{}
	}
	b := make(chan string, maxBehind)
	h.browsers[b] = struct{}{}
	return b, true
}

func (h *Hub) leave(b chan string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.browsers, b)
}
