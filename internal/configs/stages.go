package configs

import (
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Space returns the key prefix and the number of shards.
func (c *Config) Space() hongbao.Space {
	return hongbao.Space{Prefix: c.Deployment.KeyPrefix, Shards: c.Deployment.Shards}
}

// CloserConfig returns the closer's configuration, which is complete except for Store, Ledger, Locks and Log.
func (c *Config) CloserConfig() closing.Config {
	out := knob.Defaults[closing.Config]()
	out.Group = SinkBalance
	return out
}

// LockConfig returns the complete configuration of the locks. If a process dies, its locks end at the same time as the
// leases of its entries.
func (c *Config) LockConfig() store.LockConfig {
	out := knob.Defaults[store.LockConfig]()
	out.Lease = c.Consumer.Lease
	return out
}

// ConsumerConfig returns the configuration of a sink's consumer, which is complete except for Deployment,
// Consumer and Handler.
func (c *Config) ConsumerConfig(sink string) consumer.Config {
	out := c.Consumer
	out.Group = sink
	own := c.sink(sink)
	out.GrantsPerSecond, out.MaxCalls = own.GrantsPerSecond, own.MaxCalls
	if own.BatchGrants != 0 {
		out.BatchGrants = own.BatchGrants
	}
	if own.MaxAttempts != 0 {
		out.MaxAttempts = own.MaxAttempts
	}
	return out
}

func (c *Config) sink(name string) *Sink {
	switch name {
	case SinkKafka:
		return &c.Sinks.Kafka
	case SinkBalance:
		return &c.Sinks.Balance
	}
	if o := c.Own[name]; o != nil {
		return &o.Sink
	}
	return &c.Webhooks[name].Sink
}

// WebhookConfig returns the configuration of a webhook of deployment.sinks, which is complete except for Campaigns.
func (c *Config) WebhookConfig(sink string) webhook.Config {
	w := c.Webhooks[sink]
	out := w.Config
	out.Secret, out.PreviousSecret = w.Secret.Reveal(), w.PreviousSecret.Reveal()
	out.TLS, out.Deployment, out.Dial = c.webhookTLS[sink].Clone(), c.Deployment.ID, c.Seams.Dial
	return out
}

// TrimmerConfig returns the trimmer's configuration, which is complete except for Deployment.
func (c *Config) TrimmerConfig() consumer.TrimmerConfig {
	out := c.Trimmer
	out.Groups = slices.Clone(c.Deployment.Sinks)
	for _, sink := range out.Groups {
		if c.mayLag(sink) {
			out.MayLag = append(out.MayLag, sink)
		}
	}
	return out
}

// mayLag reports whether a sink that is far behind refuses no grabs.
func (c *Config) mayLag(sink string) bool {
	if o := c.Own[sink]; o != nil {
		return !o.BlocksGrabs
	}
	w := c.Webhooks[sink]
	return w != nil && !w.BlocksGrabs
}

// ClaimsConfig returns the configuration of sink kafka's claims, which is complete except for Owner. A claim may be
// taken over while its owner is alive, because the broker drops the second copy of a batch. The pending list decides
// which worker owns the events.
func (c *Config) ClaimsConfig() store.ClaimsConfig {
	return store.ClaimsConfig{Sink: SinkKafka, Requeues: deadletter.RequeueSink(SinkKafka), Lease: c.Consumer.Lease,
		TakeLive: true, Trimmed: true}
}

// LedgerConfig returns the ledger's complete configuration.
func (c *Config) LedgerConfig() ledger.Config {
	out := c.Ledger.Config
	out.Database = c.database()
	return out
}

// DeploymentRow returns what the ledger shall have recorded of the deployment.
func (c *Config) DeploymentRow() ledger.Deployment {
	return ledger.Deployment{ID: c.Deployment.ID, KeyPrefix: c.Deployment.KeyPrefix, Shards: c.Deployment.Shards}
}

// database returns the database that ledger.driver and ledger.dsn name. Its DSN may contain a password.
func (c *Config) database() db.Database {
	dsn := c.Ledger.DSN.Reveal()
	switch c.Ledger.Driver {
	case postgres.Name:
		return postgres.Database{DSN: dsn, UnsafeAllow: c.allowed(postgres.Unsafe())}
	case mysql.Name:
		return mysql.Database{DSN: dsn, UnsafeAllow: c.allowed(mysql.Unsafe())}
	default:
		return sqlite.Database{Path: dsn, Gate: c.Seams.Gate}
	}
}

// allowed returns those of the names that unsafe.allow has.
func (c *Config) allowed(names []string) (allow []string) {
	for _, name := range c.Unsafe.Allow {
		if slices.Contains(names, name) {
			allow = append(allow, name)
		}
	}
	return allow
}

// PublisherConfig returns the publisher's configuration, which is complete except for Worker. The publisher creates its
// own connections to the brokers from it.
func (c *Config) PublisherConfig() publish.Config {
	out := c.Publisher
	out.Brokers = slices.Clone(out.Brokers)
	out.TLS, out.SASL, out.Deployment = c.kafkaTLS.Clone(), c.kafkaSASL, c.Deployment.ID
	out.Dial, out.Roots = c.Seams.Dial, c.rootsOf("kafka.tls_ca")
	return out
}

// RemoteConfig returns the complete configuration of the client for the remote balance system.
func (c *Config) RemoteConfig() remote.Config {
	out := c.Remote.Config
	out.Token, out.TLS, out.Deployment = c.Remote.Token.Reveal(), c.remoteTLS.Clone(), c.Deployment.ID
	return out
}

// BalanceConfig returns the complete configuration of `hongbao balance`.
func (c *Config) BalanceConfig() Balance {
	out := c.Balance
	out.TLS = c.balanceTLS.Clone()
	return out
}
