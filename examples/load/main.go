// Command load makes a crowd grab over HTTP, as a gateway does, and prints the rate, the latency and the outcomes. Use it
// to measure your own servers; docs/load-test.md shows how. It repeats a batch that gets no answer, with the same request
// ids, so every user gets a final answer or is counted as undecided.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"
)

var (
	url      = flag.String("url", "http://127.0.0.1:8080", "`URL` of hongbao serve")
	campaign = flag.String("campaign", "", "`id` of the campaign")
	users    = flag.Int("users", 10000, "number of users, each of whom grabs once")
	batch    = flag.Int("batch", 64, "grabs in each request, at most 128")
	callers  = flag.Int("callers", 16, "requests in flight at a time")
	fact     = flag.String("fact", "device", "`name` of a fact that each grab has; empty for none")
	timeout  = flag.Duration("timeout", 30*time.Second, "how long a batch is repeated")
)

type grab struct {
	User      string `json:"user"`
	RequestID string `json:"request_id"`
	Facts     string `json:"facts,omitempty"`
}

type result struct {
	Answer  struct{ Outcome string }
	Problem struct{ Code string }
}

// crowd collects what the callers see.
type crowd struct {
	client *http.Client
	mu     sync.Mutex
	counts map[string]int // by outcome, or by the code of a problem
	times  []time.Duration
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := &crowd{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: *callers}},
		counts: map[string]int{}}
	batches := make(chan []grab)
	var running sync.WaitGroup
	begun := time.Now()
	for range *callers {
		running.Go(func() {
			for grabs := range batches {
				c.send(ctx, grabs)
			}
		})
	}
	for first := 0; first < *users; first += *batch {
		batches <- crowdOf(first, min(first+*batch, *users))
	}
	close(batches)
	running.Wait()
	c.print(time.Since(begun))
}

// crowdOf returns a grab for each user of a range. The ids are the same in each run, so a second run repeats the first.
func crowdOf(from, to int) (grabs []grab) {
	for i := from; i < to; i++ {
		g := grab{User: fmt.Sprintf("load-%d", i), RequestID: "load"}
		if *fact != "" {
			g.Facts = fmt.Sprintf("%s=d%d", *fact, i)
		}
		grabs = append(grabs, g)
	}
	return grabs
}

// send sends a batch until each grab has a final answer, and notes the latency of each request.
func (c *crowd) send(ctx context.Context, grabs []grab) {
	for end := time.Now().Add(*timeout); len(grabs) > 0; {
		began := time.Now()
		results, err := c.request(ctx, grabs)
		took := time.Since(began)
		late := time.Now().After(end) || ctx.Err() != nil
		var again []grab
		c.mu.Lock()
		c.times = append(c.times, took)
		for i := range grabs {
			switch {
			case err != nil && !late:
				again = append(again, grabs[i])
			case err != nil:
				c.counts["undecided"]++
			case results[i].Answer.Outcome != "":
				c.counts[results[i].Answer.Outcome]++
			case undecided[results[i].Problem.Code] && !late:
				again = append(again, grabs[i])
			default:
				c.counts[results[i].Problem.Code]++
			}
		}
		c.mu.Unlock()
		if grabs = again; len(grabs) > 0 {
			select {
			case <-time.After(time.Second): // as Retry-After asks
			case <-ctx.Done():
			}
		}
	}
}

// undecided are the codes after which a client sends the same grab again.
var undecided = map[string]bool{"busy": true, "frozen": true, "refilling": true, "unavailable": true,
	"outcome_unknown": true, "rate_limited": true}

func (c *crowd) request(ctx context.Context, grabs []grab) ([]result, error) {
	body, err := json.Marshal(map[string][]grab{"grabs": grabs})
	if err != nil {
		return nil, err
	}
	path := *url + "/v1/campaigns/" + *campaign + "/grabs:batch"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("GATEWAY_KEY"))
	r.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%s: %s", res.Status, text)
	default:
		log.Fatalf("%s: %s", res.Status, text) // a repeat would get the same answer
	}
	var answer struct{ Results []result }
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(grabs) {
		return nil, fmt.Errorf("%d results for %d grabs", len(answer.Results), len(grabs))
	}
	return answer.Results, nil
}

func (c *crowd) print(took time.Duration) {
	slices.Sort(c.times)
	at := func(share float64) time.Duration {
		return c.times[int(share*float64(len(c.times)-1))].Round(10 * time.Microsecond)
	}
	fmt.Printf("%d users in %.2fs: %.0f grabs a second\n", *users, took.Seconds(), float64(*users)/took.Seconds())
	fmt.Printf("latency of a batch: p50 %v, p99 %v, slowest %v\n", at(0.5), at(0.99), at(1))
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		fmt.Printf("%s %d\n", name, c.counts[name])
	}
}
