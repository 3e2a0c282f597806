package faults

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/store"
)

// How many answers are lost at a time. A lost answer of Kafka costs its worker a search in the topic.
const redisAnswers, kafkaAnswers = 20, 2

// eachScript bounds the answers of one script that are lost, so that there are some of each.
const eachScript = redisAnswers / 2

// losable are the scripts whose answers are lost: those that decide, finish and claim.
var losable = []string{"grab", "ack", "claim", "complete"}

// lost are the answers that were lost, by what they answer.
type lost map[string]int

// count is how many were lost.
func (l lost) count() (n int) {
	for _, of := range l {
		n += of
	}
	return n
}

// String lists the counts: "grab 12, ack 8".
func (l lost) String() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, l[what]))
	}
	return strings.Join(parts, ", ")
}

// loseAnswers lets Redis and Kafka act, and drops the answers.
func (f *Faults) loseAnswers(ctx context.Context) error {
	servers, err := store.Inspect(ctx, f.cfg.Store.Redis())
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
	names := store.ScriptNames(servers[0].RunID)
	f.Tell("The next %d answers of Redis and the next %d of Kafka are lost: the servers act, and nobody hears of it.",
		redisAnswers, kafkaAnswers)
	redis := f.cfg.RedisProxy.SwallowKinds(redisAnswers, eachScript, func(request []byte) string {
		if name := names[scriptOf(request)]; slices.Contains(losable, name) {
			return name
		}
		return ""
	})
	produces := proxy.KafkaRequest(proxy.KafkaProduce)
	kafka := f.cfg.KafkaProxy.SwallowKinds(kafkaAnswers, kafkaAnswers, func(request []byte) string {
		if produces(request) {
			return "produce"
		}
		return ""
	})
	return f.begin(ctx, func(ctx context.Context) {
		f.failed(ctx, "Which answers were lost can't be told", f.losses(ctx, redis, kafka))
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
func (f *Faults) losses(ctx context.Context, redis, kafka func() map[string]int) error {
	const quiet = 10 * time.Second  // so long without a loss, and the order is taken back
	all, last := lost{}, time.Now() // what was lost, and when the last answer was
	saying, said := 0, time.Now()
	err := retry.Poll(ctx, lookEvery, func() (bool, error) {
		before := all.count()
		all = redis()
		maps.Copy(all, kafka())
		n := all.count()
		if n > before {
			last = time.Now()
		}
		if n > saying && time.Since(said) > tellEvery {
			f.Tell("%s lost so far (%s).", wereLost(n), all)
			saying, said = n, time.Now()
		}
		return n >= redisAnswers+kafkaAnswers || time.Since(last) > quiet, nil
	})
	f.cfg.RedisProxy.SwallowAnswers(0, nil)
	f.cfg.KafkaProxy.SwallowAnswers(0, nil)
	f.mu.Lock()
	f.losing = false
	f.mu.Unlock()
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		f.Tell("No answer was lost: nobody asked for %s. Grab something, and try again.", lasts(quiet))
		return nil
	}
	f.Tell("%s lost (%s). Whoever asked asks again, by the same ids, and what was done is not done twice.",
		wereLost(all.count()), all)
	f.audit(ctx)
	return nil
}

func wereLost(n int) string {
	if n == 1 {
		return "1 answer was"
	}
	return fmt.Sprintf("%d answers were", n)
}
