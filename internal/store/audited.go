package store

import (
	"context"
	"fmt"
	"time"
)

// Audited is the stored result of the last whole audit.
type Audited struct {
	Started     time.Time
	Differences int64
	// DeadLetters is how many of the differences are dead letters.
	DeadLetters int64
}

// SetAudited stores the result of a whole audit on the first shard. An older build's audit does not write the number of
// dead letters, so that number has the start of its audit beside it.
func (s *Store) SetAudited(ctx context.Context, a Audited) error {
	started := a.Started.UnixMilli()
	err := s.rdb.HSet(ctx, s.shards[0].Keys.Audit(), "started", started, "differences", a.Differences,
		"dead_letters", a.DeadLetters, "dead_letters_of", started).Err()
	if err != nil {
		return fmt.Errorf("store the result of the audit: %w", Classify(err))
	}
	return nil
}

// LastAudit returns the result of the last whole audit; false if there was none.
func (s *Store) LastAudit(ctx context.Context) (Audited, bool, error) {
	var has struct {
		Started       int64 `redis:"started"`
		Differences   int64 `redis:"differences"`
		DeadLetters   int64 `redis:"dead_letters"`
		DeadLettersOf int64 `redis:"dead_letters_of"`
	}
	cmd := s.rdb.HGetAll(ctx, s.shards[0].Keys.Audit())
	if err := cmd.Err(); err != nil {
		return Audited{}, false, fmt.Errorf("read the result of the last audit: %w", Classify(err))
	}
	if err := cmd.Scan(&has); err != nil {
		return Audited{}, false, fmt.Errorf("%s: %w", s.shards[0].Keys.Audit(), err)
	}
	if has.DeadLettersOf != has.Started {
		has.DeadLetters = 0 // an older build's audit was the last one: all differences count
	}
	return Audited{time.UnixMilli(has.Started), has.Differences, has.DeadLetters}, has.Started > 0, nil
}
