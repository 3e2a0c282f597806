package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/shards"
)

func initCmd() *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Found a deployment: the ledger's tables, the shards in Redis, the topic; later it brings the tables up to date",
		Long: "Makes what a deployment needs and what is not there yet, and says what it did: the tables of the ledger, the mark of each shard in\n" +
			"Redis, and the topic if kafka.create_topic is set. Run again, or killed on the way, it goes on where it was. Every other command\n" +
			"only opens what is there. A Redis that another ledger knows is refused; so is one that has lost what this ledger knows of it.",
		Example: "  hongbao init --config configs/production.yaml", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{}, func(d *deps) error {
				var did foundation
				err := d.found(cmd.Context(), &did)
				if err == nil && slices.Contains(d.cfg.Deployment.Sinks, configs.SinkKafka) {
					err = d.foundTopic(cmd.Context(), &did)
				}
				if did.Ledger == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, &did, did.write), err)
			})
		},
	}
}

// foundation is what init did; a part that it has not come to is nil.
type foundation struct {
	Ledger *foundedLedger `json:"ledger"`
	Redis  *foundedRedis  `json:"redis"`
	Topic  *foundedTopic  `json:"topic"`
}

type foundedLedger struct {
	Deployment string   `json:"deployment"`
	Founded    bool     `json:"founded"` // false: it was before
	Tables     []string `json:"tables_made"`
}

type foundedRedis struct {
	KeyPrefix string `json:"key_prefix"`
	Founded   int    `json:"shards_founded"`
	Before    int    `json:"shards_founded_before"`
}

type foundedTopic struct {
	Topic string `json:"topic"`
}

func (f *foundation) write(w io.Writer) error {
	var b strings.Builder
	if l := f.Ledger; l != nil {
		tables, how := "tables as they were", "was founded before"
		if len(l.Tables) > 0 {
			tables = "tables made: " + strings.Join(l.Tables, ", ")
		}
		if l.Founded {
			how = "is founded"
		}
		fmt.Fprintf(&b, "ledger  %s; deployment %s %s\n", tables, l.Deployment, how)
	}
	if r := f.Redis; r != nil {
		fmt.Fprintf(&b, "redis   shards under key prefix %s: %d founded, %d founded before\n", r.KeyPrefix, r.Founded, r.Before)
	}
	if f.Topic != nil {
		fmt.Fprintf(&b, "topic   %s: as it must be\n", f.Topic.Topic)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// found founds the ledger, then the shards in Redis, and notes in did what it did. The ledger comes first: whatever it has once
// known of a shard can be lost by Redis, and is then never founded again.
func (d *deps) found(ctx context.Context, did *foundation) error {
	if err := d.reachRedis(ctx); err != nil {
		return err
	}
	// Before the ledger is read: else another process could found both in between.
	mark, _, marked, err := shards.ReadMark(ctx, d.redis, d.space)
	if err != nil {
		return err
	}
	has, err := d.foundLedger(ctx, marked, did)
	if err != nil {
		return err
	}
	if marked {
		if err := d.founded.asRedis(mark.Founding); err != nil {
			return err
		}
	}
	return d.foundShards(ctx, has, did)
}

// foundLedger makes the tables, and makes the ledger this deployment's. marked says that Redis is somebody's already.
func (d *deps) foundLedger(ctx context.Context, marked bool, did *foundation) (has ledger.Deployment, err error) {
	if marked { // a wrong database is not even given tables
		l, err := d.reachLedger(ctx)
		if err == nil {
			err = l.Close()
		}
		if errors.Is(err, ledger.ErrNotFounded) {
			return has, d.foundedElsewhere()
		}
	}
	cfg, err := d.ledgerConfig()
	if err != nil {
		return has, err
	}
	steps, err := ledger.Migrate(ctx, cfg)
	if err != nil {
		return has, away("ledger.dsn", err)
	}
	if d.ledger, err = d.reachLedger(ctx); err != nil {
		return has, err
	}
	d.atEnd(d.ledger.Close)
	_, err = d.ledger.Deployment(ctx)
	unknown := errors.Is(err, ledger.ErrNotFounded)
	if unknown && marked {
		return has, d.foundedElsewhere()
	}
	if has, err = d.ledger.Found(ctx, d.deployment()); err != nil {
		return has, err
	}
	did.Ledger = &foundedLedger{has.ID, unknown, append([]string{}, steps...)}
	return has, d.founded.asLedger(has.Founding)
}

// foundedElsewhere refuses a Redis that is in use beside a ledger that never knew it.
func (d *deps) foundedElsewhere() error {
	return hongbao.Errorf(hongbao.Broken, "redis at %s was founded before (redis key %s), and the ledger knows nothing of it: nothing was founded. "+
		"Point ledger.dsn to the ledger that it was founded with; or redis.addrs to a Redis that is free, or take another deployment.key_prefix",
		strings.Join(d.cfg.Redis.Addrs, ","), d.space.Deployment())
}

// foundShards founds the shards that Redis never had, and notes each of them in the ledger.
func (d *deps) foundShards(ctx context.Context, has ledger.Deployment, did *foundation) error {
	before, err := shards.ReadShards(ctx, d.redis, d.space)
	if err != nil {
		return err
	}
	epochs, founded := make([]int64, len(before)), 0
	for i := range before {
		known, err := d.ledger.Shard(ctx, i)
		if err != nil {
			return err
		}
		if epochs[i] = known.Epoch + 1; before[i] == nil {
			founded++
		}
		if before[i] == nil && known.Epoch > 0 {
			err = d.lost(ctx, i)
		}
		if err != nil {
			return err
		}
	}
	if err := shards.Found(ctx, d.redis, d.space, shards.FoundCall{Deployment: has.ID, Founding: has.Founding, Epochs: epochs}); err != nil {
		return err
	}
	after, err := shards.ReadShards(ctx, d.redis, d.space)
	if err != nil {
		return err
	}
	for i, f := range after {
		if known := epochs[i] - 1; f != nil && (before[i] == nil || known == 0) {
			if err := d.ledger.SetShard(ctx, i, known, ledger.ShardState{Epoch: f.Epoch, Token: f.Opened}); err != nil {
				return err
			}
		}
	}
	did.Redis = &foundedRedis{has.KeyPrefix, founded, len(before) - founded}
	return nil
}

// lost refuses to found a shard again of which the ledger knows something. A shard that nothing ever happened on loses nothing.
func (d *deps) lost(ctx context.Context, shard int) error {
	refuse := func(what string) error {
		return hongbao.Errorf(hongbao.Broken, "Redis has lost shard %d: redis key %s is gone, and the ledger knows %s of it. Founded again, it would give out the "+
			"same packets and events once more, so nothing was written. Bring Redis back from its append-only file or a replica; if that can't be, `hongbao recover` "+
			"comes next", shard, d.space.Shard(shard).Meta(), what)
	}
	seq, err := d.ledger.HighestSeq(ctx, shard)
	if err != nil {
		return err
	}
	if seq > 0 {
		return refuse(fmt.Sprintf("event %d-%d", shard, seq))
	}
	const page = 1000
	for after := ""; ; {
		ids, err := d.ledger.FundedCampaigns(ctx, after, page)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if d.space.Home(id).Index() == shard {
				return refuse("campaign " + id + ", which is funded,")
			}
			after = id
		}
		if len(ids) < page {
			return nil
		}
	}
}

// foundTopic makes the topic if it is missing and may be made, and checks it.
func (d *deps) foundTopic(ctx context.Context, did *foundation) error {
	d.makes = true
	if _, err := d.publisher(ctx); err != nil {
		return err
	}
	did.Topic = &foundedTopic{d.cfg.Kafka.Topic}
	return nil
}
