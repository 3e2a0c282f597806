package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/consumer"
)

func TestHealthOfASinkIsThatOfItsWorstShard(t *testing.T) {
	t.Parallel()
	working, down := consumer.Health{Code: consumer.Working}, consumer.Health{Shard: 1, Code: consumer.SinkDown}
	unreachable, broken := consumer.Health{Shard: 2, Code: consumer.RedisDown},
		consumer.Health{Shard: 3, Code: consumer.ShardBroken}
	frozen := consumer.Health{Shard: 4, Code: consumer.ShardFrozen}
	for _, c := range []struct {
		shards []consumer.Health
		want   sinkHealth
	}{
		{[]consumer.Health{working, working}, sinkHealth{code: "working"}},
		{[]consumer.Health{working, down, working}, sinkHealth{code: "sink_down", bad: 1, worst: down}},
		{[]consumer.Health{down, unreachable, down}, sinkHealth{code: "redis_down", bad: 3, worst: unreachable}},
		{[]consumer.Health{working, frozen, unreachable}, sinkHealth{code: "shard_frozen", bad: 2, worst: frozen}},
		{[]consumer.Health{broken, frozen, working}, sinkHealth{code: "shard_broken", bad: 2, worst: broken}},
		{[]consumer.Health{broken, down, working}, sinkHealth{code: "shard_broken", bad: 2, worst: broken}},
	} {
		require.Equal(t, c.want, healthOf(c.shards))
	}
}
