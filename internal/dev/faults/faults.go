// Package faults breaks a development server on purpose. It has eight faults; each call returns when something is
// broken or restored. The console and `hongbao status` show the effect on the grants.
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

// The names of the faults, as in the URLs of the console.
const (
	KillWorker   = "kill-worker"
	CutRedis     = "cut-redis"
	RestoreRedis = "restore-redis"
	CutKafka     = "cut-kafka"
	RestoreKafka = "restore-kafka"
	LoseAnswers  = "lose-answers"
	RejectGrant  = "reject-grant"
	EmptyRedis   = "empty-redis"
)

// Workers controls the processes that deliver grants to the sinks; *local.Workers implements it.
type Workers interface {
	// List returns the state of each worker.
	List() []local.Worker
	// Kill ends a worker by SIGKILL, as a crash would. The worker is restarted later without another call.
	Kill(number int) error
}

// server is a server that a proxy can cut off from its clients.
type server struct {
	name         string
	proxy        *proxy.Proxy
	cut, restore model.Fault
	since        time.Time // when it was cut off; zero: it is not cut off. Under Faults.mu
}

// Faults causes faults and keeps a list of those it caused. It is safe for concurrent use.
type Faults struct {
	direct       redis.UniversalClient // bypasses the proxy
	store        *store.Store          // over direct
	workers      Workers
	redis, kafka *server
	say          local.Say // must not block

	mu  sync.Mutex
	log []model.FaultNote
}

// Of returns the Faults of a local deployment. direct is the result of d.DirectRedis.
func Of(d *local.Deployment, direct redis.UniversalClient, say local.Say) (*Faults, error) {
	st, err := store.New(store.Config{Redis: direct, Space: d.Config.Space(), Deployment: d.Config.Deployment.ID})
	if err != nil {
		return nil, err
	}
	return newFaults(direct, st, d.Workers, d.Servers, say), nil
}

func newFaults(direct redis.UniversalClient, st *store.Store, workers Workers, of *local.Servers, say local.Say) *Faults {
	return &Faults{direct: direct, store: st, workers: workers, say: say,
		redis: &server{name: "Redis", proxy: of.Redis,
			cut: model.Fault{Name: CutRedis, Label: "Cut off Redis",
				What: "Closes every connection to Redis and refuses new ones. Clients must retry their grabs; nothing is lost."},
			restore: model.Fault{Name: RestoreRedis, Label: "Restore Redis",
				What: "Redis is cut off. Accepts connections again, so that grabs are decided and workers continue."}},
		kafka: &server{name: "Kafka", proxy: of.Kafka,
			cut: model.Fault{Name: CutKafka, Label: "Cut off Kafka",
				What: "Closes every connection to Kafka and refuses new ones. Grabs and payments continue."},
			restore: model.Fault{Name: RestoreKafka, Label: "Restore Kafka",
				What: "Kafka is cut off. Accepts connections again, so that waiting grants are published."}},
	}
}

// Close lets clients connect to both servers again.
func (f *Faults) Close() {
	f.redis.proxy.Refuse(false)
	f.kafka.proxy.Refuse(false)
}

// Cause causes a fault or restores a server. It returns when that is done.
func (f *Faults) Cause(ctx context.Context, fault string) error {
	switch fault {
	case KillWorker:
		return f.killWorker(ctx)
	case CutRedis:
		return f.cut(f.redis)
	case RestoreRedis:
		return f.restore(f.redis)
	case CutKafka:
		return f.cut(f.kafka)
	case RestoreKafka:
		return f.restore(f.kafka)
	case LoseAnswers:
		f.loseAnswers()
		return nil
	case RejectGrant:
		return f.rejectGrant(ctx)
	case EmptyRedis:
		return f.emptyRedis(ctx)
	}
	return fmt.Errorf("fault %.40q: %w", fault, model.ErrNotFound)
}

// Buttons returns the faults that can be caused in the present state.
func (f *Faults) Buttons() []model.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []model.Fault{{Name: KillWorker, Label: "Kill a worker",
		What: "Kills the worker with the most pending entries by SIGKILL. When its lease ends, another worker takes them over."}}
	for _, s := range []*server{f.redis, f.kafka} {
		if s.since.IsZero() {
			all = append(all, s.cut)
		} else {
			all = append(all, s.restore)
		}
	}
	return append(all, model.Fault{Name: LoseAnswers, Label: "Lose answers",
		What: fmt.Sprintf("Drops the next %d answers of Redis and %d of Kafka, which still execute the requests. Clients must retry.",
			redisAnswers, kafkaAnswers)},
		model.Fault{Name: RejectGrant, Label: "Reject a grant", What: "Waits up to ten seconds for a win, and rejects its payment for " +
			"good: it becomes a dead letter. Then look at the page Dead letters, and requeue it."},
		model.Fault{Name: EmptyRedis, Label: "Empty Redis", What: "Deletes everything in Redis, as if its disk was lost. Grabs stop, " +
			"and money stays in the ledger. Then run hongbao recover. It can't be undone."})
}

// Lost returns how many answers of Redis and Kafka have been dropped so far.
func (f *Faults) Lost() int { return f.redis.proxy.Fired().Swallowed + f.kafka.proxy.Fired().Swallowed }

const maxLogged = 200

// Log returns the newest faults, newest first.
func (f *Faults) Log() []model.FaultNote {
	f.mu.Lock()
	defer f.mu.Unlock()
	story := slices.Clone(f.log)
	slices.Reverse(story)
	return story
}

func (f *Faults) tell(format string, args ...any) {
	sentence := fmt.Sprintf(format, args...)
	f.mu.Lock()
	f.log = append(f.log[max(0, len(f.log)-maxLogged+1):], model.FaultNote{At: time.Now(), Sentence: sentence})
	f.mu.Unlock()
	f.say("%s", sentence)
}

// since sets the time at which a server was cut off, and returns the previous value.
func (f *Faults) since(s *server, at time.Time) (before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before = s.since
	if before.IsZero() || at.IsZero() {
		s.since = at
	}
	return before
}

// cut closes every connection to a server and refuses new ones.
func (f *Faults) cut(s *server) error {
	if !f.since(s, time.Now()).IsZero() {
		return hongbao.Errorf(hongbao.ClassConflict, "%s is cut off already", s.name)
	}
	before := s.proxy.Fired().Cut
	s.proxy.Refuse(true)
	s.proxy.CutAll()
	f.tell("%s is cut off: %d connections closed, new ones are refused.", s.name, s.proxy.Fired().Cut-before)
	return nil
}

func (f *Faults) restore(s *server) error {
	since := f.since(s, time.Time{})
	if since.IsZero() {
		return hongbao.Errorf(hongbao.ClassConflict, "%s is not cut off", s.name)
	}
	s.proxy.Refuse(false)
	f.tell("%s is back after %.1f s.", s.name, time.Since(since).Seconds())
	return nil
}

// How many answers are dropped by one call of loseAnswers. For each lost answer of Kafka, a worker must search
// the topic.
const redisAnswers, kafkaAnswers = 20, 2

// loseAnswers drops the next answers of Redis and Kafka after the servers have executed the requests.
func (f *Faults) loseAnswers() {
	f.redis.proxy.SwallowAnswers(redisAnswers, func(request []byte) bool {
		return bytes.Contains(bytes.ToLower(request[:min(len(request), 1<<10)]), []byte("\r\nevalsha\r\n"))
	})
	f.kafka.proxy.SwallowAnswers(kafkaAnswers, proxy.KafkaRequest(proxy.KafkaProduce))
	f.tell("The next %d answers of Redis' scripts and the next %d of Kafka are lost. The servers still execute the requests, and "+
		"their clients must retry.", redisAnswers, kafkaAnswers)
}

// huntEvery and huntFor are how often, and for how long, killWorker looks for a worker with pending entries.
// Workers process entries quickly, and a kill in the middle of work is the interesting fault.
const huntEvery, huntFor = 2 * time.Millisecond, 2 * time.Second

// killWorker kills the worker with the most pending entries.
func (f *Faults) killWorker(ctx context.Context) error {
	var victim local.Worker
	var held int64
	until := time.Now().Add(huntFor)
	err := retry.Poll(ctx, huntEvery, func() (bool, error) {
		all := slices.DeleteFunc(f.workers.List(), func(w local.Worker) bool { return w.PID == 0 })
		if len(all) == 0 {
			return false, hongbao.Errorf(hongbao.ClassConflict, "no worker is running; killed workers restart by themselves")
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
	if err := f.workers.Kill(victim.Number); err != nil {
		return fmt.Errorf("kill worker %d: %w", victim.Number, err)
	}
	f.tell("Worker %d (process %d) is killed with SIGKILL. It held %d entries of the stream; another worker takes them when its "+
		"lease ends.", victim.Number, victim.PID, held)
	return nil
}

// holds counts the pending entries of each process in both consumer groups. A group that does not exist yet
// counts as empty.
func (f *Faults) holds(ctx context.Context) (map[int]int64, error) {
	holds := map[int]int64{}
	for _, sink := range []string{configs.SinkBalance, configs.SinkKafka} {
		for i := range f.store.Len() {
			workers, err := f.store.Shard(i).Group(sink).Workers(ctx)
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

// processOf returns the PID in a worker's name, which is host, PID and a random part, separated by "-". If the name
// has no PID, it returns 0.
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
