package configs

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/internal/claims"
	"github.com/hongbao-project/hongbao/internal/closing"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/lock"
	"github.com/hongbao-project/hongbao/internal/publish"
	"github.com/hongbao-project/hongbao/producer"
)

// Space says where the deployment's keys are.
func (c *Config) Space() hongbao.Space {
	return hongbao.Space{Prefix: c.Deployment.KeyPrefix, Shards: c.Deployment.Shards}
}

// StoreConfig is complete but for Redis and Space.
func (c *Config) StoreConfig() campaign.StoreConfig {
	return campaign.StoreConfig{Chunk: c.Campaign.LoadChunk, Patience: c.Campaign.LoadPatience}
}

// PlansConfig is complete but for Source.
func (c *Config) PlansConfig() campaign.PlansConfig {
	return campaign.PlansConfig{MaxPackets: c.Campaign.CachedPackets}
}

// CloserConfig is complete but for Redis, Space, Ledger, Locks and Log.
func (c *Config) CloserConfig() closing.Config {
	return closing.Config{Group: SinkBalance, Poll: 200 * time.Millisecond}
}

// RetirerConfig is complete but for Redis, Space, Locks and Log. A minute more or less does not matter after a grace of
// hours.
func (c *Config) RetirerConfig() closing.RetirerConfig {
	return closing.RetirerConfig{Grace: c.Campaign.Grace, Every: time.Minute}
}

// LockConfig is complete but for Redis and Space. A lock outlives a process that died as long as its entries do.
func (c *Config) LockConfig() lock.Config {
	return lock.Config{Lease: c.Consumer.Lease, Poll: 100 * time.Millisecond}
}

// ProducerConfig is complete but for Redis, Space and Log.
func (c *Config) ProducerConfig() producer.Config {
	p := &c.Producer
	return producer.Config{
		Deployment: c.Deployment.ID, MaxBacklog: p.MaxBacklog, InFlight: p.InFlight, MaxWaiting: p.MaxWaiting,
		CallTimeout:      p.CallTimeout,
		UndecidedTimeout: p.UndecidedTimeout, DurabilityTimeout: p.DurabilityTimeout,
	}
}

// ConsumerConfig is that of the sink's group, complete but for Redis, Reads, Space, Consumer, Handler and Log.
func (c *Config) ConsumerConfig(sink string) consumer.Config {
	w := &c.Consumer
	return consumer.Config{
		Group: sink, BatchGrants: w.BatchGrants, MaxEntries: w.MaxEntries, Block: w.Block, Poll: w.Poll, Lease: w.Lease,
		HandleTimeout: w.HandleTimeout, DrainTimeout: w.DrainTimeout, MaxAttempts: w.MaxAttempts,
		Backoff: w.Backoff, MaxBackoff: w.MaxBackoff,
	}
}

// TrimmerConfig is complete but for Redis, Space and Log.
func (c *Config) TrimmerConfig() consumer.TrimmerConfig {
	t := &c.Trimmer
	return consumer.TrimmerConfig{
		Groups: slices.Clone(c.Deployment.Sinks), Every: t.Every, Retention: t.Retention, MaxEvents: t.MaxEvents,
		ForgetAfter: t.ForgetAfter,
	}
}

// ClaimsConfig is that of the Kafka sink's claims, complete but for Redis, Space and Owner. Claims of live owners are
// handed over too: the broker drops the second copy of a batch, and the pending list says whose turn it is.
func (c *Config) ClaimsConfig() claims.Config {
	return claims.Config{Sink: SinkKafka, Lease: c.Consumer.Lease, TakeLive: true, Trimmed: true}
}

// LedgerConfig is complete. Its DSN may hold a password.
func (c *Config) LedgerConfig() ledger.Config {
	l := &c.Ledger
	out := ledger.Config{
		Driver: ledger.Driver(l.Driver), DSN: l.DSN.Reveal(), Conns: l.Conns, ConnectTimeout: l.ConnectTimeout,
		LockTimeout: l.LockTimeout, Timeout: l.Timeout, Retries: l.Retries,
	}
	for _, name := range c.Unsafe.Allow {
		if slices.Contains(ledger.UnsafeSettings(), name) {
			out.UnsafeAllow = append(out.UnsafeAllow, name)
		}
	}
	return out
}

// PublisherConfig is complete but for Worker. The publisher makes its own transport of it.
func (c *Config) PublisherConfig() publish.Config {
	k, p := &c.Kafka, &c.Publisher
	return publish.Config{
		Brokers: slices.Clone(k.Brokers), ClientID: k.ClientID, TLS: c.kafkaTLS.Clone(), SASL: c.kafkaSASL,
		Topic: k.Topic, Partitions: k.Partitions, Create: k.CreateTopic, ReplicationFactor: k.ReplicationFactor,
		Deployment: c.Deployment.ID, BatchGrants: p.BatchGrants, BatchBytes: p.BatchBytes,
		DialTimeout: p.DialTimeout, RequestTimeout: p.RequestTimeout, IdleTimeout: p.IdleTimeout, MetadataTTL: p.MetadataTTL,
		AttemptTime: p.AttemptTime, MaxClaimAge: p.MaxClaimAge, ProducerExpiration: p.ProducerExpiration,
		FetchBytes: p.FetchBytes,
	}
}
