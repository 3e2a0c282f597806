package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Debts has the events that groups owe to their sinks; see consumer.Debts.
type Debts interface {
	Owed(ctx context.Context, shard int) (map[string]stream.Owed, error)
	EndOwing(ctx context.Context, group string, shard int, last int64, gone func(context.Context) (bool, error)) error
}

// Remove deletes the consumer group with its pending entries. Its workers must have ended, because a worker creates its
// group again. The done bits stay until their events have left the stream: without them, a sink that is added again
// would get these grants twice. Remove reports whether this call deleted the group.
func (g Group) Remove(ctx context.Context) (bool, error) {
	n, err := g.shard.rdb.XGroupDestroy(ctx, g.shard.Keys.Events(), g.name).Result()
	if err != nil && !strings.Contains(err.Error(), "requires the key to exist") {
		return false, fmt.Errorf("delete group %s of shard %d: %w", g.name, g.shard.Index(), Classify(err))
	}
	return n > 0, nil
}

// EndOwing records that a deleted group owes nothing more, and returns the last event that it owed. It has finished all
// events that it owed up to the first one without a done bit. ended is false if the record says so already, or if no
// sink has had the name.
func (g Group) EndOwing(ctx context.Context, d Debts) (last int64, ended bool, err error) {
	owed, err := d.Owed(ctx, g.shard.Index())
	if err != nil {
		return 0, false, err
	}
	o := owed[g.name]
	if o == nil || !o.Now() { // the group of another program, or recorded before
		return 0, false, nil
	}
	if last, err = g.DoneUpTo(ctx, o[len(o)-1].First); err != nil {
		return 0, false, err
	}
	return last, true, d.EndOwing(ctx, g.name, g.shard.Index(), last, func(ctx context.Context) (bool, error) {
		begin, err := g.Begin(ctx)
		return !begin.Exists, err
	})
}
