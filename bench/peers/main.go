// Command peers makes the grabs of a fleet as a program that chose another client would. It is a module of its own, so
// that who uses Hongbao does not inherit the peers. `make bench` builds and runs it.
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

func main() {
	addr := flag.String("addr", "", "address of Redis, where the classic script and its stock are loaded")
	sha := flag.String("sha", "", "SHA-1 of the classic script")
	pods := flag.Int("pods", 1, "clients")
	callers := flag.Int("callers", 1, "goroutines that share a client")
	n := flag.Int("n", 1000, "grabs")
	flag.Parse()
	debug.SetGCPercent(400) // as in command bench
	rate, err := grabs(context.Background(), *addr, *sha, *pods, *callers, *n)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	fmt.Println(rate)
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
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(start).Seconds(), errors.Join(errs...)
}
