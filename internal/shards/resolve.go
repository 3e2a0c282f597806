package shards

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

var resolveLetterScript = newScript("resolve_letter")

// What a person decides about a dead letter.
const (
	Requeued = "requeued" // it was delivered to its sink after all
	Dropped  = "dropped"  // it is not to be delivered
)

// Decision ends a dead letter.
type Decision struct {
	Sink, Letter string // id of the letter
	What         string // Requeued or Dropped
	By, Why      string
}

// ResolveLetter moves a dead letter to the resolved ones, with the decision, in one step. It tells whether that was done
// now: false if the letter is not there (any more).
func (k *Shard) ResolveLetter(ctx context.Context, d *Decision) (bool, error) {
	reply, err := k.run(ctx, resolveLetterScript, []string{k.Keys.Dead(d.Sink), k.Keys.Resolved(d.Sink)},
		[]any{d.Letter, d.What, d.By, d.Why})
	if err != nil {
		return false, err
	}
	return one(resolveLetterScript, reply, func(s string) (bool, error) { return s == "resolved", nil })
}

// Letters reads a shard's dead letters of a sink from first to last as Range reads entries.
func (k *Shard) Letters(ctx context.Context, sink, first, last string, count int) ([]RawEntry, error) {
	return rangeOf(ctx, k.rdb, k.Keys.Dead(sink), first, last, count)
}

// ResolvedLetters reads a shard's resolved letters of a sink as Range reads entries: the fields letter, decision, by, why
// and resolved, then those of the letter.
func (k *Shard) ResolvedLetters(ctx context.Context, sink, first, last string, count int) ([]RawEntry, error) {
	return rangeOf(ctx, k.rdb, k.Keys.Resolved(sink), first, last, count)
}

func rangeOf(ctx context.Context, rdb redis.UniversalClient, key, first, last string, count int) ([]RawEntry, error) {
	return askRange(ctx, rdb, key, first, last, count)()
}

// askRange asks for entries, by a pipeline maybe, and gives what reads the answer.
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
