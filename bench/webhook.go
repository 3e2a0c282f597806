package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
)

const (
	receiverTakes = 5 * time.Millisecond
	// hookSecret signs the requests of the row.
	hookSecret = "whsec_YmVuY2gtYmVuY2gtYmVuY2gtYmVuY2gtYmVuY2g=" //nolint:gosec // of this row only
)

// publishWebhookRow compares the webhook sink with a bare pool of goroutines that post the same events. The receiver
// takes 5 ms for each request.
func publishWebhookRow(ctx context.Context, o options) ([]Result, error) {
	n := o.n(100_000)
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	to, err := startReceiver(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	b := &hookBench{r, to, n}
	res := Result{
		Name: "publish_webhook", Unit: "grants/s", Want: 0.6,
		HowOurs: fmt.Sprintf("%d grants, one signed request each, on %d shards through package consumer and internal/sinks/webhook, "+
			"with leases and done bits, without the wait for another sink; at most %d requests at once; the receiver, in this process, "+
			"takes %s for each", n, shardCount, remoteConcurrency, receiverTakes),
		HowBaseline: fmt.Sprintf("%d goroutines that post events of the same size with net/http to the same receiver, from memory and "+
			"without a signature", remoteConcurrency),
	}
	err = res.inTurn(ctx, o.rounds, b.bare, b.ours)
	return []Result{res}, errors.Join(err, to.close(), r.close())
}

type hookBench struct {
	fixture *fixture
	to      *hookReceiver
	n       int
}

// event is as large as the event of a grant of the row.
var event = []byte(`{"specversion":"1.0","id":"bench-0-12345","source":"/hongbao/bench","type":"hongbao.grant.v1",` +
	`"time":"2026-02-17T20:00:03.123Z","datacontenttype":"application/json","data":{"campaign":"bench-0","packet":12345,` +
	`"user":"u00012345","amount":500,"shard":0,"seq":12345,"epoch":1,"time":"2026-02-17T20:00:03.123Z"}}`)

func (b *hookBench) bare(ctx context.Context) (float64, error) {
	t := &http.Transport{MaxIdleConns: remoteConcurrency, MaxIdleConnsPerHost: remoteConcurrency, MaxConnsPerHost: remoteConcurrency}
	defer t.CloseIdleConnections()
	client := &http.Client{Transport: t}
	return crowd.Load{Callers: remoteConcurrency, Calls: b.n}.Run(ctx, func(ctx context.Context, _, _ int) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.to.url, bytes.NewReader(event))
		if err != nil {
			return fmt.Errorf("make the request: %w", err)
		}
		req.Header.Set("Content-Type", "application/cloudevents+json")
		resp, err := client.Do(req)
		if err != nil {
			return fmt.Errorf("post: %w", err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusNoContent {
			err = errors.Join(err, fmt.Errorf("the receiver answered %d", resp.StatusCode))
		}
		return errors.Join(err, resp.Body.Close())
	})
}

func (b *hookBench) ours(ctx context.Context) (float64, error) {
	st, _, err := b.fixture.events(ctx, b.n)
	if err != nil {
		return 0, err
	}
	h, err := webhook.New(webhook.Config{URL: b.to.url, Secret: hookSecret, Deployment: "bench", ConnectTimeout: 2 * time.Second,
		Timeout: 8 * time.Second, Concurrency: remoteConcurrency, MaxRetryAfter: time.Minute, BreakerFailures: 50,
		BreakerOpen: 5 * time.Second, AllowPrivate: true})
	if err != nil {
		return 0, err
	}
	defer h.Close()
	before := b.to.got.Load()
	rate, err := b.fixture.consume(ctx, st, "crm", b.n, h)
	if got := b.to.got.Load() - before; err == nil && got != int64(b.n) {
		err = fmt.Errorf("the receiver got %d requests for %d grants", got, b.n)
	}
	return rate, err
}

// hookReceiver answers each request with 204.
type hookReceiver struct {
	url    string
	server *http.Server
	got    atomic.Int64
}

func startReceiver(ctx context.Context) (*hookReceiver, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	r := &hookReceiver{url: "http://" + l.Addr().String() + "/hooks"}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

// ServeHTTP implements http.Handler.
func (r *hookReceiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if _, err := io.Copy(io.Discard, q.Body); err != nil {
		return
	}
	r.got.Add(1)
	if !retry.Pause(q.Context(), receiverTakes) {
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (r *hookReceiver) close() error { return r.server.Close() }
