package consumer

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// finish records the results of a batch: it sets done bits, acks entries, writes dead letters and parks entries.
// results and stopped come from deliver. left has the items with grants for which the handler did not answer.
func (s *shard) finish(l *lease, batch []item, results []error, stopped error) (left []item, err error) {
	if err := s.ack(l, batch, results); err != nil {
		return batch, err
	}
	for it, results := range byItem(batch, results) {
		ended := allDone(results)
		if !ended && err == nil {
			ended, err = s.parkOrDeadLetter(l.ctx, it, results, mustWait(stopped))
		}
		if !ended {
			left = append(left, *it)
		}
	}
	return left, err
}

// byItem iterates over the items, each with the results of its open grants.
func byItem(batch []item, results []error) iter.Seq2[*item, []error] {
	return func(yield func(*item, []error) bool) {
		for i := range batch {
			n := len(batch[i].open)
			if !yield(&batch[i], results[:n]) {
				return
			}
			results = results[n:]
		}
	}
}

func allDone(results []error) bool {
	return !slices.ContainsFunc(results, func(err error) bool { return err != nil })
}

// ack sets the done bits of the grants that are done, and acks the entries without remaining grants.
func (s *shard) ack(l *lease, batch []item, results []error) error {
	var runs []stream.CampaignRange
	var ids []string
	grants := 0
	for it, results := range byItem(batch, results) {
		for i, err := range results {
			if err == nil {
				runs = stream.AppendEvent(runs, it.open[i].Campaign, it.open[i].Seq)
				grants++
			}
		}
		if allDone(results) {
			ids = append(ids, it.ID)
			if it.entry.Kind != stream.EntryGrant { // a close and other entries without grants are done too
				runs = append(runs, stream.CampaignRange{SeqRange: stream.SeqRange{First: it.entry.Seq, Last: it.entry.Last()}})
			}
		}
	}
	if len(runs)+len(ids) == 0 {
		return nil
	}
	err := s.ackPatiently(l, runs, ids)
	if err == nil {
		s.c.count.done.Add(int64(grants))
	}
	return err
}

// ackPatiently runs the ack script, and retries while Redis is unreachable, for less than the length of a lease. The
// script is idempotent, so a retry after an unknown result is safe.
func (s *shard) ackPatiently(l *lease, runs []stream.CampaignRange, ids []string) error {
	var last error
	policy := retry.Backoff(min(50*time.Millisecond, s.cfg.Lease/4), s.cfg.Lease/4, s.cfg.Lease*2/3)
	return retry.Do(l.ctx, policy, func() (again bool, err error) {
		if last != nil {
			s.log.Warn("ack failed; trying again", zap.Error(last))
		}
		_, last = s.group().Ack(context.WithoutCancel(l.ctx), runs, ids)
		return hongbao.ClassOf(last) != hongbao.ClassBroken && !errors.Is(last, store.ErrStale), last
	})
}

// mustWait reports whether the delivery was stopped for a reason that no grant caused. The unanswered grants then only
// wait.
func mustWait(stopped error) bool {
	return errors.Is(stopped, errLater) || errors.Is(stopped, errPaused) || errors.Is(stopped, errNoCall)
}

// parkOrDeadLetter makes dead letters of the item's grants that failed permanently or too often. It parks the item if
// other grants remain. An item with unanswered grants normally stays with the worker, and ended is false.
//
// If the unanswered grants only wait and another grant has failed, the item is parked, and the attempt counts.
// Otherwise a sink with a rate limit would retry the failed grant without end. If all failed grants only wait for the
// claim of a live worker, the item loses no attempt.
func (s *shard) parkOrDeadLetter(ctx context.Context, it *item, results []error, waits bool) (ended bool, err error) {
	var dead []int    // indexes in it.open of the grants that become dead letters
	var again []error // errors of the grants to retry
	unanswered, attempts := 0, it.Attempt-1
	for i, err := range results {
		err = s.orPaused(&it.open[i], err)
		waiting := hongbao.IsWaiting(err)
		switch {
		case err == nil:
		case errors.Is(err, errUnanswered):
			unanswered++
		case waiting || retry.MayHelp(err) && it.Attempt < s.cfg.MaxAttempts:
			again = append(again, err)
			if !waiting {
				attempts = it.Attempt
			}
		default:
			dead = append(dead, i)
		}
	}
	for n, i := range dead {
		g := &it.open[i]
		s.log.Error("a grant becomes a dead letter", zap.String("code", "dead_letter"), zap.String("event", g.EventID()),
			zap.String("campaign", g.Campaign), zap.Int64("packet", g.Packet), zap.Int64("attempt", it.Attempt),
			zap.Error(results[i]))
		last := n == len(dead)-1 && len(again)+unanswered == 0
		if _, err := s.deadLetter(ctx, it, store.Letter{Grant: g, Last: last}, results[i]); err != nil {
			return false, err
		}
	}
	failed := attempts == it.Attempt
	if unanswered > 0 && !(waits && failed) || len(again) == 0 {
		return unanswered == 0, nil
	}
	n, err := s.group().Park(context.WithoutCancel(ctx), s.cfg.Consumer,
		[]store.Parking{s.parkingOf(it, again[0], attempts)})
	if err != nil || n == 0 {
		// The entry has another owner or was deleted from the stream; the next worker that takes it finds that out.
		// After an error the entry stays pending, and its attempt counts.
		return true, err
	}
	s.c.count.parked.Add(1)
	if errors.Is(again[0], errCampaignPaused) {
		return true, nil // the alarm reported the pause; thousands of entries may wait
	}
	s.log.Warn("entry parked", zap.String("entry", it.ID), zap.Int64("attempt", it.Attempt), zap.Int("grants", len(again)),
		zap.Error(again[0]))
	return true, nil
}

// deadLetter writes the dead letter of one grant, or of the whole entry if l has no grant. written is false if the
// letter already existed or if this worker no longer owns the entry.
func (s *shard) deadLetter(ctx context.Context, it *item, l store.Letter, why error) (written bool, err error) {
	l.Group, l.Consumer, l.EntryID, l.Attempts = s.cfg.Group, s.cfg.Consumer, it.ID, it.Attempt
	l.Class, l.Reason = hongbao.ClassOf(why), why.Error()
	written, err = s.at.DeadLetter(context.WithoutCancel(ctx), l)
	if written {
		s.c.count.dead.Add(1)
		if l.Grant != nil {
			s.countLetter(ctx, l.Grant, why)
		}
	}
	return written, err
}

// handBack makes the items available to the other workers at once, and takes no attempt. It does not change items that
// this worker no longer owns.
func (s *shard) handBack(ctx context.Context, items []item) error {
	if len(items) == 0 {
		return nil
	}
	list := make([]store.Parking, len(items))
	for i := range items {
		list[i] = store.Parking{ID: items[i].ID, Level: 0, Attempts: items[i].Attempt - 1}
	}
	n, err := s.redis.Group(s.cfg.Group).Park(context.WithoutCancel(ctx), s.cfg.Consumer, list)
	s.c.count.handedBack.Add(int64(n))
	if err != nil {
		return err // other workers reclaim the entries when the lease expires
	}
	s.log.Info("handed entries back for other workers", zap.Int("entries", n), zap.Int("lost", len(list)-n))
	return nil
}
