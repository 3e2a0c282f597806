package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// CountJournal returns the number of the journal's entries that wait in Redis for the ledger.
func (s *Store) CountJournal(ctx context.Context) (int64, error) {
	n, err := s.rdb.LLen(ctx, s.Journal()).Result()
	return n, s.journalError(err)
}

// PushJournal adds an entry. It waits behind the older ones.
func (s *Store) PushJournal(ctx context.Context, entry string) error {
	return s.journalError(s.rdb.LPush(ctx, s.Journal(), entry).Err())
}

// OldestJournal returns the oldest waiting entries, at most n.
func (s *Store) OldestJournal(ctx context.Context, n int64) ([]string, error) {
	list, err := s.rdb.LRange(ctx, s.Journal(), -n, -1).Result()
	return list, s.journalError(err)
}

// RemoveJournal removes entries that no longer wait. It ignores an entry that another process has removed.
func (s *Store) RemoveJournal(ctx context.Context, entries []string) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, entry := range entries {
			p.LRem(ctx, s.Journal(), -1, entry)
		}
		return nil
	})
	return s.journalError(err)
}

func (s *Store) journalError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read or write the journal's list %s in Redis: %w", s.Journal(), Classify(err))
}
