package configs

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/hongbao-project/hongbao/internal/store"
)

// RedisClient returns the client for scripts and short commands. It connects at the first command. The caller closes
// it.
func (c *Config) RedisClient() redis.UniversalClient {
	o := c.redisOptions()
	o.MaxRetries = c.Redis.Retries
	if o.MaxRetries == 0 {
		o.MaxRetries = -1 // 0 means the library's default
	}
	return c.client(o)
}

// ReadsClient returns the client for blocking reads only. Its read timeout is consumer.block plus redis.read_timeout.
// Its pool has a connection for each shard and sink, and two more. The caller closes it.
//
// The client does not retry by itself, except on a cluster: there go-redis retries if a connection breaks, as for a
// redirect. If a reply is lost, its entries are pending. A worker takes them over when their lease ends.
func (c *Config) ReadsClient() redis.UniversalClient {
	o := c.redisOptions()
	o.MaxRetries = -1 // the consumer itself reads again
	o.ReadTimeout = c.Consumer.Block + c.Redis.ReadTimeout
	o.PoolSize = c.Deployment.Shards*len(c.Deployment.Sinks) + 2
	o.MaxConcurrentDials = o.PoolSize
	return c.client(o)
}

// redisOptions sets every option whose default could lose money, hang, or open connections without a limit.
func (c *Config) redisOptions() *redis.UniversalOptions {
	r, dial := &c.Redis, c.Seams.Dial
	if dial == nil && c.authorities["redis.tls_ca"] != nil {
		dial = c.dialRedis
	}
	return &redis.UniversalOptions{
		Addrs: r.Addrs, MasterName: r.MasterName, DB: r.DB,
		Username: r.Username, Password: r.Password.Reveal(),
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword.Reveal(),
		TLSConfig:       c.redisTLS.Clone(),
		Dialer:          dial,
		ClientName:      "hongbao",
		DisableIdentity: true, // saves a round trip for each connection
		Protocol:        3,

		DialTimeout: r.DialTimeout, DialerRetries: 1, // 1 attempt instead of 5
		ReadTimeout: r.ReadTimeout, WriteTimeout: r.WriteTimeout,
		ContextTimeoutEnabled: true, // otherwise go-redis ignores ctx's deadline while waiting for a reply
		MaxRedirects:          3,
		PoolSize:              r.PoolSize, PoolTimeout: r.PoolTimeout, MaxConcurrentDials: r.PoolSize,
		PipelinePoolSize: -1, // no separate pool, which would exceed pool_size
		ConnMaxIdleTime:  5 * time.Minute,

		// Reads go to the primary, because a replica may lack the latest grants.
		ReadOnly: false, RouteByLatency: false, RouteRandomly: false,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// client returns the kind of client for redis.mode. go-redis itself would choose the kind by the number of addresses.
func (c *Config) client(o *redis.UniversalOptions) redis.UniversalClient {
	switch c.Redis.Mode {
	case Cluster:
		return store.NewCluster(o.Cluster())
	case Sentinel:
		return redis.NewFailoverClient(o.Failover())
	default:
		return redis.NewClient(o.Simple())
	}
}
