package shards

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/stream"
)

// Reader reads the streams of a deployment. It may be used at once.
type Reader struct {
	Redis  redis.UniversalClient
	Layout *Layout
}

// Entries reads and decodes a shard's entries from firstID to lastID, both included. It leaves out what can't be read,
// what the shard's head refutes, and what is gone.
func (r *Reader) Entries(ctx context.Context, shard int, firstID, lastID string) ([]stream.Entry, error) {
	s := Of(r.Redis, r.Layout.Shard(shard))
	raw, err := s.rangeAll(ctx, firstID, lastID)
	if err != nil {
		return nil, err
	}
	entries, _, _, err := s.Decode(ctx, raw)
	return entries, err
}
