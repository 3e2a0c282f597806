package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

const (
	remoteTakes       = 5 * time.Millisecond
	remoteConcurrency = 256
)

// settleHTTPRow compares settlement at a remote balance system with a bare pool of goroutines that post the same
// requests. The remote takes 5 ms for each request. The row also promises a rate, because at 5 ms a request the rate
// depends on the number of concurrent requests.
func settleHTTPRow(ctx context.Context, o options) ([]Result, error) {
	n := o.n(100_000)
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	bank, err := startSlowBank()
	if err != nil {
		return nil, errors.Join(err, db.close(), r.close())
	}
	b := &httpBench{settleBench{fixture: r, db: db, n: n}, bank}
	res := Result{
		Name: "settle_http", Unit: "grants/s", Want: 0.6, Least: 10_000,
		HowOurs: fmt.Sprintf("%d grants, one request each, on %d shards through packages consumer and internal/sinks/remote. This "+
			"includes the check of the plan, claims, the comparison of answers, the settler's commit in PostgreSQL "+
			"with fsync, leases and done bits; at most %d requests at once; the remote, in this process, takes %s for "+
			"each", n, shardCount, remoteConcurrency,
			remoteTakes),
		HowBaseline: fmt.Sprintf("%d goroutines that post the same requests with net/http to the same remote and read the answers, without "+
			"stream, ledger and checks",
			remoteConcurrency),
	}
	err = res.inTurn(ctx, o.rounds,
		func(ctx context.Context) (float64, error) { return bareHTTP(ctx, bank, n) },
		func(ctx context.Context) (float64, error) { return b.credits(ctx, 0) })
	if err == nil {
		var batches float64
		if batches, err = b.credits(ctx, 100); err == nil {
			res.Beside = map[string]float64{"with batches of 100, grants/s": batches}
		}
	}
	return []Result{res}, errors.Join(err, bank.close(), db.close(), r.close())
}

func bareHTTP(ctx context.Context, b *slowBank, n int) (float64, error) {
	t := &http.Transport{MaxIdleConns: remoteConcurrency, MaxIdleConnsPerHost: remoteConcurrency,
		MaxConnsPerHost: remoteConcurrency}
	defer t.CloseIdleConnections()
	client := &http.Client{Transport: t}
	return crowd.Load{Callers: remoteConcurrency, Calls: n}.Run(ctx, func(ctx context.Context, _, i int) error {
		return bareCredit(ctx, client, b.url, i)
	})
}

func bareCredit(ctx context.Context, client *http.Client, url string, i int) error {
	key := fmt.Sprintf("bench:bench-0:%d", i+1)
	body, err := json.Marshal(map[string]any{"reference": key, "account": user(i), "currency": "CNY", "amount": 500})
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/credits", io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", `"`+key+`"`)
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("post: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusCreated {
		err = errors.Join(err, fmt.Errorf("the remote answered %d", resp.StatusCode))
	}
	return errors.Join(err, resp.Body.Close())
}

// fixedPlans has the plans of the row's campaigns.
type fixedPlans struct{ *campaign.Plans }

func (fixedPlans) Currency(context.Context, string) (string, error) { return "CNY", nil }

func plansOf(campaigns []ledger.Campaign) (fixedPlans, error) {
	plans, err := campaign.NewPlans(campaign.PlansConfig{
		MaxPackets: hongbao.MaxPackets,
		Source: func(_ context.Context, id string) (hongbao.Campaign, campaign.Seed, []campaign.TopUp, error) {
			for _, c := range campaigns {
				if c.Spec.ID == id {
					return c.Spec, c.Seed, nil, nil
				}
			}
			return hongbao.Campaign{}, campaign.Seed{}, nil, hongbao.Errorf(hongbao.ClassPermanent, "no campaign %s", id)
		},
	})
	return fixedPlans{plans}, err
}

type httpBench struct {
	settleBench
	bank *slowBank
}

// credits settles the events of a run by requests to the bank. The parameter batchCredits, if not 0, is the maximum of
// credits per request.
func (b *httpBench) credits(ctx context.Context, batchCredits int) (float64, error) {
	st, books, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	h, err := remoteHandler(b.bank.url, batchCredits, books.campaigns, books.settler)
	if err != nil {
		return 0, errors.Join(err, books.end(ctx))
	}
	before := b.bank.booked.Load()
	rate, err := b.fixture.consume(ctx, st, "balance", b.n, h)
	h.Close()
	if got := b.bank.booked.Load() - before; err == nil && got != int64(b.n) {
		err = fmt.Errorf("%d of %d grants were credited, breaker open: %t", got, b.n, h.BreakerOpen())
	}
	return rate, errors.Join(err, books.settled(ctx), books.end(ctx))
}

func remoteHandler(url string, batchCredits int, campaigns []ledger.Campaign, settler remote.Ledger) (*remote.Handler,
	error) {
	plans, err := plansOf(campaigns)
	if err != nil {
		return nil, err
	}
	return remote.New(remote.Config{
		URL: url, Deployment: "bench", ConnectTimeout: 2 * time.Second, HeaderTimeout: 5 * time.Second,
		Timeout:     8 * time.Second,
		IdleTimeout: 30 * time.Second, BodyBytes: 4096, Concurrency: remoteConcurrency, BatchCredits: batchCredits,
		Retention: 24 * time.Hour, Margin: 5 * time.Minute, ClaimTime: 20 * time.Second, Repeats: 3,
		Pause:           100 * time.Millisecond,
		BreakerFailures: 50, BreakerOpen: 5 * time.Second, MaxRetryAfter: time.Minute,
	}, plans, settler)
}
