package frontend

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func newOnce(t *testing.T) (*dedup.Once, *miniredis.Miniredis) {
	t.Helper()
	mini := miniredis.RunT(t)
	d, err := deployment.Open(deployment.Config{ID: "frontend", Space: hongbao.Space{Prefix: "frontend", Shards: 1},
		Redis: &redis.UniversalOptions{Addrs: []string{mini.Addr()}, MaxRetries: -1}, Log: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	once, err := dedup.NewOnce(dedup.OnceConfig{Deployment: d, Name: "frontend", Lease: time.Minute, Keep: time.Hour})
	require.NoError(t, err)
	return once, mini
}

func event(seq int64) topic.Event {
	return topic.Event{Source: "/hongbao/shop",
		Grant: hongbao.Grant{Shard: 0, Seq: seq, Packet: seq, User: "ann", Amount: 888, Campaign: "spring"}}
}

// Eight subscribers concurrently notify the front end of the same twenty grants. The front end gets each grant once.
func TestManyTellOnce(t *testing.T) {
	t.Parallel()
	once, _ := newOnce(t)
	hub := &Hub{}
	page := httptest.NewServer(hub)
	defer page.Close()
	notify := NotifyOnce(once, func(ctx context.Context, id string,
		m []byte) error {
		return Post(ctx, page.Client(), page.URL, id, m)
	})
	var wg sync.WaitGroup
	var held atomic.Int64
	for range 8 {
		wg.Go(func() {
			for seq := int64(1); seq <= 20; seq++ {
				err := notify(t.Context(), event(seq))
				for ; hongbao.IsOutage(err); err = notify(t.Context(), event(seq)) {
					held.Add(1)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 20, hub.Received())
	t.Logf("%d times another subscriber was sending the grant", held.Load())
}

// A subscriber lost the front end's answer, so the message may have been sent. After the lease no subscriber sends it
// again; the error makes the grant a dead letter.
func TestInDoubtIsNotSentAgain(t *testing.T) {
	t.Parallel()
	once, mini := newOnce(t)
	now := time.Now()
	mini.SetTime(now)
	calls := 0
	notify := NotifyOnce(once, func(context.Context, string, []byte) error { calls++; return errors.New("the answer was lost") })
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(notify(t.Context(), event(1))))
	err := notify(t.Context(), event(1))
	require.True(t, hongbao.IsOutage(err), "while the lease lasts, another subscriber may be sending it: %v", err)
	mini.SetTime(now.Add(2 * time.Minute))
	err = notify(t.Context(), event(1))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "may have been sent")
	require.Equal(t, 1, calls)
}

func TestCertainlyNotSentIsSentAgain(t *testing.T) {
	t.Parallel()
	once, _ := newOnce(t)
	hub := &Hub{}
	page := httptest.NewServer(hub)
	url := page.URL
	page.Close()
	client := &http.Client{Timeout: time.Second}
	post := func(ctx context.Context, id string, m []byte) error { return Post(ctx, client, url, id, m) }
	err := NotifyOnce(once, post)(t.Context(), event(1))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	page = httptest.NewServer(hub)
	defer page.Close()
	url = page.URL
	require.NoError(t, NotifyOnce(once, post)(t.Context(), event(1)))
	require.EqualValues(t, 1, hub.Received())
}

func TestPostReturnsClasses(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	defer page.Close()
	for code, want := range map[int]hongbao.Class{400: hongbao.ClassPermanent, 404: hongbao.ClassPermanent,
		500: hongbao.ClassUnknown, 503: hongbao.ClassUnknown} {
		status.Store(int64(code))
		err := Post(t.Context(), page.Client(), page.URL, "x", []byte("{}"))
		require.Error(t, err)
		require.Equal(t, want, hongbao.ClassOf(err), code)
		require.False(t, hongbao.IsOutage(err))
	}
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(Post(t.Context(), page.Client(), "://", "x", nil)))
}

func TestHubRefuses(t *testing.T) {
	t.Parallel()
	hub := &Hub{}
	ask := func(method, id, body string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
		r.Header.Set("Event-Id", id)
		w := httptest.NewRecorder()
		hub.ServeHTTP(w, r)
		return w.Code
	}
	require.Equal(t, http.StatusNoContent, ask(http.MethodPost, "1", "{}"))
	require.Equal(t, http.StatusBadRequest, ask(http.MethodPost, "", "{}"))
	require.Equal(t, http.StatusBadRequest, ask(http.MethodPost, "1", "a\ndata: b"), "one message can't become two")
	require.Equal(t, http.StatusBadRequest, ask(http.MethodPost, "1", strings.Repeat("x", maxMessage+1)))
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPut, "1", "{}"))
	require.EqualValues(t, 1, hub.Received())
}

// The Hub disconnects a browser that is too far behind, and still serves the other browsers.
func TestHubCutsWhoIsBehind(t *testing.T) {
	t.Parallel()
	hub := &Hub{}
	slow, ok := hub.enter()
	require.True(t, ok)
	for range maxBehind {
		hub.send("1", "x")
	}
	quick, ok := hub.enter()
	require.True(t, ok)
	hub.send("2", "y")
	require.Equal(t, "id: 2\ndata: y\n\n", <-quick)
	n := 0
	for range slow {
		n++
	}
	require.Equal(t, maxBehind, n, "the waiting messages are sent before the stream is closed")
	hub.leave(slow)
	require.Len(t, hub.browsers, 1)
}
