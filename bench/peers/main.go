// Command peers runs the same work with other libraries: the grabs of a fleet, or the messages of a queue. It is a
// module of its own, so that Hongbao's users do not inherit its dependencies. `make bench` builds and runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/redis/rueidis"
)

// job has the parameters of a peer's run.
type job struct {
	addr, sha, kafka, topic string
	pods, callers, n        int
}

// peers are the libraries that make bench compares with Hongbao. Each function returns its rates, most important first.
var peers = map[string]func(context.Context, job) ([]float64, error){
	"rueidis": func(ctx context.Context, j job) ([]float64, error) {
		rate, err := grabs(ctx, j.addr, j.sha, j.pods, j.callers, j.n)
		return []float64{rate}, err
	},
	"asynq": asynqTasks, "watermill-redis": watermillRedis, "watermill-kafka": watermillKafka,
}

func main() {
	var j job
	which := flag.String("peer", "rueidis", "library to run")
	flag.StringVar(&j.addr, "addr", "", "address of Redis")
	flag.StringVar(&j.sha, "sha", "", "SHA-1 of the classic script; the caller has loaded the script and its packets")
	flag.StringVar(&j.kafka, "kafka", "", "address of Kafka")
	flag.StringVar(&j.topic, "topic", "", "topic of Kafka")
	flag.IntVar(&j.pods, "pods", 1, "clients")
	flag.IntVar(&j.callers, "callers", 1, "goroutines that share a client, or that handle messages")
	flag.IntVar(&j.n, "n", 1000, "grabs, or messages")
	flag.Parse()
	debug.SetGCPercent(400) // the same as in command bench
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

// grabs runs the classic script n times through rueidis, which pipelines concurrent calls. It returns the rate.
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
	return each(pods*callers, n, func(caller, i int) error {
		c := clients[caller%pods]
		err := c.Do(ctx, c.B().Evalsha().Sha1(sha).Numkeys(4).
			Key("{s}stock", "{s}consumed", "{s}map", fmt.Sprintf("u%08d", i)).Build()).Error()
		if rueidis.IsRedisNil(err) { // the classic script's refusal: no packet is left
			return nil
		}
		return err
	})
}
