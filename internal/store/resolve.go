package store

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var (
	resolveLetterScript = newScript("resolve_letter")
	expireLettersScript = newDrainScript("expire_letters")
)

// The decisions of a person about a dead letter.
const (
	Requeued = "requeued" // the letter was delivered to its sink after all
	Dropped  = "dropped"  // the letter is not to be delivered
)

// Resolution ends a dead letter.
type Resolution struct {
	Sink, Letter string // id of the letter
	What         string // Requeued or Dropped
	stream.Decision
}

// ResolveLetter moves a dead letter to the resolved ones, with the decision, in one step. It reports whether it moved
// the letter now: false if the letter is not there (any more).
func (k *Shard) ResolveLetter(ctx context.Context, d *Resolution) (bool, error) {
	reply, err := k.run(ctx, resolveLetterScript, []string{k.Keys.Dead(d.Sink), k.Keys.Resolved(d.Sink)},
		[]any{d.Letter, d.What, d.By, d.Why})
	if err != nil {
		return false, err
	}
	return one(resolveLetterScript, reply, func(s string) (bool, error) { return s == "resolved", nil })
}

// OldLetters are records of resolved letters that may be too old to keep.
type OldLetters struct {
	Sink string
	// Age is how old a record must be.
	Age time.Duration
	// After is the record after which the call begins; empty for the first one.
	After string
	// Limit is how many records one call reads at most.
	Limit int
}

// ExpiredLetters is the result of ExpireLetters.
type ExpiredLetters struct {
	Last          string // the last record that was read; empty for none
	Read, Deleted int
}

// ExpireLetters deletes old records of requeued letters. Records of dropped letters stay, because audits and replays
// need them.
func (k *Shard) ExpireLetters(ctx context.Context, o *OldLetters) (ExpiredLetters, error) {
	reply, err := k.run(ctx, expireLettersScript, []string{k.Keys.Resolved(o.Sink)},
		[]any{o.Age.Milliseconds(), o.After, o.Limit})
	if err != nil {
		return ExpiredLetters{}, err
	}
	r := replyReader{rest: reply}
	out := ExpiredLetters{Last: r.string(), Read: r.int(), Deleted: r.int()}
	return out, r.done(expireLettersScript)
}

// Letters returns a shard's dead letters of a sink from first to last, as Range returns entries.
func (k *Shard) Letters(ctx context.Context, sink, first, last string, count int) ([]RawEntry, error) {
	return rangeOf(ctx, k.rdb, k.Keys.Dead(sink), first, last, count)
}

// ResolvedLetters returns a shard's resolved letters of a sink, as Range returns entries. Each has the fields letter,
// decision, by, why and resolved, then those of the letter.
func (k *Shard) ResolvedLetters(ctx context.Context, sink, first, last string, count int) ([]RawEntry, error) {
	return rangeOf(ctx, k.rdb, k.Keys.Resolved(sink), first, last, count)
}

func rangeOf(ctx context.Context, rdb redis.UniversalClient, key, first, last string, count int) ([]RawEntry, error) {
	return askRange(ctx, rdb, key, first, last, count)()
}

// askRange sends or queues a read of entries, by a client or a pipeline. It returns the function that reads the
// answer.
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
