package publish

import (
	"context"
	"errors"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// later stops the publisher's clock and returns a function that advances it.
func later(p *Publisher) func(by time.Duration) {
	began, passed := time.Now(), time.Duration(0)
	p.now = func() time.Time { return began.Add(passed) }
	return func(by time.Duration) { passed += by }
}

// fences counts all fence records of a partition: those of sessions and those of fences.
func fences(t *testing.T, l *Log, partition int) (n int) {
	t.Helper()
	b, err := l.ends(t.Context(), partition)
	require.NoError(t, err)
	require.NoError(t, l.read(t.Context(), partition, b, func(r *record) error {
		if r.isFence() && l.own(r) {
			n++
		}
		return nil
	}))
	return n
}

// requireShown checks how many records sessions have sent to make themselves visible.
func requireShown(t *testing.T, p *Publisher, want int64) {
	t.Helper()
	require.EqualValues(t, want, fences(t, p.Log, 0))
}

// A session sends a fence record with its own numbers before its first claim, and again when its last record is old. A
// busy session needs no further fence record.
func TestSessionsAnnounceThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	pass := later(p)
	announced := int64(1)
	b.store.granted = func(stream.Claim) { requireShown(t, p, announced) }
	for range 10 {
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
		pass(AnnouncedFor)
	}
	pass(time.Second)
	announced++
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(2, 5, decided))))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
	requireShown(t, p, 2)
	require.EqualValues(t, 1, p.Stats().Sessions, "the same session continues")
}

// If a session can't send its own record, it makes no claim.
func TestNoClaimBeforeTheSessionHasShownItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))))
	later(p)(time.Minute)
	p.cfg.AttemptTime = hopeless
	fired := 0
	w.fate = func() fate { fired++; return lost }
	requireClass(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 5, decided))), 5, hongbao.ClassUnknown, true)
	require.Positive(t, fired)
	require.Zero(t, b.store.open(0))
}

// A session reads the epoch of each shard once after each record that makes it visible. It makes no claim in a shard
// for which the ledger has a later epoch.
func TestNoClaimInAShardThatGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ledger, asked := map[int]int64{0: 3, 2: 3}, map[int]int{}
	var down error
	b.cfg.Epoch = func(_ context.Context, shard int) (int64, error) {
		asked[shard]++
		return ledger[shard], down
	}
	p, _ := b.worker(t)
	pass := later(p)
	for range 2 {
		require.Nil(t, p.Handle(t.Context(), testkit.BatchIn(3, b.store.grants(0, 5, decided)))) // grants of epoch 1, batch of epoch 3
		require.Nil(t, p.Handle(t.Context(), testkit.BatchIn(3, b.store.grants(2, 5, decided))))
	}
	require.Equal(t, map[int]int{0: 1, 2: 1}, asked)

	ledger[0] = 4
	require.Nil(t, p.Handle(t.Context(), testkit.BatchIn(3, b.store.grants(0, 5, decided))), "Fence would stop this older session")
	pass(2 * AnnouncedFor)
	refused := b.store.grants(0, 5, decided)
	for range 2 {
		errs := p.Handle(t.Context(), testkit.BatchIn(3, refused))
		requireClass(t, errs, 5, hongbao.ClassTransient, true)
		require.ErrorContains(t, errs[0], "continues elsewhere")
	}
	down = errors.New("the ledger is down")
	requireClass(t, p.Handle(t.Context(), testkit.BatchIn(3, b.store.grants(2, 5, decided))), 5, hongbao.ClassTransient, true)
	down = nil
	require.Zero(t, b.store.open(0)+b.store.open(2))
	require.Nil(t, p.Handle(t.Context(), testkit.BatchIn(3, b.store.grants(2, 5, decided))))
	require.Equal(t, map[int]int{0: 3, 2: 3}, asked)
	require.EqualValues(t, 1, p.Stats().Sessions)
	requireShown(t, p, 2)
	require.Nil(t, p.Handle(t.Context(), testkit.BatchIn(4, refused)), "the batch has the later epoch")
	requireClass(t, p.Handle(t.Context(), testkit.BatchIn(0, b.store.grants(4, 5, decided))), 5, hongbao.ClassBroken, false)
	require.Equal(t, 0, asked[4], "a batch without an epoch is refused before anything is asked")
}
