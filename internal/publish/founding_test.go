package publish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/cloudevent"
)

// founded makes a worker of a deployment that was founded as this, with claims of its own.
func (b *bench) founded(t *testing.T, founding string) (*Publisher, *store) {
	t.Helper()
	cfg, s := b.cfg, newStore()
	cfg.Founding = founding
	p, err := New(cfg, s, s)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, s
}

// A second deployment with the same id publishes nothing into the topic of the first one: two grants would share a
// (shard, seq).
func TestAnotherFoundingIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, oldStore := b.founded(t, "") // of a build that wrote no header
	first := oldStore.grants(0, 3, decided)
	require.Nil(t, old.Handle(t.Context(), first))

	ours, ourStore := b.founded(t, "aaaa")
	require.Nil(t, ours.Handle(t.Context(), shifted(ourStore.grants(0, 8, decided), 3)), "records without the header are taken")
	for range 2 {
		theirs, theirStore := b.founded(t, "bbbb")
		errs := theirs.Handle(t.Context(), theirStore.grants(0, 4, decided))
		requireClass(t, errs, 4, hongbao.ClassBroken, false)
		require.ErrorContains(t, errs[0], "deployment.id")
		require.Zero(t, theirStore.open(0), "nothing was claimed")
	}
	theirs, theirStore := b.founded(t, "bbbb")
	require.Nil(t, theirs.Handle(t.Context(), theirStore.grants(1, 4, decided)), "nobody has published to this partition")
	require.Nil(t, ours.Handle(t.Context(), ourStore.grants(0, 2, decided)), "the first one goes on")
	again, againStore := b.founded(t, "aaaa")
	againStore.shard(0).next = 100
	require.Nil(t, again.Handle(t.Context(), againStore.grants(0, 2, decided)))
}

// shifted raises the seqs of grants, so that they are behind others.
func shifted(grants []hongbao.Grant, by int64) []hongbao.Grant {
	out := make([]hongbao.Grant, len(grants))
	for i, g := range grants {
		g.Seq += by
		out[i] = g
	}
	return out
}

// Grants and fences carry the founding.
func TestRecordsCarryTheFounding(t *testing.T) {
	t.Parallel()
	b := newBatch("/hongbao/d1")
	b.found("aaaa")
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 2, Campaign: "c", Packet: 1, Amount: 3, User: "u", Time: decided}
	b.start(numbers{}, 1)
	require.True(t, b.add(&g, 1<<20))
	require.Equal(t, "aaaa", foundingOf(firstRecord(t, b.finish()).headers))
	b.start(numbers{}, 1)
	b.addFence(numbers{}, 1)
	r := firstRecord(t, b.finish())
	require.Equal(t, "aaaa", foundingOf(r.headers))
	require.Equal(t, cloudevent.TypeFence, headerValues(r.headers)["ce_type"])
}
