package walk_test

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
)

// learn processes a script's answer as a producer does: it updates the producer's knowledge of the winners. If all
// packets are gone and the user is certainly not among the winners, it ends the walk.
func (w *world) learn(a *agent, g *hongbao.Grab, step walk.NextStep, outcome hongbao.Outcome, terms *store.LimitPeriods,
	asked time.Time) walk.NextStep {
	said := winners.PlaceAnswer{Outcome: outcome, Asked: asked}
	if outcome == hongbao.OutcomeSoldOut || outcome == hongbao.OutcomeLimitReached {
		said.Revision, said.Generation = terms.Revision(), terms.Generation()
	}
	a.known.Answered(a.memory, &said, w.now)
	if outcome != hongbao.OutcomeSoldOut {
		return step
	}
	revision := said.Revision
	if step == walk.Onward && a.known.CertainlySoldOut(g.User, w.now) {
		w.known++
		return walk.Answered
	}
	early := w.bug == "a filter before all is empty"
	if !a.looks && said.Generation >= a.memory.Newest() && a.known.Wants(revision) &&
		(early || a.memory.Final(w.now, time.Time{})) {
		a.looks = true
		w.start(a, func(ctx context.Context, _ func() bool) func() error {
			err := w.fetchFilter(ctx, a, revision)
			for n := 0; n < 5 && hongbao.IsOutage(err) && !errors.Is(err, errStopped); n++ {
				err = w.fetchFilter(ctx, a, revision)
			}
			a.looks = false
			if hongbao.IsOutage(err) || errors.Is(err, store.ErrNotFinal) || errors.Is(err, store.ErrOvertaken) {
				err = nil
			}
			return func() error { return err }
		})
	}
	return step
}

// fetchFilter fetches the filter of the winners for a producer. If there is no filter yet, fetchFilter builds one, as a
// worker would.
func (w *world) fetchFilter(ctx context.Context, a *agent, revision string) error {
	build := func() error {
		b, err := winners.NewBuilder(winners.BuilderConfig{Store: w.store, Locks: noLocks{}, Log: zap.NewNop(),
			Every: time.Second})
		if err != nil {
			return err
		}
		return b.Build(ctx, w.c.ID, revision)
	}
	if w.bug == "a filter before all is empty" {
		build = func() error { return w.misbuild(ctx, revision) }
	}
	f, err := winners.Fetch(ctx, w.places[0], revision)
	if f == nil && err == nil {
		if err := build(); err != nil {
			return err
		}
		f, err = winners.Fetch(ctx, w.places[0], revision)
	}
	if f != nil {
		a.known.Use(f)
	}
	return err
}

// noLocks replaces the lock around a build: in the model only one task builds at a time.
type noLocks struct{}

func (noLocks) Do(context.Context, string, func(context.Context) error) error { return nil }

// misbuild is a planted bug: it builds the filter from the users who have packets now, although packets may be left.
func (w *world) misbuild(ctx context.Context, revision string) error {
	var users []string
	for _, k := range w.places {
		users = append(users, w.rdb.HKeys(ctx, k.Keys.Receipts(w.c.ID)).Val()...)
	}
	f, err := winners.New(revision, users)
	if err != nil {
		return store.ErrNotFinal // no user has a packet yet
	}
	return f.Store(ctx, w.places[0])
}
