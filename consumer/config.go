package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// Config of a Consumer. Take DefaultConfig and fill in what it leaves out; a zero is refused.
type Config struct {
	Redis redis.UniversalClient
	// Reads is a second client to the same Redis, for blocking reads only: else a few shards that wait would use up the
	// connections of all. Its pool must have a connection for each shard, and its read timeout must be above Block.
	// New can't make it from Redis: a copy of a Sentinel client's options does not follow a failover.
	Reads redis.UniversalClient
	Space hongbao.Space
	// Group is the sink's name, the name of its consumer group and of its done bits.
	Group string
	// Consumer names this worker in the group. It must be new each time a worker starts.
	Consumer string
	Handler  hongbao.Handler
	Log      *zap.Logger

	// BatchGrants is about how many grants one call of the handler gets. 1 to 100,000.
	BatchGrants int
	// MaxEntries bounds how many entries are taken or read at once. 1 to 10,000.
	MaxEntries int
	// Block is how long a read waits for new entries. 10 ms to 5 s.
	Block time.Duration
	// Poll is how often parked and abandoned entries are looked for. 10 ms to 1 min.
	Poll time.Duration
	// Lease is how long an entry stays a worker's own without renewal. 100 ms to 1 h.
	Lease time.Duration
	// HandleTimeout is how long one call of the handler may take before it counts as making no progress. 10 ms to 1 h.
	HandleTimeout time.Duration
	// DrainTimeout is how long Run goes on with what is in flight after its context ended. 0 to 1 h.
	DrainTimeout time.Duration
	// MaxAttempts is how often a grant is tried before it becomes a dead letter. 2 to 1,000: once with others, once with
	// its own entry only, so that what kills its workers takes no other along.
	MaxAttempts int64
	// Backoff of the first parking level; each further one doubles it, up to MaxBackoff. 1 ms to 24 h.
	Backoff, MaxBackoff time.Duration
}

// DefaultConfig has every default but Redis, Reads, Space, Group, Consumer, Handler and Log.
func DefaultConfig() Config {
	return Config{
		BatchGrants: 2_000, MaxEntries: 1_000, Block: time.Second, Poll: 500 * time.Millisecond,
		Lease: 30 * time.Second, HandleTimeout: 2 * time.Minute, DrainTimeout: 20 * time.Second,
		MaxAttempts: 12, Backoff: time.Second, MaxBackoff: 10 * time.Minute,
	}
}

func (c *Config) check() (*shards.Layout, error) {
	var errs []error
	layout, err := shards.NewLayout(c.Space)
	if err != nil {
		errs = append(errs, err)
	}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Redis == nil || c.Reads == nil || c.Handler == nil || c.Log == nil {
		bad("Redis, Reads, Handler and Log are required")
	}
	if err := hongbao.CheckCampaignID(c.Group); err != nil {
		bad("group %q: %w", c.Group, err)
	}
	if err := hongbao.CheckID(c.Consumer); err != nil || len(c.Consumer) > 0 && c.Consumer[0] == '_' {
		bad(`consumer %q: want 1 to 128 printable ASCII characters without spaces, not beginning with "_"`, c.Consumer)
	}
	number := func(name string, v, low, high int64) {
		if v < low || v > high {
			bad("%s is %d: want %d to %d", name, v, low, high)
		}
	}
	span := func(name string, v, low, high time.Duration) {
		if v < low || v > high {
			bad("%s is %s: want %s to %s", name, v, low, high)
		}
	}
	number("BatchGrants", int64(c.BatchGrants), 1, 100_000)
	number("MaxEntries", int64(c.MaxEntries), 1, 10_000)
	number("MaxAttempts", c.MaxAttempts, 2, 1_000)
	span("Block", c.Block, 10*time.Millisecond, 5*time.Second)
	span("Poll", c.Poll, 10*time.Millisecond, time.Minute)
	span("Lease", c.Lease, 100*time.Millisecond, time.Hour)
	span("HandleTimeout", c.HandleTimeout, 10*time.Millisecond, time.Hour)
	span("DrainTimeout", c.DrainTimeout, 0, time.Hour)
	span("Backoff", c.Backoff, time.Millisecond, 24*time.Hour)
	span("MaxBackoff", c.MaxBackoff, c.Backoff, 24*time.Hour)
	errs = append(errs, c.checkReads()...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("consumer: %w", errors.Join(errs...))
	}
	return layout, nil
}

// checkReads looks into the client for blocking reads: a read that times out on the client's side loses what Redis
// handed out until the lease is over, and a pool that is too small makes shards wait for each other.
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
