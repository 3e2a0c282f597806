package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hand is what one worker of a group has in hand on a shard, and which one leads in reclaiming at that instant.
type Hand struct {
	Entries []InHand
	// Leader is the consumer that gets the entries of the dead; empty if none leads.
	Leader string
}

// InHand is an entry that a worker has. Idle is how long ago it renewed its lease on it.
type InHand struct {
	ID   string
	Idle time.Duration
}

// handAtMost bounds the entries that Hand gives: far above consumer's bound of what a worker has in hand.
const handAtMost = 100_000

// Hand returns what one worker has in hand.
func (k *Shard) Hand(ctx context.Context, group, consumer string) (Hand, error) {
	var pending *redis.XPendingExtCmd
	var leader *redis.StringCmd
	_, _ = k.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		leader = p.Get(ctx, k.Keys.Lead(group))
		pending = p.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: k.Keys.Events(), Group: group, Start: "-", End: "+",
			Count: handAtMost, Consumer: consumer})
		return nil
	})
	if err := pending.Err(); err != nil { // of the exec, too
		return Hand{}, fmt.Errorf("read what worker %s of group %s has in hand: %w", consumer, group, Classify(err))
	}
	hand := Hand{Leader: leader.Val()} // none is no error
	for _, row := range pending.Val() {
		hand.Entries = append(hand.Entries, InHand{row.ID, row.Idle})
	}
	return hand, nil
}

// Workers returns the workers of a group on the shard: none, as long as there is no stream.
func (k *Shard) Workers(ctx context.Context, group string) ([]Worker, error) {
	var all GroupStatus
	there, err := k.rdb.Exists(ctx, k.Keys.Events()).Result()
	if err != nil {
		return nil, fmt.Errorf("workers of group %s: %w", group, Classify(err))
	}
	if there > 0 {
		err = addConsumers(group, k.rdb.XInfoConsumers(ctx, k.Keys.Events(), group), &all)
	}
	return all.Workers, err
}

// ScriptNames names the scripts by the SHA-1 by which one run of a server knows them; see Server.RunID.
func ScriptNames(runID string) map[string]string {
	names := make(map[string]string, 2*len(scripts))
	for _, plain := range []bool{false, true} {
		for s, sha := range textsFor(runID, plain).sha {
			names[sha] = s.name
		}
	}
	return names
}
