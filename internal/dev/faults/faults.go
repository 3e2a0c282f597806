package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The faults, as the console's buttons name them.
const (
	KillWorker  = "kill-worker"
	CutKafka    = "cut-kafka"
	MendKafka   = "mend-kafka"
	LoseAnswers = "lose-answers"
)

// Workers are the processes that bring grants to the sinks. *local.Workers is one.
type Workers interface {
	// List tells how each stands.
	List() []local.Worker
	// Kill ends a worker as a crash does, by SIGKILL. It is started again later, by itself.
	Kill(number int) error
}

// Config of Faults. All but Audit is required.
type Config struct {
	// Store is by a client that does not go by RedisProxy.
	Store *store.Store
	// Balance and Kafka name the sinks.
	Balance, Kafka string
	// Lease is how long a worker's entries are its own after it last said so: consumer.lease.
	Lease   time.Duration
	Workers Workers
	// RedisProxy is the way of grabs and workers to Redis, KafkaProxy that of workers to Kafka.
	RedisProxy, KafkaProxy *proxy.Proxy
	// Audit compares all stores once the harm is healed, and gives a sentence; nil for no audit.
	Audit func(context.Context) (string, error)
	// Say gets each sentence when it becomes true. It must not block.
	Say func(sentence string)
}

func (c *Config) check() error {
	if c.Store == nil || c.Workers == nil || c.RedisProxy == nil || c.KafkaProxy == nil || c.Say == nil {
		return errors.New("faults: want Store, Workers, both proxies and Say")
	}
	if c.Balance == "" || c.Kafka == "" || c.Lease <= 0 {
		return errors.New("faults: want the names of the sinks and a lease")
	}
	return nil
}

// Faults are the buttons, and the story of what they did. Its methods may be called at once; Run is called once.
type Faults struct {
	cfg     Config
	stories chan func(context.Context)

	mu       sync.Mutex
	told     []model.Told
	cutSince time.Time // zero: Kafka is not cut off
	losing   bool
	telling  int // stories that are not at their end
}

// Of makes the faults of a deployment on this machine. direct is its DirectRedis.
func Of(d *local.Deployment, direct redis.UniversalClient, tell *local.Teller,
	audit func(context.Context) (string, error)) (*Faults, error) {
	st, err := store.Of(direct, d.Config.Space())
	if err != nil {
		return nil, err
	}
	return New(Config{
		Store: st, Balance: configs.SinkBalance, Kafka: configs.SinkKafka, Lease: d.Config.Consumer.Lease,
		Workers: d.Workers, RedisProxy: d.Servers.Proxies.Redis, KafkaProxy: d.Servers.Proxies.Kafka, Audit: audit,
		Say: func(sentence string) { tell.Say("%s", sentence) },
	})
}

// New checks the configuration.
func New(cfg Config) (*Faults, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Faults{cfg: cfg, stories: make(chan func(context.Context))}, nil
}

// Run tells the stories of what was broken until ctx ends; then it mends Kafka and returns.
func (f *Faults) Run(ctx context.Context) error {
	var telling sync.WaitGroup
	defer telling.Wait()
	defer f.cfg.KafkaProxy.Refuse(false)
	for {
		select {
		case story := <-f.stories:
			telling.Go(func() {
				story(ctx)
				f.count(-1)
			})
		case <-ctx.Done():
			return nil
		}
	}
}

// begin hands a story to Run.
func (f *Faults) begin(ctx context.Context, story func(context.Context)) error {
	f.count(1)
	select {
	case f.stories <- story:
		return nil
	case <-ctx.Done():
		f.count(-1)
		return fmt.Errorf("nobody tells what happens: %w", context.Cause(ctx))
	}
}

func (f *Faults) count(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.telling += n
}

// Quiet tells that nothing is broken, and that every story is at its end.
func (f *Faults) Quiet() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.telling == 0 && f.cutSince.IsZero()
}

// KafkaIsCut tells whether Kafka is cut off.
func (f *Faults) KafkaIsCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.cutSince.IsZero()
}

// Cause breaks something, and returns once it is broken. What comes of it is told by and by.
func (f *Faults) Cause(ctx context.Context, fault string) error {
	switch fault {
	case KillWorker:
		return f.killWorker(ctx)
	case CutKafka:
		return f.cutKafka(ctx)
	case MendKafka:
		return f.mendKafka(ctx)
	case LoseAnswers:
		return f.loseAnswers(ctx)
	}
	return fmt.Errorf("fault %.40q: %w", fault, model.ErrNotFound)
}

// Buttons are what can be broken now.
func (f *Faults) Buttons() []model.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []model.Fault{{Name: KillWorker, Label: "Kill a worker",
		What: "SIGKILL for the worker that holds most. When its lease ends another worker takes what it held."}}
	if f.cutSince.IsZero() {
		all = append(all, model.Fault{Name: CutKafka, Label: "Cut off Kafka",
			What: "Closes every connection to Kafka and refuses new ones. Grabs and payments go on."})
	} else {
		all = append(all, model.Fault{Name: MendKafka, Label: "Mend Kafka",
			What: "Kafka is cut off. Lets connections in again: what waits is published."})
	}
	return append(all, model.Fault{Name: LoseAnswers, Label: "Lose answers",
		What: fmt.Sprintf("Redis and Kafka act, but their next %d and %d answers never arrive. Whoever asked asks again.",
			redisAnswers, kafkaAnswers)})
}

// keptTold bounds the story.
const keptTold = 200

// Story is what happened, the newest first.
func (f *Faults) Story() []model.Told {
	f.mu.Lock()
	defer f.mu.Unlock()
	story := slices.Clone(f.told)
	slices.Reverse(story)
	return story
}

// Tell adds a sentence to the story and says it.
func (f *Faults) Tell(format string, args ...any) {
	sentence := fmt.Sprintf(format, args...)
	f.mu.Lock()
	f.told = append(f.told[max(0, len(f.told)-keptTold+1):], model.Told{At: time.Now(), Sentence: sentence})
	f.mu.Unlock()
	f.cfg.Say(sentence)
}

// failed tells that a story could not be told to its end; not when that is the end of all.
func (f *Faults) failed(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		f.Tell("%s: %v", what, err)
	}
}

// audit ends a story. While Kafka is cut off there is none: it could not read the topic, and the story of the mending
// has one.
func (f *Faults) audit(ctx context.Context) {
	if f.cfg.Audit == nil || f.KafkaIsCut() {
		return
	}
	verdict, err := f.cfg.Audit(ctx)
	if f.failed(ctx, "The audit could not be done", err); err == nil {
		f.Tell("%s", verdict)
	}
}

// many writes a number with its noun.
func many(n int64, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "entry":
		return fmt.Sprintf("%d entries", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lasts writes a duration with a tenth of a second.
func lasts(d time.Duration) string { return fmt.Sprintf("%.1f s", max(d, 0).Seconds()) }
