package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Debts has the events that each group owes to its sink. The workers of `hongbao work` keep them in the ledger, since
// Redis can lose a group. All methods are safe for concurrent use.
type Debts interface {
	// Owe records that the group owes all events of a shard from the seq first on. It changes nothing if the group owes
	// the newest events already.
	Owe(ctx context.Context, group string, shard int, first int64) error
	// Owed returns what each group owes on a shard. A group that is not among them owes every event.
	Owed(ctx context.Context, shard int) (map[string]stream.Owed, error)
	// EndOwing records that a removed group owes no event after the seq last. It changes nothing if gone, which asks Redis,
	// reports that the group exists again.
	EndOwing(ctx context.Context, group string, shard int, last int64, gone func(context.Context) (bool, error)) error
}

// errUnowed says that what a new group owes is not recorded, so the worker does not read yet.
var errUnowed = errors.New("the worker reads nothing before that is recorded")

// owe records what the group owes, before the worker reads. A group that has read nothing owes what is in the stream now.
// If a worker dies between the creation and the record, the next one finds the group in this state. A group that has
// read something, and has no record, is from a build that kept none: it owes every event. A group that owes every event
// needs no record to read: a later start records it.
func (s *shard) owe(ctx context.Context) error {
	if s.cfg.Debts == nil {
		return nil
	}
	begin, err := s.redis.Group(s.cfg.Group).Begin(ctx)
	switch {
	case err != nil:
		return err
	case !begin.Exists: // Redis has no memory for it
		return fmt.Errorf("%w: group %s on shard %d", store.ErrNoGroup, s.cfg.Group, s.index)
	}
	first := max(begin.First, 1) // 0 if it has read something
	err = s.cfg.Debts.Owe(ctx, s.cfg.Group, s.index, first)
	if err != nil && first > 1 {
		return fmt.Errorf("%w: %w", err, errUnowed)
	}
	if err != nil {
		s.log.Warn("what the group owes is not recorded; the next start tries again", zap.Error(err))
	}
	return nil
}

// others returns the undeclared groups that must exist while the trimmer deletes entries: a sink that was removed owes
// the entries that it can't get any more, until endRemoved has recorded its end. The first time it asks Debts.
func (t *Trimmer) others(ctx context.Context, k *store.Shard, at *trimming) ([]string, error) {
	if t.cfg.Debts == nil || at.others != nil {
		return at.others, nil
	}
	owed, err := t.cfg.Debts.Owed(ctx, k.Index())
	if err != nil {
		return nil, err
	}
	at.others, at.removed = []string{}, nil
	for name, o := range owed {
		if o.Now() {
			at.expect(t.cfg.Groups, name)
		} else if !slices.Contains(t.cfg.Groups, name) {
			at.removed = append(at.removed, name)
		}
	}
	return at.others, nil
}

// expect adds an undeclared group to those that must exist.
func (at *trimming) expect(declared []string, name string) {
	if at.others != nil && !slices.Contains(declared, name) && !slices.Contains(at.others, name) {
		at.others = append(at.others, name)
	}
}

// endRemoved records that the undeclared groups among the missing ones owe nothing more, and returns the declared ones.
func (t *Trimmer) endRemoved(ctx context.Context, k *store.Shard, at *trimming, missing []string) (declared []string,
	err error) {
	for _, name := range missing {
		if slices.Contains(t.cfg.Groups, name) {
			declared = append(declared, name)
			continue
		}
		last, ended, err := k.Group(name).EndOwing(ctx, t.cfg.Debts)
		if err != nil {
			return nil, err
		}
		if ended {
			t.log.Warn("a sink was removed: it gets no later event, also if it is added again", zap.String("sink", name),
				zap.Int("shard", k.Index()), zap.Int64("last", last))
		}
		at.removed = append(at.removed, name)
		at.others = slices.DeleteFunc(at.others, func(s string) bool { return s == name })
	}
	return declared, nil
}

// keepAll is a retention that keeps every entry.
const keepAll = time.Duration(math.MaxInt64)
