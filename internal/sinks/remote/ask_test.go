package remote

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestCredited(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	h := newHandler(t, b, newBooks())
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(3, 3))))
	got, found, err := h.Credited(t.Context(), "rain", 3)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, Booked{Account: "u3", Currency: "CNY", Amount: 103}, got)
	_, found, err = h.Credited(t.Context(), "rain", 4)
	require.NoError(t, err)
	require.False(t, found)
	blind := newHandler(t, b, newBooks(), repeats)
	_, _, err = blind.Credited(t.Context(), "rain", 3)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

// An inconclusive response is queried again. It never counts as "no such credit".
func TestCreditedWrongAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"another 404": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("404 page not found"))
		},
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:3","acc`))
		},
		"no amount": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:3","account":"u3","currency":"CNY"}`))
		},
		"another credit": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:4","account":"u3","currency":"CNY","amount":103}`))
		},
		"no answer": func(w http.ResponseWriter, _ *http.Request) { drop(w) },
	} {
		b := newBank(t)
		good, lies := b.Config.Handler, atomic.Int64{}
		b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if lies.Add(1) <= 2 {
				answer(w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
		b.book(credit{Reference: "prod:rain:3", Account: "u3", Currency: "CNY", Amount: 103})
		h := newHandler(t, b, newBooks())
		got, found, err := h.Credited(t.Context(), "rain", 3)
		require.NoError(t, err, name)
		require.True(t, found, name)
		require.EqualValues(t, 103, got.Amount, name)
		require.EqualValues(t, 3, lies.Load(), "%s: two inconclusive answers and a good one", name)
		lies.Store(-10)
		_, _, err = h.Credited(t.Context(), "rain", 3)
		require.True(t, hongbao.IsOutage(err), "%s: %v", name, err)
	}
}

// pipes is a listener in memory, because synctest's clock stands still while a goroutine waits for a real connection.
type pipes struct {
	net.Listener
	dialed chan net.Conn
	closed context.Context
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.dialed <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialed:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { return nil }

// newPiped returns a Handler whose requests are handled in the same synctest bubble. The function end ends the server.
func newPiped(t *testing.T, answer http.HandlerFunc, change func(*Config)) (h *Handler, end func()) {
	t.Helper()
	closed, stop := context.WithCancel(t.Context())
	p := &pipes{dialed: make(chan net.Conn), closed: closed}
	s := &http.Server{Handler: answer, ReadHeaderTimeout: time.Minute}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(p) })
	cfg := testConfig("http://bank")
	change(&cfg)
	h, err := New(cfg, campaigns{}, newBooks())
	require.NoError(t, err)
	h.http.DialContext = p.dial
	return h, func() {
		h.Close()
		stop()
		_ = s.Close()
		wg.Wait()
	}
}

// Twenty concurrent callers share one limit, and a query that is repeated after an inconclusive answer counts, too. With
// 0 nobody waits.
func TestAuditRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []int{0, 5} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var at []time.Time
			h, end := newPiped(t, func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if at = append(at, time.Now()); len(at) <= 10 {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"code":"credit_not_found"}`))
			}, func(c *Config) { c.AuditRate = rate })
			defer end()
			var wg sync.WaitGroup
			for packet := range int64(20) {
				wg.Go(func() {
					_, found, err := h.Credited(t.Context(), "rain", packet+1)
					if found || err != nil {
						t.Errorf("packet %d: %v, %v", packet+1, found, err)
					}
				})
			}
			wg.Wait()
			require.Len(t, at, 30, "20 packets, and 10 repeats")
			took := at[29].Sub(at[0])
			if rate == 0 {
				require.Less(t, took, 10*time.Millisecond, "only the pauses before the repeats")
				return
			}
			for i := range at {
				require.InDelta(t, float64(i)/float64(rate), at[i].Sub(at[0]).Seconds(), 0.001, "query %d", i)
			}
		})
	}
}

// An audit ends while it waits for its rate. The query is not sent, and the error says why.
func TestAuditRateEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := atomic.Int64{}
		h, end := newPiped(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":"credit_not_found"}`))
		}, func(c *Config) { c.AuditRate = 1 })
		defer end()
		_, _, err := h.Credited(t.Context(), "rain", 1)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		time.AfterFunc(time.Second/2, cancel)
		_, _, err = h.Credited(ctx, "rain", 2)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "audit.rate")
		require.EqualValues(t, 1, asked.Load())
	})
}
