package producer

import (
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config configures a Producer. Start from DefaultConfig and set Deployment; New rejects a zero Config.
type Config struct {
	// Deployment is where the grabs are decided. Its log gets the alarms about Redis: lost data, a stopped append-only
	// file, or an eviction policy other than noeviction. Each server is checked once a second. The Producer rejects a Redis
	// that belongs to another deployment or has another number of shards.
	Deployment *deployment.Deployment
	// Called, if not nil, gets each call to Redis after its end and before its grabs are answered. It is meant for
	// metrics, so it must be fast. It is called concurrently.
	Called func(Call) `json:"-"`
	// The most events of a shard that the slowest sink may have unfinished. Above this number, grabs get the answer busy.
	// A webhook counts only with blocks_grabs.
	MaxBacklog int64 `knob:"producer.max_backlog" default:"5000000" want:"1 to 1_000_000_000 events"`
	// The most concurrent calls of one campaign to one shard. A second call starts only when many grabs wait.
	InFlight int `knob:"producer.in_flight" default:"2" want:"1 to 16 calls"`
	// The most grabs of one campaign that wait for a call to one shard. Further grabs fail at once.
	MaxWaiting int `knob:"producer.max_waiting" default:"100000" want:"1 to 1_000_000 grabs"`
	// How long a grab may wait for its call to Redis. After this time it fails, and this try did nothing. If the last call
	// of a campaign's shard was an outage, its further grabs fail at once while one more call is tried.
	QueueTimeout time.Duration `knob:"producer.queue_timeout" default:"2s" want:"10ms to 1m"`
	// Time limit for one call to Redis, including its repeats.
	CallTimeout time.Duration `knob:"producer.call_timeout" default:"5s" want:"1ms to 1m"`
	// How long a grab with an undecided outcome (busy, frozen or refilling) is tried again, before the caller gets that
	// outcome. With 0s the caller gets it at once. With 15s, most grabs are decided in spite of a failover.
	UndecidedTimeout time.Duration `knob:"producer.undecided_timeout" default:"1s" want:"0s to 1m"`
	// For durability class replica: the number of replicas that must have a grant before its grab is answered. 0 means
	// the highest number of replicas that the primary has had since its shard was opened, but at least 1.
	Replicas int `knob:"producer.replicas" default:"0" want:"0 to 16 replicas"`
	// How long a grab waits until replicas or the disk have its grant, if the campaign's durability class requires that.
	DurabilityTimeout time.Duration `knob:"producer.durability_timeout" default:"1s" want:"1ms to 1m"`
}

// Call describes a finished call to Redis, which decided the grabs of one or many callers.
type Call struct {
	Campaign string
	Grabs    int
	// Traces are the traceparents of the grabs; some grabs may have none. The function Called must not keep the slice.
	Traces []string
	// Took is the duration of the call, including retries and the wait for a replica or the disk.
	Took time.Duration
	// Err is nil if a grab was answered. Otherwise it is the error that the grabs of the call got, or the first of them.
	Err error
}

// DefaultConfig returns a Config with all defaults. Deployment and Called have none.
func DefaultConfig() Config { return knob.Defaults[Config]() }

func (c *Config) check() error {
	errs := knob.Check(c)
	if c.Deployment == nil {
		errs = append(errs, errors.New("Deployment is required"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("producer: %w", errors.Join(errs...))
	}
	return nil
}
