// Command peers does what a program that chose another library would do: the grabs of a fleet, or a queue's messages. It
// is a module of its own, so that who uses Hongbao does not inherit the peers. `make bench` builds and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// job is what a peer is to do.
type job struct {
	addr, sha, kafka, topic string
	pods, callers, n        int
}

// peers are those that make bench runs. Each prints its rates, most important first.
var peers = map[string]func(context.Context, job) ([]float64, error){
	"rueidis": func(ctx context.Context, j job) ([]float64, error) {
		rate, err := grabs(ctx, j.addr, j.sha, j.pods, j.callers, j.n)
		return []float64{rate}, err
	},
	"asynq": asynqTasks, "watermill-redis": watermillRedis, "watermill-kafka": watermillKafka,
}

func main() {
	var j job
	which := flag.String("peer", "rueidis", "who does it")
	flag.StringVar(&j.addr, "addr", "", "address of Redis")
	flag.StringVar(&j.sha, "sha", "", "SHA-1 of the classic script, which is loaded as its stock is")
	flag.StringVar(&j.kafka, "kafka", "", "address of Kafka")
	flag.StringVar(&j.topic, "topic", "", "topic of Kafka")
	flag.IntVar(&j.pods, "pods", 1, "clients")
	flag.IntVar(&j.callers, "callers", 1, "goroutines that share a client, or that handle messages")
	flag.IntVar(&j.n, "n", 1000, "grabs, or messages")
	flag.Parse()
	debug.SetGCPercent(400) // as in command bench
	run, ok := peers[*which]
	if !ok {
		fmt.Fprintf(os.Stderr, "peers: no peer %q\n", *which)
		os.Exit(2)
	}
	rates, err := run(context.Background(), j)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	for _, rate := range rates {
		fmt.Println(rate)
	}
}

// grabs runs the classic script n times through rueidis, which sends what comes at once in one pipeline, and gives the
// rate.
func grabs(ctx context.Context, addr, sha string, pods, callers, n int) (float64, error) {
	clients := make([]rueidis.Client, pods)
	for i := range clients {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
		if err != nil {
			return 0, fmt.Errorf("connect to %s: %w", addr, err)
		}
		defer c.Close()
		clients[i] = c
	}
	errs := make([]error, pods*callers)
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range errs {
		c := clients[w%pods]
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = c.Do(ctx, c.B().Evalsha().Sha1(sha).Numkeys(4).
					Key("{s}stock", "{s}consumed", "{s}map", fmt.Sprintf("u%08d", i)).Build()).Error()
				if rueidis.IsRedisNil(errs[w]) { // nothing is left: the classic script's refusal
					errs[w] = nil
				}
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(start).Seconds(), errors.Join(errs...)
}
