package configs

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisClient returns the client for scripts and short commands. It connects when it is first used; the caller closes
// it.
func (c *Config) RedisClient() redis.UniversalClient {
	o := c.redisOptions()
	o.MaxRetries = c.Redis.Retries
	if o.MaxRetries == 0 {
		o.MaxRetries = -1 // 0 would mean the library's default
	}
	return c.client(o)
}

// ReadsClient returns the client for blocking reads only. Its read timeout is above consumer.block by
// redis.read_timeout, and it has a connection for each shard and sink, with two to spare. The caller closes it.
//
// It repeats nothing by itself. On a cluster, go-redis continues as for a redirect when a connection breaks. The
// entries of a lost answer are pending, and a worker takes them over when their lease ends.
func (c *Config) ReadsClient() redis.UniversalClient {
	o := c.redisOptions()
	o.MaxRetries = -1 // the consumer reads again by itself
	o.ReadTimeout = c.Consumer.Block + c.Redis.ReadTimeout
	o.PoolSize = c.Deployment.Shards*len(c.Deployment.Sinks) + 2
	o.MaxConcurrentDials = o.PoolSize
	return c.client(o)
}

// redisOptions sets every option whose default could lose money, hang, or connect without a limit.
func (c *Config) redisOptions() *redis.UniversalOptions {
	r := &c.Redis
	return &redis.UniversalOptions{
		Addrs: r.Addrs, MasterName: r.MasterName, DB: r.DB,
		Username: r.Username, Password: r.Password.Reveal(),
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword.Reveal(),
		TLSConfig:       c.redisTLS.Clone(),
		ClientName:      "hongbao",
		DisableIdentity: true, // otherwise each connect costs one more round trip
		Protocol:        3,

		DialTimeout: r.DialTimeout, DialerRetries: 1, // otherwise one connect takes five times as long
		ReadTimeout: r.ReadTimeout, WriteTimeout: r.WriteTimeout,
		ContextTimeoutEnabled: true, // otherwise go-redis ignores a deadline while it waits for an answer
		MaxRedirects:          3,
		PoolSize:              r.PoolSize, PoolTimeout: r.PoolTimeout, MaxConcurrentDials: r.PoolSize,
		PipelinePoolSize: -1, // otherwise there are ten more connections, which pool_size does not count
		ConnMaxIdleTime:  5 * time.Minute,

		// Reads go to the primary: a replica may not have the last grants.
		ReadOnly: false, RouteByLatency: false, RouteRandomly: false,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// slotsAge is the maximum age of a client's map of a cluster's slots. No server redirects the client away from a dead
// node: by go-redis' default it would dial that node for up to a minute after another has taken over.
const slotsAge = time.Second

// client returns the kind of client for redis.mode; go-redis would guess it from the number of addresses.
func (c *Config) client(o *redis.UniversalOptions) redis.UniversalClient {
	switch c.Redis.Mode {
	case Cluster:
		cluster := o.Cluster()
		cluster.ClusterStateReloadInterval = slotsAge
		return redis.NewClusterClient(cluster)
	case Sentinel:
		return redis.NewFailoverClient(o.Failover())
	default:
		return redis.NewClient(o.Simple())
	}
}
