package shards

import "github.com/redis/go-redis/v9"

// States is how many states the process keeps for a shard.
func States(keys Keys) (n int) {
	states.Range(func(at, _ any) bool {
		if at.(place).keys == keys {
			n++
		}
		return true
	})
	return n
}

// Seen is the highest seq that the process has seen of a shard by a client.
func Seen(rdb redis.UniversalClient, keys Keys) int64 { return stateOf(rdb, keys).seen.Load() }
