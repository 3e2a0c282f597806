package store

import (
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/model"
)

// Audited is the stored result of the last whole audit.
type Audited struct {
	Started     time.Time
	Differences int64
	// DeadLetters is how many of the differences are dead letters.
	DeadLetters int64
}

// SetAuditing stores which audit runs or was the last one, on the first shard. The caller has the lock of audits.
func (s *Store) SetAuditing(ctx context.Context, r model.RunningAudit) error {
	var ended int64
	if !r.Ended.IsZero() {
		ended = r.Ended.UnixMilli()
	}
	err := s.rdb.HSet(ctx, s.shards[0].Keys.Audit(), "running_since", r.Since.UnixMilli(), "running_by", r.By,
		"running_request", r.Request, "running_ended", ended).Err()
	if err != nil {
		return fmt.Errorf("store that an audit runs: %w", Classify(err))
	}
	return nil
}

// Auditing returns what the last SetAuditing stored.
func (s *Store) Auditing(ctx context.Context) (model.RunningAudit, error) {
	var has struct {
		Since   int64  `redis:"running_since"`
		By      string `redis:"running_by"`
		Request string `redis:"running_request"`
		Ended   int64  `redis:"running_ended"`
	}
	err := s.rdb.HMGet(ctx, s.shards[0].Keys.Audit(), "running_since", "running_by", "running_request",
		"running_ended").Scan(&has)
	if err != nil {
		return model.RunningAudit{}, fmt.Errorf("read which audit runs: %w", Classify(err))
	}
	r := model.RunningAudit{Since: time.UnixMilli(has.Since).UTC(), By: has.By, Request: has.Request}
	if has.Ended != 0 {
		r.Ended = time.UnixMilli(has.Ended).UTC()
	}
	return r, nil
}

// SetAudited stores the result of a whole audit on the first shard.
func (s *Store) SetAudited(ctx context.Context, a Audited) error {
	err := s.rdb.HSet(ctx, s.shards[0].Keys.Audit(), "started", a.Started.UnixMilli(), "differences", a.Differences,
		"dead_letters", a.DeadLetters).Err()
	if err != nil {
		return fmt.Errorf("store the result of the audit: %w", Classify(err))
	}
	return nil
}

// LastAudit returns the result of the last whole audit; false if there was none.
func (s *Store) LastAudit(ctx context.Context) (Audited, bool, error) {
	var has struct {
		Started     int64 `redis:"started"`
		Differences int64 `redis:"differences"`
		DeadLetters int64 `redis:"dead_letters"`
	}
	cmd := s.rdb.HGetAll(ctx, s.shards[0].Keys.Audit())
	if err := cmd.Err(); err != nil {
		return Audited{}, false, fmt.Errorf("read the result of the last audit: %w", Classify(err))
	}
	if err := cmd.Scan(&has); err != nil {
		return Audited{}, false, fmt.Errorf("%s: %w", s.shards[0].Keys.Audit(), err)
	}
	return Audited{time.UnixMilli(has.Started), has.Differences, has.DeadLetters}, has.Started > 0, nil
}
