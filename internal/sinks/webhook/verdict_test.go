package webhook

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for status := range 1000 {
		var want verdict
		switch {
		case status >= 200 && status < 300:
			want = accepted
		case status == 400, status == 413, status == 422:
			want = refused
		case status == 429, status == 503:
			want = unavailable
		case status == 408, status == 425, status >= 500:
			want = failed
		case status == 409, status == 412, status == 416, status == 418, status == 423, status == 424, status == 419,
			status == 420, status == 427, status == 430, status >= 432 && status < 451, status >= 452 && status < 500:
			want = odd
		default:
			want = misdirected
		}
		require.Equal(t, want, verdictOf(status), "%d", status)
	}
}

// What a consumer does after each status, for two events of which the endpoint accepts none.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{
		200: "done", 201: "done", 202: "done", 204: "done", 299: "done",
		400: "permanent", 413: "permanent", 422: "permanent",
		401: "broken", 403: "broken", 404: "broken", 405: "broken", 410: "broken", 407: "broken", 415: "broken", 101: "broken",
		301: "broken", 302: "broken", 303: "broken", 304: "broken", 307: "broken", 308: "broken",
		408: "outage, unknown", 425: "outage, unknown", 500: "outage, unknown", 501: "outage, unknown",
		502: "outage, unknown", 504: "outage, unknown", 599: "outage, unknown", 999: "outage, unknown",
		429: "outage, transient", 503: "outage, transient",
		409: "unknown", 418: "unknown", 499: "unknown",
	} {
		r := newReceiver(t)
		r.set(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", r.URL+"/inside")
			w.WriteHeader(status)
		})
		h := newHandler(t, r)
		require.Equal(t, []string{want, want}, kinds(append(h.handle(t.Context(), grants(1, 2)), make([]error, 2)...)[:2]), "%d", status)
		require.Zero(t, r.inside.Load(), "%d was followed", status)
		if want == "done" {
			continue
		}
		r.set(nil) // the sink goes on by itself
		require.Nil(t, h.handle(t.Context(), grants(1, 2)), "%d", status)
	}
}

// An informational response comes before the answer, and is none.
func TestInformational(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.set(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	require.Nil(t, newHandler(t, r).handle(t.Context(), grants(1, 1)))
}

// A misdirected or unavailable endpoint gets one request of a call, not thousands.
func TestHalt(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]string{401: "broken", 429: "outage, transient", 503: "outage, transient"} {
		r := newReceiver(t)
		r.set(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Webhook-Id") != "rain-1" {
				w.WriteHeader(status)
			}
		})
		errs := newHandler(t, r, oneAtATime).handle(t.Context(), grants(1, 500))
		require.Len(t, r.got(), 2, "%d", status)
		require.Equal(t, "done", kind(errs[0]))
		for _, err := range errs[1:] {
			require.Equal(t, want, kind(err))
		}
	}
}
