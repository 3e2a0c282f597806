package deployment

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Config says which deployment a program works for, and how it reaches Redis. ID and Space are the same as in the
// operator's configuration.
type Config struct {
	ID    string        // deployment.id
	Space hongbao.Space // deployment.key_prefix and deployment.shards
	// Redis says how to connect. Its addresses belong to one server, to the nodes of a cluster (IsClusterMode), or to the
	// sentinels of a primary (MasterName). Open sets ContextTimeoutEnabled, and MaintNotificationsConfig if it is nil. It
	// refuses ReadOnly, RouteByLatency and RouteRandomly, because a replica may lack the latest receipts.
	Redis *redis.UniversalOptions
	// Instrument, if not nil, gets each of the two clients before its first use, for example to trace its commands.
	Instrument func(redis.UniversalClient) error
	// Log gets the alarms. With nil, warnings and errors are written to standard error.
	Log *zap.Logger
}

// Deployment is a program's access to a deployment. It is safe for concurrent use. Share one in a program: what one of
// its producers and consumers has seen protects the others when Redis loses writes.
type Deployment struct {
	store   *store.Store
	log     *zap.Logger
	clients []redis.UniversalClient
}

// Open returns a Deployment, or an error that names every problem of the configuration. It opens no connection. The
// first call to Redis of a producer, a consumer or a Once checks that this Redis has the deployment; if it has another
// one or none, the error is of class Broken.
func Open(cfg Config) (*Deployment, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	rdb, reads := client(*cfg.Redis), client(readsOptions(*cfg.Redis, cfg.Space.Shards))
	d := &Deployment{log: cfg.Log, clients: []redis.UniversalClient{rdb, reads}}
	var err error
	if d.log == nil {
		d.log, err = standardError()
	}
	for _, c := range d.clients {
		if cfg.Instrument != nil && err == nil {
			err = cfg.Instrument(c)
		}
	}
	if err == nil {
		d.store, err = store.New(store.Config{Redis: rdb, Reads: reads, Space: cfg.Space, Deployment: cfg.ID})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the deployment: %w", err), d.Close())
	}
	return d, nil
}

func (c *Config) check() error {
	errs := []error{store.CheckSpace(c.Space)}
	if c.ID == "" {
		errs = append(errs, errors.New("ID is required: the operator's deployment.id"))
	}
	if c.Redis == nil || len(c.Redis.Addrs) == 0 {
		errs = append(errs, errors.New("Redis is required, with Addrs"))
	} else {
		errs = append(errs, checkOptions(c.Redis))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("deployment: %w", err)
	}
	return nil
}

func checkOptions(o *redis.UniversalOptions) error {
	var errs []error
	if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
		errs = append(errs, errors.New("Redis: ReadOnly, RouteByLatency and RouteRandomly must be false: a replica may lack "+
			"the latest campaigns and receipts"))
	}
	if len(o.Addrs) > 1 && o.MasterName == "" && !o.IsClusterMode {
		errs = append(errs, fmt.Errorf("Redis has %d addresses: set IsClusterMode for the nodes of a cluster, or MasterName "+
			"for sentinels", len(o.Addrs)))
	}
	return errors.Join(errs...)
}

// Limits of the second client, which waits for new events.
const (
	// longestBlock is the upper bound of consumer.Config.Block.
	longestBlock = 5 * time.Second
	// groups is for how many consumer groups in one program the pool has enough connections. It opens only those it needs.
	groups = 16
)

// readsOptions returns the options of the client that waits for new events.
func readsOptions(o redis.UniversalOptions, shards int) redis.UniversalOptions {
	if o.ReadTimeout == 0 {
		o.ReadTimeout = 5 * time.Second // go-redis' longest default
	}
	if o.ReadTimeout > 0 { // below 0, go-redis waits without a limit
		o.ReadTimeout += longestBlock
	}
	o.MaxRetries = -1 // a consumer itself reads again
	o.PoolSize = shards * groups
	return o
}

// client returns the kind of client that the options ask for. go-redis itself would also choose by the number of
// addresses.
func client(o redis.UniversalOptions) redis.UniversalClient {
	o.ContextTimeoutEnabled = true         // otherwise go-redis ignores a context's deadline while it waits for a reply
	if o.MaintNotificationsConfig == nil { // otherwise go-redis logs an error at the first connection
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	}
	switch {
	case o.MasterName != "":
		return redis.NewFailoverClient(o.Failover())
	case o.IsClusterMode:
		return store.NewCluster(o.Cluster())
	default:
		return redis.NewClient(o.Simple())
	}
}

// standardError returns a logger of warnings and errors.
func standardError() (*zap.Logger, error) {
	cfg := zap.NewProductionConfig()
	cfg.Level = zap.NewAtomicLevelAt(zap.WarnLevel)
	return cfg.Build()
}

// Close closes the clients. Call it after the producers are closed and the consumers have ended.
func (d *Deployment) Close() error {
	var errs []error
	for _, c := range d.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Of returns a Deployment for Hongbao's own programs, which make their clients from their configuration. Its Close
// closes nothing.
func Of(st *store.Store, log *zap.Logger) *Deployment { return &Deployment{store: st, log: log} }

// Store is for Hongbao's own packages.
func (d *Deployment) Store() *store.Store { return d.store }

// Log returns the logger.
func (d *Deployment) Log() *zap.Logger { return d.log }
