package shards

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/lua"
)

// Reader reads the streams of a deployment. It may be used at once.
type Reader struct {
	Redis redis.UniversalClient
	Space *lua.Space
}

// Entries reads and decodes a shard's entries from firstID to lastID, both included; forged ones, and entries that are gone, are
// left out.
func (r *Reader) Entries(ctx context.Context, shard int, firstID, lastID string) ([]hongbao.Entry, error) {
	raw, err := Of(r.Redis, r.Space.Shard(shard)).rangeAll(ctx, firstID, lastID)
	if err != nil {
		return nil, err
	}
	real, _, _, err := NewForgeries(r.Redis, r.Space, shard).Real(ctx, raw)
	entries := make([]hongbao.Entry, len(real))
	for i, e := range real {
		entries[i] = *e
	}
	return entries, err
}
