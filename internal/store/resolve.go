package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	resolveLetterScript = newDrainScript("resolve_letter", "bits")
	expireLettersScript = newDrainScript("expire_letters")
)

// Resolution ends a dead letter.
type Resolution struct {
	Sink, Letter string // id of the letter
	What         string // Requeued or Dropped
	// Campaign is the campaign of a grant that was requeued; else it is empty.
	Campaign string
	stream.Decision
}

// ResolveLetter moves a dead letter to the resolved ones, with the decision, in one step. It returns false if there
// is no such letter, for example because it was already moved. A requeued grant is no longer counted as dead, but as
// done.
func (k *Shard) ResolveLetter(ctx context.Context, d *Resolution) (bool, error) {
	keys := []string{k.Keys.Dead(d.Sink), k.Keys.ResolvedLetters(d.Sink)}
	if d.Campaign != "" {
		keys = append(keys, k.Keys.Campaign(d.Campaign))
	}
	reply, err := k.run(ctx, resolveLetterScript, keys, []any{d.Letter, d.What, d.By, d.Why, d.Sink})
	if err != nil {
		return false, err
	}
	return one(resolveLetterScript, reply, func(s string) (bool, error) { return s == "resolved", nil })
}

// OldLetters has the arguments of ExpireLetters.
type OldLetters struct {
	Sink string
	// Age is the age from which a record is deleted or replaced.
	Age time.Duration
	// After is the id of the record after which the call starts; empty to start at the first record.
	After string
	// Limit is how many records one call reads at most.
	Limit int
}

// ExpiredLetters is the result of ExpireLetters.
type ExpiredLetters struct {
	Last          string // id of the last record that the call read; empty if it read none
	Read, Deleted int    // Deleted counts the deleted and the replaced records
}

// ExpireLetters deletes old records of requeued letters. It replaces old records of dropped grants by records without
// the user, which audits and replays need.
func (k *Shard) ExpireLetters(ctx context.Context, o *OldLetters) (ExpiredLetters, error) {
	reply, err := k.run(ctx, expireLettersScript, []string{k.Keys.ResolvedLetters(o.Sink)},
		[]any{o.Age.Milliseconds(), o.After, o.Limit})
	if err != nil {
		return ExpiredLetters{}, err
	}
	r := replyReader{rest: reply}
	out := ExpiredLetters{Last: r.string(), Read: r.int(), Deleted: r.int()}
	return out, r.done(expireLettersScript)
}

// Letters returns a sink's dead letters on a shard with ids from first to last; see Range for first and last.
func (g Group) Letters(ctx context.Context, first, last string, count int) ([]RawEntry, error) {
	return g.shard.pacedRange(ctx, g.shard.Keys.Dead(g.name), first, last, count)
}

// CountLetters returns the number of a sink's dead letters on a shard.
func (g Group) CountLetters(ctx context.Context) (int64, error) {
	n, err := g.shard.rdb.XLen(ctx, g.shard.Keys.Dead(g.name)).Result()
	if err != nil {
		return 0, fmt.Errorf("count the dead letters of %s on shard %d: %w", g.name, g.shard.Keys.Index(), Classify(err))
	}
	return n, nil
}

// ResolvedLetters returns a sink's resolved letters on a shard; see Range for first and last. Each has the fields
// letter, decision, by, why and resolved, then the fields of the dead letter.
func (g Group) ResolvedLetters(ctx context.Context, first, last string, count int) ([]RawEntry, error) {
	return g.shard.pacedRange(ctx, g.shard.Keys.ResolvedLetters(g.name), first, last, count)
}

func (k *Shard) pacedRange(ctx context.Context, key, first, last string, count int) ([]RawEntry, error) {
	return paced(ctx, k.state.pace, func() ([]RawEntry, error) { return askRange(ctx, k.rdb, key, first, last, count)() })
}

// askRange sends an XRANGE by a client, or queues it in a pipeline. The function that it returns parses the reply.
func askRange(ctx context.Context, to doer, key, first, last string, count int) func() ([]RawEntry, error) {
	answer := to.Do(ctx, "XRANGE", key, first, last, "COUNT", count)
	return func() ([]RawEntry, error) {
		v, err := answer.Result()
		if err != nil {
			return nil, fmt.Errorf("read %s from %s to %s: %w", key, first, last, Classify(err))
		}
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("read %s: redis answered %T, want an array", key, v)
		}
		return rawEntries(list, 0)
	}
}

// doer is a client or a pipeline.
type doer interface {
	Do(ctx context.Context, args ...any) *redis.Cmd
}
