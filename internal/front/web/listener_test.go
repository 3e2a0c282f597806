package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// Each request of a Crowd endpoint has its own deadline. An overdue request is answered and logged, and its connection is
// closed.
func TestCrowdIsOverdue(t *testing.T) {
	t.Parallel()
	var wait atomic.Int64
	a, logs := shop(func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-r.Context().Done():
			return hongbao.Outagef(hongbao.ClassTransient, "the shop is slow: %w", r.Context().Err())
		case <-time.After(time.Duration(wait.Load())):
			WriteText(w, http.StatusOK, []byte("{}"))
			return nil
		}
	})
	a.AnswerTime = 5 * time.Second
	s := serveCrowd(t, a)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	post := func() reply { return post(t, client, s) }
	wait.Store(int64(1100 * time.Millisecond))
	for range 5 { // together longer than the deadline
		res := post()
		require.Equal(t, http.StatusOK, res.status)
		require.False(t, res.last)
		require.Empty(t, res.head["Cache-Control"])
		require.Empty(t, res.head[RequestID])
	}
	wait.Store(int64(time.Minute))
	start := time.Now()
	res := post()
	require.GreaterOrEqual(t, time.Since(start), a.AnswerTime)
	require.Equal(t, http.StatusServiceUnavailable, res.status)
	require.True(t, res.last)
	require.NotEmpty(t, res.head.Get(RequestID))
	failed := logs.FilterMessage("a request failed")
	require.Equal(t, 1, failed.FilterField(zap.String("request_id", res.head.Get(RequestID))).Len())
	wait.Store(0)
	require.Equal(t, http.StatusOK, post().status)
	client.CloseIdleConnections()
	require.NoError(t, s.Stop(time.Minute, ""))
}

// If a caller hangs up, the context of the request ends, and this is not logged as a failure.
func TestCrowdHangsUp(t *testing.T) {
	t.Parallel()
	asked, ended := make(chan struct{}), make(chan error, 1)
	a, logs := shop(func(_ http.ResponseWriter, r *http.Request) error {
		_, _ = io.ReadAll(r.Body)
		close(asked)
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
		return hongbao.Outagef(hongbao.ClassTransient, "the shop is slow: %w", r.Context().Err())
	})
	s := serveCrowd(t, a)
	ctx, hangUp := context.WithCancel(t.Context())
	go func() { <-asked; hangUp() }()
	_, err := http.DefaultClient.Do(request(ctx, t, s)) //nolint:bodyclose // the request gets no answer
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, s.Stop(time.Minute, ""))
	require.Zero(t, logs.FilterMessage("a request failed").Len())
}

// If an overdue request is still answered, that is no failure. The next request of the connection gets a fresh context.
func TestCrowdIsOverdueAndAnswered(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	slow.Store(true)
	a, _ := shop(func(w http.ResponseWriter, r *http.Request) error {
		if slow.Load() {
			<-r.Context().Done()
		}
		state := "lives"
		if r.Context().Err() != nil {
			state = "ended"
		}
		WriteJSON(w, http.StatusOK, thing{state})
		return nil
	})
	a.AnswerTime = 3 * time.Second
	s := serveCrowd(t, a)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	res := post(t, client, s)
	require.Contains(t, res.text, "ended")
	require.False(t, res.last, "the header was sent before the request was overdue")
	slow.Store(false)
	res = post(t, client, s)
	require.Contains(t, res.text, "lives")
	require.False(t, res.last)
	client.CloseIdleConnections()
	require.NoError(t, s.Stop(time.Minute, ""))
}

// Only a POST may be a Crowd endpoint.
func TestCrowdPosts(t *testing.T) {
	t.Parallel()
	a, _ := shop(nil)
	a.Endpoints[0].Crowd = true
	_, err := a.Handler()
	require.ErrorContains(t, err, "GET /v1/things")
}

// serveCrowd serves an API whose POST is a Crowd endpoint.
func serveCrowd(t *testing.T, a *API) *Server {
	t.Helper()
	a.Endpoints[1].Crowd = true
	h, err := a.Handler()
	require.NoError(t, err)
	l, err := Listen(t.Context(), "127.0.0.1:0", "the test")
	require.NoError(t, err)
	return Start(t.Context(), l, h, Limits{ReadHeaderTimeout: time.Minute, ReadTimeout: time.Minute,
		WriteTimeout: time.Minute, IdleTimeout: time.Minute}, zap.NewNop())
}

func request(ctx context.Context, t *testing.T, s *Server) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.at.String()+"/v1/things", strings.NewReader("{}"))
	require.NoError(t, err)
	return r
}

// reply is an answer. last reports whether the server closes the connection after it.
type reply struct {
	status int
	last   bool
	head   http.Header
	text   string
}

func post(t *testing.T, client *http.Client, s *Server) reply {
	t.Helper()
	res, err := client.Do(request(t.Context(), t, s))
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, errors.Join(err, res.Body.Close()))
	return reply{res.StatusCode, res.Close, res.Header, string(text)}
}

// The server closes the connection after a body that is too large, because it does not read the rest. This also works
// if the ResponseWriter is wrapped.
func TestTooLargeIsTheLast(t *testing.T) {
	t.Parallel()
	a, _ := shop(func(w http.ResponseWriter, r *http.Request) error {
		_, err := ReadBody(struct{ http.ResponseWriter }{w}, r, Body{Bytes: 1})
		return err
	})
	s := serveCrowd(t, a)
	r := request(t.Context(), t, s)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.True(t, res.Close)
	require.NoError(t, s.Stop(time.Minute, ""))
}
