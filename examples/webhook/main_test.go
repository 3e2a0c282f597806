package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func sink(t *testing.T, url, secret string) *webhook.Handler {
	t.Helper()
	h, err := webhook.New(webhook.Config{URL: url, Secret: secret, Deployment: "prod", ConnectTimeout: time.Second,
		Timeout: 10 * time.Second, Concurrency: 4, MaxRetryAfter: time.Second, BreakerFailures: 100, BreakerOpen: time.Second,
		AllowPrivate: true})
	require.NoError(t, err)
	t.Cleanup(h.Close)
	return h
}

// The sink posts to the receiver. Each grant has its effect once, although every event comes twice.
func TestReceiver(t *testing.T) {
	t.Parallel()
	r, err := open(t.Context(), secret, filepath.Join(t.TempDir(), "points.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.db.Close()) })
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	points := func() (n, events int) {
		require.NoError(t, r.db.QueryRow("SELECT coalesce(sum(n), 0), (SELECT count(*) FROM seen) FROM points").Scan(&n, &events))
		return n, events
	}

	list := make([]hongbao.Grant, 10)
	for i := range list {
		n := int64(i + 1)
		list[i] = hongbao.Grant{Seq: n, Epoch: 1, Campaign: "rain", Packet: n, Amount: hongbao.Amount(n), User: "u1",
			Time: time.UnixMilli(1)}
	}
	for range 2 {
		require.Nil(t, sink(t, server.URL, secret).Handle(t.Context(), testkit.Batch(list)))
		n, events := points()
		require.Equal(t, []int{55, 10}, []int{n, events})
	}
	list[0].User = "u2"
	errs := sink(t, server.URL, secret).Handle(t.Context(), testkit.Batch(list))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]), "the packet has another user")
	require.NoError(t, errs[1])

	list[1].Packet = 99
	stranger := sink(t, server.URL, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(stranger.Handle(t.Context(), testkit.Batch(list[1:2]))[0]))
	resp, err := http.Post(server.URL, "application/json", bytes.NewReader(make([]byte, 1<<20)))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
	n, events := points()
	require.Equal(t, []int{55, 10}, []int{n, events})

	require.NoError(t, r.db.Close())
	closed := sink(t, server.URL, secret).Handle(t.Context(), testkit.Batch(list[1:2]))
	require.True(t, hongbao.IsOutage(closed[0]), "%v", closed[0])
}

// worker is a worker that delivers to the receiver, through a proxy that answers some requests itself.
type worker struct {
	*consumer.Consumer
	deployment *example.Deployment
	receiver   *receiver
	answered   atomic.Int64 // number of requests that the proxy has answered
}

// start starts a worker. The function answers returns the status of the proxy's answer to an event, or 0.
func start(t *testing.T, answers func(id string) int) *worker {
	t.Helper()
	r, err := open(t.Context(), secret, filepath.Join(t.TempDir(), "points.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.db.Close()) })
	w := &worker{receiver: r, deployment: example.Rain("rain", 100, 50)}
	t.Cleanup(w.deployment.Close)
	server := httptest.NewServer(http.HandlerFunc(func(resp http.ResponseWriter, req *http.Request) {
		status := answers(req.Header.Get("webhook-id"))
		if status == 0 {
			r.ServeHTTP(resp, req)
			return
		}
		w.answered.Add(1)
		resp.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler = w.deployment.Deployment, "crm", sink(t, server.URL, secret)
	cfg.Block, cfg.Poll, cfg.Backoff, cfg.MaxAttempts = 10*time.Millisecond, 10*time.Millisecond, time.Millisecond, 2
	w.Consumer, err = consumer.New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return w
}

// points returns the points of all users.
func (w *worker) points(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, w.receiver.db.QueryRow("SELECT coalesce(sum(n), 0) FROM points").Scan(&n))
	return n
}

// The path of the endpoint is wrong, and then it fails. No grant becomes a dead letter, although the worker makes more
// tries than attempts. When the endpoint is right, the worker goes on by itself.
func TestEndpointIsWrong(t *testing.T) {
	t.Parallel()
	var status atomic.Int64
	status.Store(http.StatusNotFound)
	w := start(t, func(string) int { return int(status.Load()) })
	w.deployment.Win("rain", "ann", "bob", "cleo")
	code := func() string { return w.Health()[0].Code }
	require.Eventually(t, func() bool { return code() == consumer.ShardBroken && w.answered.Load() > 2 }, patient, tick)
	w.answered.Store(0)
	status.Store(http.StatusInternalServerError)
	require.Eventually(t, func() bool { return code() == consumer.SinkDown && w.answered.Load() > 9 }, patient, tick)
	status.Store(0)
	require.Eventually(t, func() bool { return w.Stats().Done == 3 }, patient, tick)
	require.Zero(t, w.Stats().Dead)
	require.Equal(t, 150, w.points(t))
}

// The receiver fails with one event. Other events pass it, and are the evidence that it becomes a dead letter.
func TestEndpointFailsWithOneEvent(t *testing.T) {
	t.Parallel()
	w := start(t, func(id string) int {
		if id == "rain-1" {
			return http.StatusInternalServerError
		}
		return 0
	})
	w.deployment.Win("rain", "ann")
	require.Eventually(t, func() bool { return w.answered.Load() > 9 }, patient, tick)
	require.Zero(t, w.Stats().Dead, "no other event was sent: it may be an outage")
	done := 0
	for done < 90 && w.Stats().Dead == 0 {
		done++
		w.deployment.Win("rain", fmt.Sprintf("u%d", done))
		require.Eventually(t, func() bool { return w.Stats().Done == int64(done) }, patient, tick)
		tries := w.answered.Load()
		require.Eventually(t, func() bool { return w.answered.Load() > tries || w.Stats().Dead == 1 }, patient, tick)
	}
	require.EqualValues(t, 1, w.Stats().Dead)
	require.Equal(t, 50*done, w.points(t))
}

const patient, tick = 30 * time.Second, 5 * time.Millisecond

func TestEmptySecret(t *testing.T) {
	t.Parallel()
	_, err := open(t.Context(), "", filepath.Join(t.TempDir(), "points.db"))
	require.Error(t, err)
}
