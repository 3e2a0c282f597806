package main

import (
	"bytes"
	"context"
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

// A worker delivers to the receiver, through a proxy whose path is wrong, and which then fails. No grant becomes a dead
// letter and none loses an attempt, although the worker makes more tries than attempts. When the proxy is right, the
// worker goes on by itself. The grants come from Redis, so the Handler adds nothing to them.
func TestWorker(t *testing.T) {
	t.Parallel()
	r, err := open(t.Context(), secret, filepath.Join(t.TempDir(), "points.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.db.Close()) })
	var status, refused atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s := status.Load(); s != 0 {
			refused.Add(1)
			w.WriteHeader(int(s))
			return
		}
		r.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	d := example.Rain("rain", 3, 50)
	t.Cleanup(d.Close)
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler = d.Deployment, "crm", sink(t, server.URL, secret)
	cfg.Block, cfg.Poll, cfg.Backoff, cfg.MaxAttempts = 10*time.Millisecond, 10*time.Millisecond, time.Millisecond, 2
	c, err := consumer.New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	code := func() string { return c.Health()[0].Code }

	status.Store(http.StatusNotFound)
	d.Win("rain", "ann", "bob", "cleo")
	require.Eventually(t, func() bool { return code() == consumer.ShardBroken && refused.Load() > 2 }, patient, tick)
	refused.Store(0)
	status.Store(http.StatusInternalServerError)
	require.Eventually(t, func() bool { return code() == consumer.SinkDown && refused.Load() > 9 }, patient, tick)
	status.Store(0)
	require.Eventually(t, func() bool { return c.Stats().Done == 3 }, patient, tick)
	stop()
	require.NoError(t, <-ended)
	require.Zero(t, c.Stats().Dead)
	var n int
	require.NoError(t, r.db.QueryRow("SELECT sum(n) FROM points").Scan(&n))
	require.Equal(t, 150, n)
}

const patient, tick = 30 * time.Second, 5 * time.Millisecond

func TestEmptySecret(t *testing.T) {
	t.Parallel()
	_, err := open(t.Context(), "", filepath.Join(t.TempDir(), "points.db"))
	require.Error(t, err)
}
