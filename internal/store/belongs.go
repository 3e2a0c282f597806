package store

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Belongs checks that the shard belongs to the store's deployment; see askBelongs for its errors.
func (k *Shard) Belongs(ctx context.Context) error {
	pipe := k.rdb.Pipeline()
	judge := k.askBelongs(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("read which deployment this Redis belongs to: %w", Classify(err))
	}
	return judge()
}

// askBelongs queues the read of the shard's meta in a pipeline. After the pipeline has run, judge checks the shard's
// owner. Its error is Broken if the shard belongs to another deployment or was initialized with a different number of
// shards. If the shard is missing, the error is ErrFrozen. If the prefix has no deployment either, and this process has
// never found its deployment in this Redis, the error is Broken, because the address or the prefix is probably wrong.
// judge reads the key of the prefix only if the shard is missing. That key may be on another server, whose outage must
// not affect this shard. askBelongs writes nothing.
func (k *Shard) askBelongs(ctx context.Context, pipe redis.Pipeliner) (judge func() error) {
	fields := []string{deploymentField, shardsField}
	meta := pipe.HMGet(ctx, k.Keys.Meta(), fields...)
	return func() error {
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
		for at, want := range []string{k.store.id, strconv.Itoa(k.store.Len())} {
			if text, _ := has[at].(string); has[0] != nil && text != want {
				return differs(key, fields[at], text, want)
			}
		}
		if meta.Val()[0] != nil {
			k.store.found.Store(true)
			return nil
		}
		if has[0] != nil {
			key = k.Keys.Meta()
		} else if !k.store.found.Load() {
			return k.store.notInitialized()
		}
		return hongbao.Outagef(hongbao.ClassTransient,
			"%w: redis key %s is not there: this Redis has lost it, or redis.addrs or deployment.key_prefix names "+
				"another one: %s", ErrFrozen, key, afterLoss)
	}
}
