package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var decided = time.Date(2026, 11, 21, 8, 0, 0, 123e6, time.UTC)

// requireClass checks that there are n errors, all of this class, and whether they are outages.
func requireClass(t testing.TB, errs []error, n int, class hongbao.Class, outage bool) {
	t.Helper()
	require.Len(t, errs, n)
	for _, err := range errs {
		require.Error(t, err)
		require.Equal(t, class, hongbao.ClassOf(err), "%v", err)
		require.Equal(t, outage, hongbao.IsOutage(err), "%v", err)
	}
}

func TestHandlePublishesEachGrantOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	first := b.store.grants(0, 250, decided)
	second := b.store.grants(2, 10, decided) // same partition as shard 0
	third := b.store.grants(1, 1, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(first)))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(second)))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(third)))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(first)), "all grants are already done")
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(append(first[240:250:250], b.store.grants(0, 5, decided)...))),
		"some grants are already done")
	all := b.store.shard(0).entries
	requireOneCopy(t, &b.cfg, all[0].Grants, all[1].Grants, second, third)
	s := p.Stats()
	require.EqualValues(t, 6, s.Sessions,
		"one for each partition, and a new one after each claim that was not granted")
	require.Zero(t, s.TakenOver)
}

func TestHandleTakesAGrantTwiceInOneCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	g := b.store.grants(0, 3, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch([]hongbao.Grant{g[2], g[0], g[0], g[1], g[2]})))
	requireOneCopy(t, &b.cfg, g)
}

func TestUndecidedAnswers(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]fate{
		"lost":           {lost},
		"swallowed":      {swallow},
		"twice":          {swallow, swallow},
		"lost, swallow":  {lost, swallow},
		"late copy":      {deferred},
		"two late":       {deferred, deferred},
		"swallow, late":  {swallow, deferred},
		"late, swallow":  {deferred, swallow},
		"lost and again": {lost, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			w.fate = fates(list...)
			g := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			more := b.store.grants(0, 20, decided)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(more)))
			w.flush(t)
			require.Equal(t, len(list), w.fired)
			require.EqualValues(t, len(list), p.Stats().Resends)
			requireOneCopy(t, &b.cfg, g, more)
		})
	}
}

func TestOutageKeepsTheClaimAndDropsTheSession(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fate{"never sent": lost, "appended": swallow} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, w := b.worker(t)
			g := b.store.grants(0, 20, decided)
			w.fate = func() fate { return f }
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
			require.Positive(t, w.fired)
			require.Equal(t, 1, b.store.open(0))
			require.Nil(t, p.slots[0].session)
			w.fate = nil
			other := b.store.grants(2, 20, decided) // another shard of the partition, while the claim is open
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(other)))
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			require.Zero(t, b.store.open(0))
			require.EqualValues(t, 1, p.Stats().SentAgain)
			requireOneCopy(t, &b.cfg, g, other)
		})
	}
}

func TestHeldClaimsAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	g := b.store.grants(0, 3, decided)
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost }
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), 3, hongbao.ClassUnknown, true)
	w.fate = nil
	b.store.held = 1
	errs := p.Handle(t.Context(), testkit.Batch(g))
	requireClass(t, errs, 3, hongbao.ClassTransient, false)
	require.True(t, hongbao.IsWaiting(errs[0]), "it costs no attempt")
	require.Nil(t, p.slots[0].session, "the answer may be to a repeated call whose first run stored the claim")
}

func TestNothingIsSentAfterTheLeaseOrTheClaimIsTooOld(t *testing.T) {
	t.Parallel()
	t.Run("lease", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, w := b.worker(t)
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 1, decided))))
		w.fate = fates()
		ctx, cancel := context.WithCancel(t.Context())
		b.store.granted = func(stream.Claim) { cancel() }
		requireClass(t, p.Handle(ctx, testkit.Batch(b.store.grants(0, 2, decided))), 2, hongbao.ClassUnknown, true)
		require.Zero(t, w.sends)
		require.Equal(t, 1, b.store.open(0))
	})
	t.Run("age", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		p, w := b.worker(t)
		w.fate = fates()
		b.store.granted = func(stream.Claim) { // the process sleeps
			p.now = func() time.Time { return time.Now().Round(0).Add(p.cfg.MaxClaimAge + time.Second) }
		}
		requireClass(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 2, decided))), 2, hongbao.ClassUnknown, true)
		require.Zero(t, w.sends)
		require.EqualValues(t, 1, p.Stats().Stale)
		require.Nil(t, p.slots[0].session)
	})
}

// Calls for shards of the same partition wait for each other. If a call runs out of time meanwhile, its grants get an
// outage, which costs them no attempt.
func TestWaitingForThePartitionIsNoFailureOfAGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.worker(t)
	first, second := b.store.grants(0, 3, decided), b.store.grants(2, 3, decided)
	inside, leave := make(chan struct{}), make(chan struct{})
	b.store.granted = func(stream.Claim) {
		close(inside)
		<-leave
	}
	var wg sync.WaitGroup
	wg.Go(func() { assert.Nil(t, p.Handle(t.Context(), testkit.Batch(first))) })
	<-inside
	b.store.granted = nil
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	requireClass(t, p.Handle(ctx, testkit.Batch(second)), 3, hongbao.ClassTransient, true)
	close(leave)
	wg.Wait()
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(second)))
	requireOneCopy(t, &b.cfg, first, second)
}

// A call that has waited long for its partition has little time left to send. If that time ends, its grants get an
// outage.
func TestSendThatTheCallCutsShortIsNoFailureOfAGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 1, decided))), "the session is open now")
	w.fate = func() fate { return lost }
	g := b.store.grants(0, 3, decided)
	ctx, cancel := context.WithTimeout(t.Context(), hopeless)
	defer cancel()
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), 3, hongbao.ClassUnknown, true)
	require.Positive(t, w.fired)
}
