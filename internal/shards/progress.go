package shards

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/lua"
)

var keptScript = newDrainScript("kept")

// GroupFinished tells up to which event a consumer group has finished all on a shard, at most seq, which must be an
// event that the shard already had when it is called. Whatever moves meanwhile, the answer is never too high. exists is
// false if there is no such group, or no stream yet.
func GroupFinished(ctx context.Context, rdb redis.UniversalClient, space *lua.Space, shard int, group string, seq int64) (finished int64, exists bool, err error) {
	k := space.Shard(shard)
	there, err := rdb.Exists(ctx, k.Events()).Result()
	if err != nil || there == 0 {
		return 0, false, Classify(err)
	}
	groups, err := rdb.XInfoGroups(ctx, k.Events()).Result()
	if err != nil {
		return 0, false, fmt.Errorf("groups of %s: %w", k.Events(), Classify(err))
	}
	for i := range groups {
		g := &groups[i]
		if g.Name != group {
			continue
		}
		from := "(" + g.LastDeliveredID
		if g.Pending > 0 {
			pending, err := rdb.XPending(ctx, k.Events(), group).Result()
			if err != nil {
				return 0, true, fmt.Errorf("pending entries of group %s: %w", group, Classify(err))
			}
			if pending.Count > 0 { // else all of them were finished just now
				from = pending.Lower
			}
		}
		first, err := seqFrom(ctx, rdb, space, shard, from)
		if err != nil {
			return 0, true, err
		}
		if first > 0 {
			seq = min(seq, first-1)
		}
		return seq, true, nil
	}
	return 0, false, nil
}

// FirstKept gives the seq of the first real entry that a shard's stream still has; 0 if it has none.
func FirstKept(ctx context.Context, rdb redis.UniversalClient, space *lua.Space, shard int) (int64, error) {
	return seqFrom(ctx, rdb, space, shard, "-")
}

// SetKept notes that all events below seq were finished by every group and have left the stream, so that their done bits may go:
// from then on an entry that claims one of them is a forged one, and GroupDone takes them for done. A lower seq than the noted one
// changes nothing.
func (k *Shard) SetKept(ctx context.Context, seq int64) error {
	_, err := keptScript.run(ctx, k.rdb, []string{k.Keys.Meta()}, []any{seq})
	return err
}

// seqFrom is the first seq at or after an id; 0 if there is none. Entries that can't be read, and forged ones, are passed over: one
// that stands before the first real one would make the answer too high.
func seqFrom(ctx context.Context, rdb redis.UniversalClient, space *lua.Space, shard int, from string) (int64, error) {
	const page = 16
	f := NewForgeries(rdb, space, shard)
	for {
		raw, err := Of(rdb, f.keys).Range(ctx, from, "+", page)
		if err != nil {
			return 0, err
		}
		real, _, _, err := f.Real(ctx, raw)
		if err != nil {
			return 0, err
		}
		if len(real) > 0 {
			return real[0].Seq, nil
		}
		if len(raw) < page {
			return 0, nil
		}
		from = "(" + raw[len(raw)-1].ID
	}
}
