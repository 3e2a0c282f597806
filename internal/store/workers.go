package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// WorkerEntries has the pending entries of one worker of a group on a shard. It was read in the same transaction as
// Leader.
type WorkerEntries struct {
	Entries []WorkerEntry
	// Leader is the consumer that has the lead and reclaims the entries of dead workers; empty if no consumer has it.
	Leader string
}

// WorkerEntry is a pending entry of a worker. Idle is the time since the worker last renewed its lease on it.
type WorkerEntry struct {
	ID   string
	Idle time.Duration
}

// maxWorkerEntries is the most entries that PendingOf returns. A worker has far fewer: the consumer limits its entries.
const maxWorkerEntries = 100_000

// PendingOf returns the pending entries of one worker, and the worker with the lead to reclaim.
func (k *Shard) PendingOf(ctx context.Context, group, consumer string) (WorkerEntries, error) {
	var pending *redis.XPendingExtCmd
	var leader *redis.StringCmd
	_, _ = k.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		leader = p.Get(ctx, k.Keys.Lead(group))
		pending = p.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: k.Keys.Events(), Group: group, Start: "-", End: "+",
			Count: maxWorkerEntries, Consumer: consumer})
		return nil
	})
	if err := pending.Err(); err != nil { // includes an error of the EXEC
		return WorkerEntries{}, fmt.Errorf("read the entries of worker %s of group %s: %w", consumer, group, Classify(err))
	}
	mine := WorkerEntries{Leader: leader.Val()} // a missing leader is no error
	for _, row := range pending.Val() {
		mine.Entries = append(mine.Entries, WorkerEntry{row.ID, row.Idle})
	}
	return mine, nil
}

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

// ScriptNames maps the SHA-1 of each script to its name. The SHA-1s depend on the server's run; see Server.RunID.
func ScriptNames(runID string) map[string]string {
	names := make(map[string]string, 2*len(scripts))
	for _, plain := range []bool{false, true} {
		for s, sha := range textsFor(runID, plain).sha {
			names[sha] = s.name
		}
	}
	return names
}
