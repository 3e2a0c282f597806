package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Belongs checks the shard's owner; see askBelongs for its errors.
func (k *Shard) Belongs(ctx context.Context, deployment string) error {
	pipe := k.rdb.Pipeline()
	judge := k.askBelongs(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("check the owner of this Redis: %w", Classify(err))
	}
	return judge(deployment)
}

// askBelongs queues the read of the shard's meta in a pipeline. After the pipeline has run, judge checks the shard's
// owner. Its error is Broken if the shard belongs to another deployment or was initialized with a different number of
// shards. It is ErrFrozen if the shard is missing. judge reads the key of the prefix only if the shard is missing.
// That key may be on another server, whose outage must not affect this shard. askBelongs writes nothing.
func (k *Shard) askBelongs(ctx context.Context, pipe redis.Pipeliner) (judge func(deployment string) error) {
	fields := []string{deploymentField, shardsField}
	meta := pipe.HMGet(ctx, k.Keys.Meta(), fields...)
	return func(deployment string) error {
		if err := meta.Err(); err != nil {
			return fmt.Errorf("read %s: %w", k.Keys.Meta(), Classify(err))
		}
		key, has := k.Keys.Meta(), meta.Val()
		if has[0] == nil {
			var err error
			key = k.store.Deployment()
			if has, err = k.rdb.HMGet(ctx, key, fields...).Result(); err != nil {
				return fmt.Errorf("read %s: %w", key, Classify(err))
			}
		}
		for at, want := range []string{deployment, strconv.Itoa(k.store.Len())} {
			if text, _ := has[at].(string); has[0] != nil && text != want {
				return differs(key, fields[at], text, want)
			}
		}
		if meta.Val()[0] != nil {
			return nil
		}
		if has[0] != nil {
			key = k.Keys.Meta()
		}
		return hongbao.Outagef(hongbao.ClassTransient,
			"%w: redis key %s is not there: this Redis has lost it, or redis.addrs or deployment.key_prefix names "+
				"another one: %s", ErrFrozen, key, afterLoss)
	}
}
