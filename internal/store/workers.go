package store

import (
	"context"
	"fmt"
)

// Workers returns the workers of a group on the shard. There are none before the stream exists.
func (k *Shard) Workers(ctx context.Context, group string) ([]Worker, error) {
	var all GroupStatus
	exists, err := k.rdb.Exists(ctx, k.Keys.Events()).Result()
	if err != nil {
		return nil, fmt.Errorf("workers of group %s: %w", group, Classify(err))
	}
	if exists > 0 {
		err = addConsumers(group, k.rdb.XInfoConsumers(ctx, k.Keys.Events(), group), &all)
	}
	return all.Workers, err
}
