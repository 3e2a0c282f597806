package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

var (
	replayScript   = newDrainScript("replay")
	replayedScript = newDrainScript("replayed")
)

// Replay is the state of a named replay on a shard.
type Replay struct {
	Covers string
	Last   int64 // seq
	Next   int64 // the seq where the next run continues; 0 for the first seq
	// Begun is when the first run began, and Epoch is the shard's epoch then.
	Begun time.Time
	Epoch int64
	// Ended means that a run reached the end without failures. The next run then starts at the first seq again. Only
	// LookUpReplay sets it.
	Ended bool
}

// BeginReplay begins a named replay on a shard. It covers events up to seq last; 0 means the shard's present last
// seq. If the replay exists, BeginReplay ignores covers and last, and returns the stored replay.
func (k *Shard) BeginReplay(ctx context.Context, name, covers string, last int64) (Replay, error) {
	reply, err := k.run(ctx, replayScript, []string{k.Keys.Replay(name), k.Keys.Meta()}, []any{covers, last})
	if err != nil {
		return Replay{}, err
	}
	r := replyReader{rest: reply}
	out := Replay{Covers: r.string(), Last: r.int64(), Next: r.int64(), Begun: time.UnixMilli(r.int64()).UTC(), Epoch: r.int64()}
	return out, r.done(replayScript)
}

// Replayed records the seq at which the next run of a replay continues; 0 means the first seq.
func (k *Shard) Replayed(ctx context.Context, name string, next int64) error {
	reply, err := k.run(ctx, replayedScript, []string{k.Keys.Replay(name)}, []any{next})
	if err != nil {
		return err
	}
	r := replyReader{rest: reply}
	r.int64()
	return r.done(replayedScript)
}

// LookUpReplay returns the state of a named replay on a shard, or false if the replay does not exist there. It writes
// nothing.
func (k *Shard) LookUpReplay(ctx context.Context, name string) (Replay, bool, error) {
	v, err := k.rdb.HMGet(ctx, k.Keys.Replay(name), "covers", "last", "next", "begun", "epoch").Result()
	if err != nil {
		return Replay{}, false, fmt.Errorf("read %s: %w", k.Keys.Replay(name), Classify(err))
	}
	covers, ok := v[0].(string)
	if !ok {
		return Replay{}, false, nil
	}
	last, _ := v[1].(string) // absent: refused below
	next, noted := v[2].(string)
	if !noted {
		next = "0"
	}
	begun, _ := v[3].(string)
	epoch, _ := v[4].(string)
	r := replyReader{rest: []string{last, next, begun, epoch}}
	out := Replay{Covers: covers, Last: r.int64(), Next: r.int64(), Begun: time.UnixMilli(r.int64()).UTC(), Epoch: r.int64()}
	out.Ended = noted && out.Next == 0
	return out, true, r.err
}

// FindReplays returns the names of all replays, each with the shards that have it. It scans all keys of each server
// once.
func (s *Store) FindReplays(ctx context.Context) (map[string][]int, error) {
	heads := map[string]int{}
	for i := range s.Len() {
		heads[s.shards[i].Keys.Replay("")] = i
	}
	found := map[string][]int{}
	err := eachKey(ctx, s.rdb, "*}:replay:*", func(key string) {
		head, name, _ := strings.Cut(key, "}:replay:")
		shard, ok := heads[head+"}:replay:"]
		if ok && !slices.Contains(found[name], shard) { // a scan may return a key twice
			found[name] = append(found[name], shard)
		}
	})
	return found, err
}
