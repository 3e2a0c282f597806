package shards

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// AskBelongs asks in a pipeline whose a Redis is: by the key of the prefix and by the shard's meta. Once the pipeline
// was carried out the answer tells: Broken if it belongs to another deployment or was founded with another number of
// shards, ErrFrozen if one of the keys is not there. It writes nothing.
func AskBelongs(ctx context.Context, pipe redis.Pipeliner, layout *Layout,
	k Keys) (judge func(deployment string) error) {
	fields := []string{deploymentField, shardsField}
	keys := []string{layout.Deployment(), k.Meta()}
	cmds := make([]*redis.SliceCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.HMGet(ctx, key, fields...)
	}
	return func(deployment string) error {
		want := []string{deployment, strconv.Itoa(layout.Len())}
		for i := range keys {
			has := cmds[i].Val()
			if has[0] == nil {
				return hongbao.Outagef(hongbao.ClassTransient,
					"%w: redis key %s is not there: this Redis has lost it, or was never founded, or the "+
						"key prefix is another one; see that the configuration names the right Redis and prefix, then run "+
						"`hongbao recover`, or `hongbao init` for a new deployment", ErrFrozen, keys[i])
			}
			for at, field := range fields {
				if text, _ := has[at].(string); text != want[at] {
					return differs(keys[i], field, text, want[at])
				}
			}
		}
		return nil
	}
}
