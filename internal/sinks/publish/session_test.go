package publish

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// While the owner of a claim lives, another worker takes over the claim and finishes it with the session's sequence.
// The owner must not use this sequence again: the broker would drop its next batch of the same size as a copy, and the
// events would be lost.
func TestSessionIsAbandonedWhenAClaimWasTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	other, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	g := b.store.grants(0, 20, decided)
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost } // the lease ends before the batch is sent
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
	w.fate = nil
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)), "the successor uses the sequence")
	next := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(next)))
	requireOneCopy(t, &b.cfg, b.store.shard(0).entries[0].Grants, g, next)
}

// If the owner keeps its session after a takeover, a batch is lost. This shows that
// TestSessionIsAbandonedWhenAClaimWasTakenOver can fail.
func TestWithoutTheSessionRuleAnEventIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, w := b.worker(t)
	other, _ := b.worker(t)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(b.store.grants(0, 20, decided))))
	g := b.store.grants(0, 20, decided)
	kept := *p.slots[0].session
	ctx, cancel := context.WithCancel(t.Context())
	w.fate = func() fate { cancel(); return lost }
	requireClass(t, p.Handle(ctx, testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
	w.fate = nil
	require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
	p.slots[0].session = &kept // violates the rule
	next := b.store.grants(0, 20, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(next)), "no error shows the loss")
	content := topicContent(t, &b.cfg)
	require.Empty(t, content[next[0].EventID()])
}

func TestEveryFailureOfTheClaimsDropsTheSession(t *testing.T) {
	t.Parallel()
	down := hongbao.Errorf(hongbao.ClassUnknown, "redis is down")
	for name, c := range map[string]struct {
		op    string
		after bool
	}{
		"claim not made": {"claim", false}, "claim made, answer lost": {"claim", true},
		"complete not made": {"complete", false}, "complete made, answer lost": {"complete", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p, _ := b.worker(t)
			fired := 0
			b.store.fault = func(op string) (error, error) {
				if op != c.op || fired > 0 {
					return nil, nil
				}
				fired++
				if c.after {
					return nil, down
				}
				return down, nil
			}
			g := b.store.grants(0, 20, decided)
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, false)
			require.Equal(t, 1, fired)
			require.Nil(t, p.slots[0].session)
			other := b.store.grants(2, 20, decided)
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(other)))
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			requireOneCopy(t, &b.cfg, g, other)
		})
	}
}

func TestTakeoverWhileTheOwnerIsPausedBetweenClaimAndSend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, _ := b.worker(t)
	other, _ := b.worker(t)
	g := b.store.grants(0, 20, decided)
	took := false
	b.store.granted = func(stream.Claim) { // the owner pauses here
		if took {
			return
		}
		took = true
		require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
	}
	require.Nil(t, owner.Handle(t.Context(), testkit.Batch(g)), "the broker drops its late copy, and its complete is fenced")
	require.True(t, took)
	require.EqualValues(t, 1, owner.Stats().Lost)
	require.EqualValues(t, 1, other.Stats().SentAgain)
	next := b.store.grants(0, 20, decided)
	require.Nil(t, owner.Handle(t.Context(), testkit.Batch(next)))
	requireOneCopy(t, &b.cfg, g, next)
}

// claimTwice runs the claim script a second time and returns the second answer. go-redis does so when the first answer
// is lost.
type claimTwice struct {
	*store
	n int
}

func (s *claimTwice) Claim(ctx context.Context, in stream.Opening, id string, events []stream.SeqRange,
	payload string) (stream.ClaimAnswer, error) {
	a, err := s.store.Claim(ctx, in, id, events, payload)
	if s.n--; s.n < 0 {
		return a, err
	}
	return s.store.Claim(ctx, in, id, events, payload)
}

// The first run of a repeated claim script stores the claim. The worker finishes this claim with the session's sequence
// and must not use the sequence again: the broker would drop the next batch of the same size as a copy.
func TestClaimRunTwiceUsesUpTheSequence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := &claimTwice{store: b.store}
	p, err := New(b.cfg, c, b.store)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	g0, g1, g2 := b.store.grants(0, 1, decided), b.store.grants(0, 1, decided), b.store.grants(0, 1, decided)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g0)))
	c.n = 1
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g1)))
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g2)))
	requireOneCopy(t, &b.cfg, g0, g1, g2)
}
