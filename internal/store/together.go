package store

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// together reads with several commands in one transaction. A full Redis refuses every command of a transaction, also those
// that only read. Then together sends them without one: such a Redis grants nothing meanwhile. queue may be called twice.
func together(ctx context.Context, rdb redis.UniversalClient, queue func(pipe redis.Pipeliner)) error {
	each := func(pipe redis.Pipeliner) error {
		queue(pipe)
		return nil
	}
	_, err := rdb.TxPipelined(ctx, each)
	if redis.HasErrorPrefix(err, "EXECABORT") {
		_, err = rdb.Pipelined(ctx, each)
	}
	return err //nolint:wrapcheck // the caller says what was read
}
