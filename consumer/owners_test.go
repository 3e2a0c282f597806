package consumer

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// gated returns a sink whose calls signal in and then block until out is closed.
func gated(in, out chan struct{}, result func([]hongbao.Grant) []error) *sink {
	return newSink(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		in <- struct{}{}
		<-out
		return result(grants)
	})
}

// Two workers handle the same entries, because the old owner does not know that it lost its lease (F29). The worker
// that finishes first acks entries of the other worker. No grant is lost: acked grants have their done bits, and a
// grant that one worker could not deliver stays with the owner.
func TestTwoOwnersOfTheSameEntries(t *testing.T) {
	t.Parallel()
	all := func([]hongbao.Grant) []error { return nil }
	but2 := func(err error) func([]hongbao.Grant) []error {
		return failing2(func(seq int64) error {
			if seq == 2 {
				return err
			}
			return nil
		})
	}
	permanent := hongbao.Errorf(hongbao.ClassPermanent, "no such account")
	for name, c := range map[string]struct {
		// the results of the two handlers
		old, owner func([]hongbao.Grant) []error
		ownerFirst bool
		dead       int
	}{
		"the old worker first":                     {all, all, false, 0},
		"the owner first":                          {all, all, true, 0},
		"the old worker delivers, the owner can't": {all, but2(permanent), false, 0},
		"the old worker can't, the owner delivers": {but2(permanent), all, false, 0},
		"the owner can't, the old worker is late":  {all, but2(permanent), true, 1},
		"neither worker can":                       {but2(permanent), but2(permanent), false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			ids := b.add(t, 0, 2, 2)
			in, out := [2]chan struct{}{}, [2]chan struct{}{}
			var s [2]*sink
			var w [2]*worker
			for i, result := range []func([]hongbao.Grant) []error{c.old, c.owner} {
				in[i], out[i] = make(chan struct{}, 10), make(chan struct{})
				s[i] = gated(in[i], out[i], result)
				cfg := b.config(t, []string{"old", "owner"}[i], s[i])
				cfg.Lease = time.Hour
				if i == 1 {
					cfg.Lease = keptLease // so that the owner soon takes the entries of the old worker
				}
				w[i] = start(t, cfg)
				<-in[i]
			}
			for _, id := range ids {
				holder, _ := b.holder(t, id)
				require.Equal(t, "owner", holder)
			}
			first, second := 0, 1
			if c.ownerFirst {
				first, second = 1, 0
			}
			close(out[first])
			testkit.Eventually(t, soon, func() bool { n := w[first].Stats(); return n.Done+n.Dead+n.Skipped >= 3 },
				"the first worker has finished")
			close(out[second])
			b.idle(t, 0)
			require.NoError(t, w[0].stop())
			require.NoError(t, w[1].stop())
			require.Equal(t, []int64{1, 2, 3, 4}, b.doneBits(t, 4), "acked grants are done")
			require.Len(t, b.dead(t), c.dead)
			for seq := int64(1); seq <= 4; seq++ {
				_, old := s[0].times(seq)
				_, owner := s[1].times(seq)
				if seq != 2 || c.dead == 0 {
					require.Positive(t, old+owner, "event %d has its effect", seq)
				}
			}
		})
	}
}

// failing2 adapts failing to a function without a context.
func failing2(of func(seq int64) error) func([]hongbao.Grant) []error {
	return func(grants []hongbao.Grant) []error { return failing(of)(context.Background(), testkit.Batch(grants)) }
}

// A former owner acks one of a worker's entries. The worker hands the other entries of the batch back at once, so they
// need not wait until the lease ends.
func TestAckByAFormerOwnerDelaysNoNeighbour(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2, 2)
	in, out := make(chan struct{}, 10), make(chan struct{})
	var calls atomic.Int64
	s := newSink(func(ctx context.Context, _ hongbao.Batch) []error {
		if calls.Add(1) == 1 {
			in <- struct{}{}
			select {
			case <-ctx.Done():
			case <-out:
			}
		}
		return nil
	})
	cfg := b.config(t, "owner", s)
	cfg.Lease = 15 * time.Second
	w := start(t, cfg)
	<-in
	begin := time.Now()
	_, err := b.keys().Group(group).Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 2}), ids[:1])
	require.NoError(t, err)
	b.idle(t, 0)
	require.Less(t, time.Since(begin), cfg.Lease, "the other entry did not wait until the lease ended")
	require.NoError(t, w.stop())
	require.EqualValues(t, 1, w.Stats().LeasesLost)
	require.Equal(t, []int64{1, 2, 3, 4}, b.doneBits(t, 4))
}
