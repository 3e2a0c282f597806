package faults

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/proxy"
	"github.com/hongbao-project/hongbao/internal/retry"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// How many answers are lost at a time. A lost answer of Kafka costs its worker a search in the topic.
const redisAnswers, kafkaAnswers = 20, 2

// eachScript bounds the answers of one script that are lost, so that there are some of each.
const eachScript = redisAnswers / 2

// losable are the scripts whose answers are lost: those that decide, finish and claim.
var losable = []string{"grab", "ack", "claim", "complete"}

// loss counts the answers that are being lost, by what they answer.
type loss struct {
	mu    sync.Mutex
	count map[string]int64
}

// add counts one more, unless there were most of it.
func (l *loss) add(what string, most int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count[what] >= most {
		return false
	}
	l.count[what]++
	return true
}

// String lists the counts: "grab 12, ack 8".
func (l *loss) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(l.count)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, l.count[what]))
	}
	return strings.Join(parts, ", ")
}

// loseAnswers lets Redis and Kafka act, and drops the answers.
func (f *Faults) loseAnswers(ctx context.Context) error {
	servers, err := shards.Inspect(ctx, f.cfg.Redis)
	if err != nil {
		return fmt.Errorf("ask Redis how it knows its scripts: %w", err)
	}
	f.mu.Lock()
	already := f.losing
	f.losing = true
	f.mu.Unlock()
	if already {
		return hongbao.Errorf(hongbao.ClassConflict, "answers are being lost already")
	}
	names := shards.ScriptNames(servers[0].RunID)
	lost := &loss{count: map[string]int64{}}
	redis, kafka := f.cfg.RedisProxy.Fired().Swallowed, f.cfg.KafkaProxy.Fired().Swallowed
	f.Tell("The next %d answers of Redis and the next %d of Kafka are lost: the servers act, and nobody hears of it.",
		redisAnswers, kafkaAnswers)
	f.cfg.RedisProxy.SwallowAnswers(redisAnswers, func(request []byte) bool {
		name := names[scriptOf(request)]
		return slices.Contains(losable, name) && lost.add(name, eachScript)
	})
	produces := proxy.KafkaRequest(proxy.KafkaProduce)
	f.cfg.KafkaProxy.SwallowAnswers(kafkaAnswers, func(request []byte) bool {
		return produces(request) && lost.add("produce", kafkaAnswers)
	})
	return f.begin(ctx, func(ctx context.Context) {
		f.failed(ctx, "Which answers were lost can't be told", f.losses(ctx, lost, redis, kafka))
	})
}

// scriptOf finds the SHA-1 of the script that a request to Redis calls; empty if it calls none.
func scriptOf(request []byte) string {
	const head, length = "evalsha\r\n$40\r\n", 40
	at := bytes.Index(bytes.ToLower(request[:min(len(request), 1<<10)]), []byte(head))
	if at < 0 || len(request) < at+len(head)+length {
		return ""
	}
	return string(request[at+len(head):][:length])
}

// losses tells which answers were lost, until all are or nobody asks any more.
func (f *Faults) losses(ctx context.Context, lost *loss, redis, kafka int) error {
	const quiet = 10 * time.Second // so long without a loss, and the order is taken back
	n, last := 0, time.Now()       // how many were lost, and when the last one was
	saying, said := 0, time.Now()
	err := retry.Poll(ctx, lookEvery, func() (bool, error) {
		r, k := f.cfg.RedisProxy.Fired().Swallowed-redis, f.cfg.KafkaProxy.Fired().Swallowed-kafka
		if r+k > n {
			n, last = r+k, time.Now()
		}
		if n > saying && time.Since(said) > tellEvery {
			f.Tell("%s lost so far (%s).", wereLost(n), lost)
			saying, said = n, time.Now()
		}
		return r >= redisAnswers && k >= kafkaAnswers || time.Since(last) > quiet, nil
	})
	f.cfg.RedisProxy.SwallowAnswers(0, nil)
	f.cfg.KafkaProxy.SwallowAnswers(0, nil)
	f.mu.Lock()
	f.losing = false
	f.mu.Unlock()
	switch {
	case err != nil:
		return err
	case n == 0:
		f.Tell("No answer was lost: nobody asked for %s. Grab something, and try again.", lasts(quiet))
		return nil
	}
	f.Tell("%s lost (%s). Whoever asked asks again, by the same ids, and what was done is not done twice.",
		wereLost(n), lost)
	f.audit(ctx)
	return nil
}

func wereLost(n int) string {
	if n == 1 {
		return "1 answer was"
	}
	return fmt.Sprintf("%d answers were", n)
}
