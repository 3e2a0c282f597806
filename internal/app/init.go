package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Initialized is the result of Init. A field is nil if Init has not reached that part, or has not reached Kafka.
type Initialized struct {
	Ledger *InitializedLedger `json:"ledger"`
	Redis  *InitializedRedis  `json:"redis"`
	Topic  *InitializedTopic  `json:"topic"`
}

// InitializedLedger is the result of Init for the ledger.
type InitializedLedger struct {
	Deployment string   `json:"deployment"`
	New        bool     `json:"founded"` // false if the ledger was initialized before
	Tables     []string `json:"tables_made"`
}

// InitializedRedis is the result of Init for Redis.
type InitializedRedis struct {
	KeyPrefix string `json:"key_prefix"`
	New       int    `json:"shards_founded"`
	Before    int    `json:"shards_founded_before"`
}

// InitializedTopic is the topic that Init has created or has found.
type InitializedTopic struct {
	Topic string `json:"topic"`
}

// Init creates the missing parts of the deployment. If it fails, it returns the result so far with the error.
func (a *App) Init(ctx context.Context) (*Initialized, error) {
	did := &Initialized{}
	err := a.initialize(ctx, did)
	if err == nil && a.Has(configs.SinkKafka) {
		err = a.createTopic(ctx, did)
	}
	return did, err
}

// initialize initializes the ledger, then the shards in Redis, and stores the result in did. The ledger comes first,
// because it records each shard. So if Redis loses a shard later, a repeat does not create the shard again.
func (a *App) initialize(ctx context.Context, did *Initialized) error {
	if err := a.ReachRedis(ctx); err != nil {
		return err
	}
	// The mark in Redis is read before the ledger. In the other order another process could initialize both in between.
	mark, _, marked, err := a.store.ReadMark(ctx)
	if hongbao.IsOutage(err) { // a node of a cluster is down: the error about its shards is more helpful
		_, shard := a.store.ReadShards(ctx)
		return errors.Join(err, shard)
	}
	if err != nil {
		return fmt.Errorf("redis at %s: %w", strings.Join(a.Config.Redis.Addrs, ","), err)
	}
	has, err := a.initializeLedger(ctx, marked, did)
	if err != nil {
		return err
	}
	if marked {
		if err := a.founded.asRedis(mark.Founding); err != nil {
			return err
		}
	}
	return a.initializeShards(ctx, has, did)
}

// initializeLedger creates the tables, and records that the ledger belongs to this deployment. The flag marked means
// that Redis already belongs to a deployment.
func (a *App) initializeLedger(ctx context.Context, marked bool, did *Initialized) (has ledger.Deployment, err error) {
	if marked { // do not create tables in a wrong database
		l, err := a.reachLedger(ctx)
		if err == nil {
			err = l.Close()
		}
		if errors.Is(err, ledger.ErrNotInitialized) {
			return has, a.initializedElsewhere()
		}
	}
	steps, err := a.Migrate(ctx)
	if err != nil {
		return has, err
	}
	l, err := a.reachLedger(ctx)
	if err != nil {
		return has, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	_, err = l.Deployment(ctx)
	unknown := errors.Is(err, ledger.ErrNotInitialized)
	if unknown && marked {
		return has, a.initializedElsewhere()
	}
	if has, err = l.Initialize(ctx, a.Config.DeploymentRow()); err != nil {
		return has, err
	}
	did.Ledger = &InitializedLedger{has.ID, unknown, append([]string{}, steps...)}
	return has, a.founded.asLedger(has.Founding)
}

// initializedElsewhere returns the error for a Redis that belongs to a deployment that this ledger does not know.
func (a *App) initializedElsewhere() error {
	return hongbao.Errorf(hongbao.ClassBroken,
		"redis at %s was founded before (redis key %s), and the ledger has no record of it: nothing was founded. "+
			"Set ledger.dsn to the ledger that it was founded with, or redis.addrs to an unused Redis, or choose another "+
			"deployment.key_prefix",
		strings.Join(a.Config.Redis.Addrs, ","), a.store.Deployment())
}

// initializeShards creates the shards that Redis never had, and records each of them in the ledger.
func (a *App) initializeShards(ctx context.Context, has ledger.Deployment, did *Initialized) error {
	before, err := a.store.ReadShards(ctx)
	if err != nil {
		return err
	}
	epochs, founded := make([]int64, len(before)), 0
	for i := range before {
		known, err := a.ledger.Shard(ctx, i)
		if err != nil {
			return err
		}
		if epochs[i] = known.Epoch + 1; before[i] == nil {
			founded++
		}
		if before[i] == nil && known.Epoch > 0 {
			err = a.lost(ctx, i)
		}
		if err != nil {
			return err
		}
	}
	if err := a.store.Initialize(ctx, store.InitializeCall{Deployment: has.ID, Founding: has.Founding, Epochs: epochs}); err != nil {
		return err
	}
	after, err := a.store.ReadShards(ctx)
	if err != nil {
		return err
	}
	for i, f := range after {
		if known := epochs[i] - 1; f != nil && (before[i] == nil || known == 0) {
			if err := a.ledger.SetShard(ctx, i, known, ledger.ShardState{Epoch: f.Epoch, Token: f.Opened}); err != nil {
				return err
			}
		}
	}
	did.Redis = &InitializedRedis{has.KeyPrefix, founded, len(before) - founded}
	return nil
}

// lost returns an error if a missing shard had data: if the ledger has an event or a funded campaign of it. Otherwise
// the shard can be created again, because nothing was lost.
func (a *App) lost(ctx context.Context, shard int) error {
	refuse := func(what string) error {
		return hongbao.Errorf(hongbao.ClassBroken, "Redis has lost shard %d: redis key %s is gone, and the ledger has %s of "+
			"this shard. A new shard would deal the same packets and event numbers again, so nothing was written. Restore Redis "+
			"from its append-only file or a replica; if that is impossible, run `hongbao recover`", shard,
			a.store.Shard(shard).Keys.Meta(), what)
	}
	seq, err := a.ledger.HighestSeq(ctx, shard)
	if err != nil {
		return err
	}
	if seq > 0 {
		return refuse("event " + stream.EventID(shard, seq))
	}
	for c, err := range a.ledger.EachCampaign(ctx, "") {
		if err != nil {
			return err
		}
		if c.State == model.MoneyFunded && a.store.Has(c.Spec.ID, c.Spec.Places(), shard) {
			return refuse("campaign " + c.Spec.ID + ", which is funded,")
		}
	}
	return nil
}

// createTopic checks the topic. If the topic is missing and the configuration allows it, it creates it. If Kafka does not
// answer and createTopic may not create the topic, it only warns: workers check the topic as well, and an outage of Kafka
// must not prevent an upgrade.
func (a *App) createTopic(ctx context.Context, did *Initialized) error {
	pc := a.PublisherConfig()
	topic, err := publish.NewLog(pc)
	if err != nil {
		return err
	}
	err = a.checkTopic(ctx, topic, pc.Topic, topic.Check)
	if hongbao.IsOutage(err) && !pc.Create && ctx.Err() == nil {
		a.log.Warn("the topic was not checked, because Kafka does not answer: workers check it before they publish",
			zap.String("topic", pc.Topic), zap.Error(err))
		return nil
	}
	if err != nil {
		return err
	}
	topic.Close()
	did.Topic = &InitializedTopic{pc.Topic}
	return nil
}
