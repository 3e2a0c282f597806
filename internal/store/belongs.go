package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// AskBelongs asks in a pipeline whose a shard is, by its meta. Once the pipeline was carried out the answer tells:
// Broken if it belongs to another deployment or was founded with another number of shards, ErrFrozen if it is not
// there. Only then the key of the prefix is asked, which may lie on another server: one that is away is no matter of
// this shard. It writes nothing.
func (k *Shard) AskBelongs(ctx context.Context, pipe redis.Pipeliner) (judge func(deployment string) error) {
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
