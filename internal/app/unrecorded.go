package app

import (
	"context"
	"errors"

	"github.com/hongbao-project/hongbao/internal/store"
)

// UnrecordedShard is a shard whose workers wait until the ledger has recorded its opening.
type UnrecordedShard struct {
	Shard int    `json:"shard" doc:"The shard's number."`
	Why   string `json:"why" doc:"Who opened the shard, when and why, as text."`
}

// Unrecorded returns the shards that were opened without the ledger. It ignores shards that can't be read, because
// other checks report these.
func Unrecorded(ctx context.Context, st *store.Store) []UnrecordedShard {
	list := []UnrecordedShard{}
	errs := store.Each(st.Len(), AsksAtOnce, func(i int) error { return st.Shard(i).CheckRecorded(ctx) })
	for i, err := range errs {
		if errors.Is(err, store.ErrUnrecorded) {
			list = append(list, UnrecordedShard{i, err.Error()})
		}
	}
	return list
}

// AsksAtOnce bounds how many shards are read concurrently, so that grabs have enough connections.
const AsksAtOnce = 8
