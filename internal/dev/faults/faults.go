// Package faults breaks a development server on purpose: six verbs, each of which returns once something is broken or
// restored. The console and `hongbao status` show the effect on the grants.
package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The faults, as the console's buttons name them.
const (
	KillWorker   = "kill-worker"
	CutRedis     = "cut-redis"
	RestoreRedis = "restore-redis"
	CutKafka     = "cut-kafka"
	RestoreKafka = "restore-kafka"
	LoseAnswers  = "lose-answers"
)

// Workers are the processes that deliver grants to the sinks. *local.Workers is one.
type Workers interface {
	// List returns the state of each.
	List() []local.Worker
	// Kill ends a worker as a crash does, by SIGKILL. The worker is started again later, by itself.
	Kill(number int) error
}

// Config configures Faults. All fields are required.
type Config struct {
	// Store uses a client that does not go through the proxy of Redis.
	Store   *store.Store
	Workers Workers
	// Redis is the proxy between Redis and its clients, grabs and workers; Kafka is that between workers and Kafka.
	Redis, Kafka *proxy.Proxy
	// Say gets a sentence about each fault. It must not block.
	Say func(sentence string)
}

// Faults causes faults and remembers them. It is safe for concurrent use.
type Faults struct {
	cfg Config

	mu       sync.Mutex
	told     []model.Told
	cutSince map[*proxy.Proxy]time.Time // the proxies that are cut off
}

// Of makes the faults of a deployment on this machine. direct is its DirectRedis.
func Of(d *local.Deployment, direct redis.UniversalClient, tell *local.Teller) (*Faults, error) {
	st, err := store.Of(direct, d.Config.Space())
	if err != nil {
		return nil, err
	}
	return New(Config{Store: st, Workers: d.Workers, Redis: d.Servers.Proxies.Redis, Kafka: d.Servers.Proxies.Kafka,
		Say: func(sentence string) { tell.Say("%s", sentence) }})
}

// New checks the configuration.
func New(cfg Config) (*Faults, error) {
	if cfg.Store == nil || cfg.Workers == nil || cfg.Redis == nil || cfg.Kafka == nil || cfg.Say == nil {
		return nil, errors.New("faults: want every field of Config")
	}
	return &Faults{cfg: cfg, cutSince: map[*proxy.Proxy]time.Time{}}, nil
}

// Close allows connections again.
func (f *Faults) Close() {
	f.cfg.Redis.Refuse(false)
	f.cfg.Kafka.Refuse(false)
}

// Cause causes a fault or restores a server, and returns once that is done.
func (f *Faults) Cause(ctx context.Context, fault string) error {
	switch fault {
	case KillWorker:
		return f.killWorker(ctx)
	case CutRedis:
		return f.cut("Redis", f.cfg.Redis)
	case RestoreRedis:
		return f.restore("Redis", f.cfg.Redis)
	case CutKafka:
		return f.cut("Kafka", f.cfg.Kafka)
	case RestoreKafka:
		return f.restore("Kafka", f.cfg.Kafka)
	case LoseAnswers:
		f.loseAnswers()
		return nil
	}
	return fmt.Errorf("fault %.40q: %w", fault, model.ErrNotFound)
}

// Buttons returns the faults that can be caused now.
func (f *Faults) Buttons() []model.Fault {
	all := []model.Fault{{Name: KillWorker, Label: "Kill a worker",
		What: "SIGKILL for the worker that holds most. When its lease ends another worker takes what it held."}}
	if f.IsCut(CutRedis) {
		all = append(all, model.Fault{Name: RestoreRedis, Label: "Restore Redis",
			What: "Redis is cut off. Lets connections in again: grabs are decided, and workers go on."})
	} else {
		all = append(all, model.Fault{Name: CutRedis, Label: "Cut off Redis",
			What: "Closes every connection to Redis and refuses new ones. Grabs are told to come back; nothing is lost."})
	}
	if f.IsCut(CutKafka) {
		all = append(all, model.Fault{Name: RestoreKafka, Label: "Restore Kafka",
			What: "Kafka is cut off. Lets connections in again: what waits is published."})
	} else {
		all = append(all, model.Fault{Name: CutKafka, Label: "Cut off Kafka",
			What: "Closes every connection to Kafka and refuses new ones. Grabs and payments go on."})
	}
	return append(all, model.Fault{Name: LoseAnswers, Label: "Lose answers",
		What: fmt.Sprintf("Redis and Kafka act, but their next %d and %d answers never arrive. Whoever asked asks again.",
			redisAnswers, kafkaAnswers)})
}

// IsCut reports whether the server of CutRedis or CutKafka is cut off.
func (f *Faults) IsCut(cut string) bool {
	p := f.cfg.Kafka
	if cut == CutRedis {
		p = f.cfg.Redis
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.cutSince[p].IsZero()
}

// keptTold bounds the story.
const keptTold = 200

// Story returns the faults, the newest first.
func (f *Faults) Story() []model.Told {
	f.mu.Lock()
	defer f.mu.Unlock()
	story := slices.Clone(f.told)
	slices.Reverse(story)
	return story
}

func (f *Faults) tell(format string, args ...any) {
	sentence := fmt.Sprintf(format, args...)
	f.mu.Lock()
	f.told = append(f.told[max(0, len(f.told)-keptTold+1):], model.Told{At: time.Now(), Sentence: sentence})
	f.mu.Unlock()
	f.cfg.Say(sentence)
}

// cut closes every connection to a server and refuses new ones.
func (f *Faults) cut(name string, p *proxy.Proxy) error {
	f.mu.Lock()
	already := !f.cutSince[p].IsZero()
	if !already {
		f.cutSince[p] = time.Now()
	}
	f.mu.Unlock()
	if already {
		return hongbao.Errorf(hongbao.ClassConflict, "%s is cut off already", name)
	}
	before := p.Fired().Cut
	p.Refuse(true)
	p.CutAll()
	f.tell("%s is cut off: %d connections closed, new ones are refused.", name, p.Fired().Cut-before)
	return nil
}

// restore allows connections again.
func (f *Faults) restore(name string, p *proxy.Proxy) error {
	f.mu.Lock()
	since := f.cutSince[p]
	delete(f.cutSince, p)
	f.mu.Unlock()
	if since.IsZero() {
		return hongbao.Errorf(hongbao.ClassConflict, "%s is not cut off", name)
	}
	p.Refuse(false)
	f.tell("%s is back after %.1f s.", name, time.Since(since).Seconds())
	return nil
}

// The number of answers that are lost at a time. A lost answer of Kafka costs its worker a search in the topic.
const redisAnswers, kafkaAnswers = 20, 2

// loseAnswers lets Redis and Kafka act, and drops their next answers.
func (f *Faults) loseAnswers() {
	f.cfg.Redis.SwallowAnswers(redisAnswers, func(request []byte) bool {
		return bytes.Contains(bytes.ToLower(request[:min(len(request), 1<<10)]), []byte("\r\nevalsha\r\n"))
	})
	f.cfg.Kafka.SwallowAnswers(kafkaAnswers, proxy.KafkaRequest(proxy.KafkaProduce))
	f.tell("The next %d answers of Redis' scripts and the next %d of Kafka are lost: the servers act, and nobody hears of it.",
		redisAnswers, kafkaAnswers)
}

// huntEvery and huntFor are how often, and for how long, killWorker looks for a worker that has entries in hand.
// Workers are quick, and a kill in the middle of work shows more.
const huntEvery, huntFor = 2 * time.Millisecond, 2 * time.Second

// killWorker kills the worker that has the most entries in hand.
func (f *Faults) killWorker(ctx context.Context) error {
	var victim local.Worker
	var held int64
	until := time.Now().Add(huntFor)
	err := retry.Poll(ctx, huntEvery, func() (bool, error) {
		all := slices.DeleteFunc(f.cfg.Workers.List(), func(w local.Worker) bool { return w.PID == 0 })
		if len(all) == 0 {
			return false, hongbao.Errorf(hongbao.ClassConflict, "no worker runs; those that were killed come back by themselves")
		}
		holds, err := f.holds(ctx)
		if err != nil {
			return false, err
		}
		victim = slices.MaxFunc(all, func(a, b local.Worker) int { return int(holds[a.PID] - holds[b.PID]) })
		held = holds[victim.PID]
		return held > 0 || time.Now().After(until), nil
	})
	if err != nil {
		return err
	}
	if err := f.cfg.Workers.Kill(victim.Number); err != nil {
		return fmt.Errorf("kill worker %d: %w", victim.Number, err)
	}
	f.tell("Worker %d (process %d) is killed with SIGKILL. It held %d entries of the stream; another worker takes them when its "+
		"lease ends.", victim.Number, victim.PID, held)
	return nil
}

// holds counts the entries in each process's hands, for both sinks. A group that does not exist yet has none.
func (f *Faults) holds(ctx context.Context) (map[int]int64, error) {
	holds := map[int]int64{}
	for _, sink := range []string{configs.SinkBalance, configs.SinkKafka} {
		for i := range f.cfg.Store.Len() {
			workers, err := f.cfg.Store.Shard(i).Workers(ctx, sink)
			if err != nil && !errors.Is(err, store.ErrNoGroup) {
				return nil, err
			}
			for _, w := range workers {
				holds[processOf(w.Name)] += w.Holds
			}
		}
	}
	return holds, nil
}

// processOf returns the PID in a worker's name: host, PID and a random part, separated by "-". It returns 0 without
// PID.
func processOf(consumer string) int {
	parts := strings.Split(consumer, "-")
	if len(parts) < 3 {
		return 0
	}
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil {
		return 0
	}
	return pid
}
