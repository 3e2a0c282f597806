package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/jackc/pgx/v5"

	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

const (
	// controlPages is how many viewers watch a page of the console, each the page of another campaign.
	controlPages = 50
	// replayRate is the most grants that control's replays deliver per second.
	replayRate = 2_000
)

// controlWork is the work that control gets in row control_load.
const controlWork = "audits,replays,loads,viewers"

// controlRow compares the p99 of grabs in a rain while `hongbao control` works with the p99 while it does not run.
func controlRow(ctx context.Context, o options) (_ []Result, err error) {
	does := strings.Split(o.control, ",")
	for _, work := range does {
		if !slices.Contains(append(strings.Split(controlWork, ","), "nothing"), work) {
			return nil, fmt.Errorf("control has no work %q; there are %s, and nothing", work, controlWork)
		}
	}
	topics, err := newPublishBench(ctx, 10_000)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, topics.close()) }()
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	dir, err := os.MkdirTemp("", "hongbao-bench-*")
	if err != nil {
		return nil, fmt.Errorf("create a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	dsn, _, err := db.fresh(ctx)
	if err != nil {
		return nil, err
	}
	b := &controlBench{publishBench: topics, programs: programsOf(topics, dsn, "rain"), dir: dir, dsn: dsn, does: does}
	end, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	res, err := b.row(ctx, o)
	return []Result{res}, errors.Join(err, end())
}

// controlBench is a deployment with one `hongbao serve` and one worker.
type controlBench struct {
	*publishBench
	programs
	dir, dsn string
	// serve and control are addresses; controlOps is the one of control's ops listener.
	serve, control, controlOps string
	key                        string // of a treasurer
	campaigns                  int
	does                       []string // which work of controlWork control gets

	audits, replays, loads, events atomic.Int64
}

// open initializes the deployment, and starts serve and work. The function end stops both.
func (b *controlBench) open(ctx context.Context) (end func() error, err error) {
	addresses := make([]string, 5)
	for i := range addresses {
		if addresses[i], err = freeAddress(ctx); err != nil {
			return nil, err
		}
	}
	b.serve, b.control, b.controlOps = addresses[0], addresses[1], addresses[3]
	keys := filepath.Join(b.dir, "keys.json")
	if err := os.WriteFile(keys, benchKeys(), 0o600); err != nil {
		return nil, fmt.Errorf("write the keys: %w", err)
	}
	for knob, value := range map[string]string{"SERVE_LISTEN": b.serve, "SERVE_OPS_LISTEN": addresses[2],
		"CONTROL_LISTEN": b.control, "CONTROL_OPS_LISTEN": b.controlOps, "CONTROL_REPLAY_TOPICS": "copy", "WORK_OPS_LISTEN": addresses[4],
		"SERVE_KEYS": keys, "SERVE_ISSUER": "https://id.example.com", "SERVE_AUDIENCE": "hongbao",
		"SERVE_FACTS": "device=claim:device_id", "SERVE_DRAIN_DELAY": "0s", "TRIMMER_RETENTION": "10m"} {
		b.env = append(b.env, "HONGBAO_"+knob+"="+value)
	}
	if _, _, err := b.run(ctx, "init"); err != nil {
		return nil, err
	}
	if err := b.broker.CreateTopic(ctx, "copy", partitions, nil); err != nil {
		return nil, err
	}
	key, _, err := b.run(ctx, "key", "create", "--role", "treasurer")
	if err != nil {
		return nil, err
	}
	b.key = strings.TrimSpace(string(key))
	for i := range controlPages {
		if err := b.create(ctx, watched(i), 10); err != nil {
			return nil, err
		}
	}
	stopServe, err := b.start(ctx, addresses[2], nil, "serve")
	if err != nil {
		return nil, err
	}
	stopWork, err := b.start(ctx, addresses[4], nil, "work")
	if err != nil {
		return nil, errors.Join(err, stopServe())
	}
	return func() error { return errors.Join(stopServe(), stopWork()) }, nil
}

func watched(i int) string { return fmt.Sprintf("watched%02d", i) }

// create creates and loads a campaign.
func (b *controlBench) create(ctx context.Context, id string, packets int) error {
	data, err := json.Marshal(campaign.Complete(spec(id, packets)))
	path := filepath.Join(b.dir, id+".json")
	if err = errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		return fmt.Errorf("write a specification: %w", err)
	}
	for _, step := range [][]string{{"campaign", "create", path}, {"campaign", "load", id}} {
		if _, _, err := b.run(ctx, step...); err != nil {
			return err
		}
	}
	return nil
}

func (b *controlBench) row(ctx context.Context, o options) (Result, error) {
	res := Result{Name: "control_load", Unit: "ms (p99)", Want: 1.2, Below: true, Beside: map[string]float64{}}
	closed := &openLoop{closed: o.n(60_000)}
	if err := b.rain(ctx, closed); err != nil {
		return res, err
	}
	load := &openLoop{rate: closed.rate / 2}
	all, redis := []*hdrhistogram.Histogram{newHistogram(), newHistogram()}, make([][]float64, 2)
	side := func(i int, beside func(context.Context) (func() error, error)) func(context.Context) (float64, error) {
		return func(ctx context.Context) (p99 float64, err error) {
			end, err := beside(ctx)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, end()) }()
			before, err := b.fixture.cpu(ctx)
			if err != nil {
				return 0, err
			}
			if err := b.rain(ctx, load); err != nil {
				return 0, err
			}
			after, err := b.fixture.cpu(ctx)
			if err != nil {
				return 0, err
			}
			redis[i] = append(redis[i], (after.process-before.process)/float64(load.n()))
			all[i].Merge(load.hist)
			return p(load.hist, 99), nil
		}
	}
	nobody := func(context.Context) (func() error, error) { return func() error { return nil }, nil }
	err := res.inTurn(ctx, o.rounds, side(1, nobody), side(0, b.work))
	for i, name := range []string{"beside control, ", "without control, "} {
		res.besides(name, all[i])
		res.Beside[name+"Redis' processor time for a grab and its deliveries, µs"] = median(redis[i])
	}
	res.Beside["in all rounds, updates of pages"] = float64(b.events.Load())
	for name, n := range map[string]int64{"audits": b.audits.Load(), "replays": b.replays.Load(), "loads": b.loads.Load()} {
		res.Beside[fmt.Sprintf("in all rounds, %s begun", name)] = float64(n)
	}
	if err == nil && b.events.Load() == 0 && slices.Contains(b.does, "viewers") {
		err = errors.New("no page was updated")
	}
	res.HowOurs = fmt.Sprintf("p99 of grabs through `hongbao serve` at %.0f grabs/s, half of the rate that %d connections reach, "+
		"while a worker books and publishes them and `hongbao control` audits everything again and again, replays all grants "+
		"to another topic at %d/s, creates and loads campaigns, and %d viewers watch %[4]d campaigns. All processes share the "+
		"machine's cores, but in production control has its own; so it runs only while a core is idle (SCHED_IDLE). The latency "+
		"counts from the planned arrival; %[5]s a round, the first %[6]s not counted", load.rate, httpCallers, replayRate, controlPages, loadFor,
		warmFor)
	res.HowBaseline = "the same rain without control"
	return res, err
}

// rain lets a crowd grab all packets of a new campaign. It waits until the ledger has all of them, so that the next round
// begins without a backlog.
func (b *controlBench) rain(ctx context.Context, l *openLoop) error {
	b.campaigns++
	id, n := fmt.Sprintf("rain%d", b.campaigns), l.n()
	if err := b.create(ctx, id, n); err != nil {
		return err
	}
	requests, err := httpRequests(id, n)
	if err != nil {
		return err
	}
	all, err := connections(ctx, b.serve, httpCallers)
	defer func() { closeAll(all) }()
	if err != nil {
		return err
	}
	free := make(chan connection, len(all))
	for _, c := range all {
		free <- c
	}
	err = l.run(ctx, func(_ context.Context, i int) error {
		c := <-free
		defer func() { free <- c }()
		return c.send(requests[i], `"granted"`)
	})
	if err != nil {
		return err
	}
	return b.settled(ctx, id)
}

// settled waits until the ledger has granted every packet of a campaign.
func (b *controlBench) settled(ctx context.Context, id string) error {
	conn, err := pgx.Connect(ctx, b.dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	limit, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	return retry.Poll(limit, 100*time.Millisecond, func() (done bool, err error) {
		err = conn.QueryRow(limit, "SELECT grants = packets FROM campaign WHERE id = $1", id).Scan(&done)
		return done, err
	})
}

// work starts control and gives it work without pause. The function end ends both.
func (b *controlBench) work(ctx context.Context) (end func() error, err error) {
	stop, err := b.start(ctx, b.controlOps, []string{"chrt", "--idle", "0"}, "control")
	if err != nil {
		return nil, err
	}
	limit, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	err = retry.Poll(limit, 20*time.Millisecond, func() (bool, error) { // its two listeners and Redis open independently
		res, err := b.request(limit, http.MethodGet, "/v1/sinks", "", nil)
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	loop := func(work string, begun *atomic.Int64, pause time.Duration, do func(ctx context.Context, i int64) error) {
		if !slices.Contains(b.does, work) {
			return
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := do(ctx, begun.Add(1)); err != nil && ctx.Err() == nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				retry.Pause(ctx, pause)
			}
		})
	}
	loop("audits", &b.audits, 0, func(ctx context.Context, _ int64) error { return b.ask(ctx, "/v1/audit", struct{}{}) })
	loop("replays", &b.replays, 0, func(ctx context.Context, i int64) error {
		return b.ask(ctx, fmt.Sprintf("/v1/replays/copy%d", i), map[string]any{"to": "topic:copy", "rate": replayRate})
	})
	loop("loads", &b.loads, 100*time.Millisecond, func(ctx context.Context, i int64) error {
		id := fmt.Sprintf("loaded%d", i)
		if err := b.ask(ctx, "/v1/campaigns", campaign.Complete(spec(id, 1000))); err != nil {
			return err
		}
		return b.ask(ctx, "/v1/campaigns/"+id+"/load", struct{}{})
	})
	for i := range controlPages {
		loop("viewers", new(atomic.Int64), 0, func(ctx context.Context, _ int64) error { return b.watch(ctx, watched(i)) })
	}
	return func() error {
		cancel()
		wg.Wait()
		return errors.Join(failed, stop())
	}, nil
}

// ask sends a request to control's API. It repeats the request until its work has ended.
func (b *controlBench) ask(ctx context.Context, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	for key := rand.Text(); ; {
		res, err := b.request(ctx, http.MethodPost, path, key, data)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(res.Body)
		err = errors.Join(err, res.Body.Close())
		switch {
		case err == nil && res.StatusCode >= http.StatusBadRequest:
			return fmt.Errorf("POST %s: %s: %s", path, res.Status, text)
		case err != nil || res.StatusCode != http.StatusAccepted:
			return err
		}
	}
}

func (b *controlBench) request(ctx context.Context, method, path, key string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+b.control+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+b.key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	return http.DefaultClient.Do(r)
}

// watch loads the page of a campaign, and reads its updates until ctx ends.
func (b *controlBench) watch(ctx context.Context, id string) error {
	for _, path := range []string{"/campaigns/" + id, "/events?page=/campaigns/" + id} {
		res, err := b.request(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return err
		}
		if res.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("GET %s: %s", path, res.Status), res.Body.Close())
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, math.MaxInt32)
		for lines.Scan() {
			if lines.Text() == "event: live" {
				b.events.Add(1)
			}
		}
		_ = res.Body.Close()
	}
	return ctx.Err()
}
