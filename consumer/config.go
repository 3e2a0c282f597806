package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Config configures a Consumer. Start from DefaultConfig and set the fields that it leaves out; a zero value is
// refused.
type Config struct {
	Redis redis.UniversalClient
	// Reads is a second client to the same Redis, for blocking reads only. Without it, a few waiting shards would use
	// up the connections of all. Its pool must have a connection for each shard, and its read timeout must be above
	// Block. New can't create it from Redis, because a copy of a Sentinel client's options does not follow a
	// failover.
	Reads redis.UniversalClient
	Space hongbao.Space
	// Group is the name of the sink, of its consumer group and of its done bits.
	Group string
	// Consumer names this worker in the group. It must be new each time a worker starts.
	Consumer string
	Handler  hongbao.Handler
	// Middleware wraps the Handler: tracing, a log, a time limit (Timeout). The first one is the outermost. Each call
	// of the worker passes through it, including the attempts at a sink that is down.
	Middleware []func(hongbao.Handler) hongbao.Handler
	Log        *zap.Logger

	// About how many grants a sink gets at once.
	BatchGrants int `knob:"consumer.batch_grants" default:"2000" want:"1 to 100_000 grants"`
	// Grants a second that all workers of the group hand over at most; 0 for no bound. What a person has set in Redis
	// (`hongbao sink limit`) comes before it.
	GrantsPerSecond int `want:"0 to 1_000_000_000 grants"`
	// Calls of the Handler at once; 0 for one a shard.
	MaxCalls int `want:"0 to 1024 calls"`
	// Entries that are read or reclaimed at once at most.
	MaxEntries int `knob:"consumer.max_entries" default:"1000" want:"1 to 10_000 entries"`
	// How long a read waits for new entries.
	Block time.Duration `knob:"consumer.block" default:"1s" want:"10ms to 5s"`
	// How often a worker looks for parked and abandoned entries.
	Poll time.Duration `knob:"consumer.poll" default:"500ms" want:"10ms to 1m"`
	// How long an entry stays a worker's own without renewal; it is renewed every third of this.
	Lease time.Duration `knob:"consumer.lease" default:"30s" want:"100ms to 1h"`
	// One call of a sink, before it counts as making no progress.
	HandleTimeout time.Duration `knob:"consumer.handle_timeout" default:"2m" want:"10ms to 1h"`
	// How long a worker that must stop continues with the calls in flight; 0s to hand their entries back at once. Keep it
	// below what the service manager grants.
	DrainTimeout time.Duration `knob:"consumer.drain_timeout" default:"20s" want:"0s to 1h"`
	// Attempts before a grant becomes a dead letter. Outages of a whole sink take none, nor does waiting for another
	// worker's claim.
	//
	// At least two: once with others, once with its own entry only, so that a grant that kills its workers takes no other
	// along.
	MaxAttempts int64 `knob:"consumer.max_attempts" default:"12" want:"2 to 1000"`
	// Dead letters of one campaign with one reason that a worker writes within a minute before it pauses the campaign for
	// this sink; 0 never pauses it.
	//
	// `hongbao sink resume SINK --campaign ID` ends the pause. Two reasons are one if only the user and words with digits
	// differ.
	PauseLetters int64 `knob:"consumer.pause_letters" default:"1000" want:"0 to 1_000_000 letters"`
	// Wait after the first failed attempt; it doubles with each further one.
	Backoff time.Duration `knob:"consumer.backoff" default:"1s" want:"1ms to 24h"`
	// The longest wait between two attempts.
	MaxBackoff time.Duration `knob:"consumer.max_backoff" default:"10m" want:"1ms to 24h"`
}

// DefaultConfig returns every default. It leaves out Redis, Reads, Space, Group, Consumer, Handler and Log.
func DefaultConfig() Config { return knob.Defaults[Config]() }

func (c *Config) check() error {
	errs := knob.Check(c)
	if err := store.CheckSpace(c.Space); err != nil {
		errs = append(errs, err)
	}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Redis == nil || c.Reads == nil || c.Handler == nil || c.Log == nil {
		bad("Redis, Reads, Handler and Log are required")
	}
	if slices.ContainsFunc(c.Middleware, func(m func(hongbao.Handler) hongbao.Handler) bool { return m == nil }) {
		bad("Middleware has a nil: want functions only")
	}
	if err := hongbao.CheckCampaignID(c.Group); err != nil {
		bad("group %q: %w", c.Group, err)
	}
	if err := hongbao.CheckID(c.Consumer); err != nil || len(c.Consumer) > 0 && c.Consumer[0] == '_' {
		bad(`consumer %q: want 1 to 128 printable ASCII characters without spaces, not beginning with "_"`, c.Consumer)
	}
	if c.MaxBackoff < c.Backoff {
		bad("MaxBackoff is %s: want at least Backoff, %s", c.MaxBackoff, c.Backoff)
	}
	errs = append(errs, c.checkReads()...)
	if len(errs) > 0 {
		return fmt.Errorf("consumer: %w", errors.Join(errs...))
	}
	return nil
}

// checkReads checks the client for blocking reads. If a read times out on the client's side, the entries that Redis
// handed out are lost until the lease ends. If the pool is too small, shards wait for each other.
func (c *Config) checkReads() (errs []error) {
	var timeout time.Duration
	var pool int
	switch r := c.Reads.(type) {
	case *redis.Client:
		timeout, pool = r.Options().ReadTimeout, r.Options().PoolSize
	case *redis.ClusterClient:
		timeout, pool = r.Options().ReadTimeout, r.Options().PoolSize
	default:
		return nil
	}
	if timeout > 0 && timeout <= c.Block {
		errs = append(errs, fmt.Errorf("the read timeout of Reads is %s: want more than Block, %s", timeout, c.Block))
	}
	if pool < c.Space.Shards {
		errs = append(errs, fmt.Errorf("the pool of Reads has %d connections: want one for each of the %d shards", pool,
			c.Space.Shards))
	}
	return errs
}
