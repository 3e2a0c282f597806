package publish

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// founded returns a worker of a deployment with this founding, and the worker's own store of claims.
func (b *bench) founded(t *testing.T, founding string) (*Publisher, *store) {
	t.Helper()
	cfg, s := b.cfg, newStore()
	cfg.Founding = founding
	p, err := New(cfg, s, s)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, s
}

// A second deployment with the same id must not publish into the topic of the first deployment: two grants could have
// the same event id.
func TestAnotherFoundingIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, oldStore := b.founded(t, "") // a deployment without a ledger
	first := oldStore.grants(0, 3, decided)
	require.Nil(t, old.Handle(t.Context(), testkit.Batch(first)))

	ours, ourStore := b.founded(t, "aaaa")
	require.Nil(t, ours.Handle(t.Context(), testkit.Batch(shifted(ourStore.grants(0, 8, decided), 3))), "records without a founding pass")
	for range 2 {
		theirs, theirStore := b.founded(t, "bbbb")
		errs := theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 4, decided)))
		requireClass(t, errs, 4, hongbao.ClassBroken, false)
		require.ErrorContains(t, errs[0], "deployment.id")
		require.Zero(t, theirStore.open(0), "nothing was claimed")
	}
	theirs, theirStore := b.founded(t, "bbbb")
	require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(1, 4, decided))), "this partition is empty")
	require.Nil(t, ours.Handle(t.Context(), testkit.Batch(ourStore.grants(0, 2, decided))), "the first deployment continues")
	b.cfg.AnyFounding = true
	theirs, theirStore = b.founded(t, "bbbb")
	require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 4, decided))), "as with kafka_founding in unsafe.allow")
	b.cfg.AnyFounding = false
	back, backStore := b.founded(t, "aaaa")
	backStore.shard(0).next = 50
	requireClass(t, back.Handle(t.Context(), testkit.Batch(backStore.grants(0, 1, decided))), 1, hongbao.ClassBroken, false)
	b.cfg.AnyFounding = true
	back, backStore = b.founded(t, "aaaa")
	backStore.shard(0).next = 50
	require.Nil(t, back.Handle(t.Context(), testkit.Batch(backStore.grants(0, 1, decided))))
	b.cfg.AnyFounding = false // the last record is now from aaaa
	again, againStore := b.founded(t, "aaaa")
	againStore.shard(0).next = 100
	require.Nil(t, again.Handle(t.Context(), testkit.Batch(againStore.grants(0, 2, decided))))
}

// Two deployments with the same id start together, so neither finds records of the other. The check is repeated later,
// and one of them stops.
func TestAnotherFoundingIsRefusedLater(t *testing.T) {
	t.Parallel()
	for name, newSession := range map[string]bool{"new session": true, "busy session": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			old, oldStore := b.founded(t, "")
			require.Nil(t, old.Handle(t.Context(), testkit.Batch(oldStore.grants(0, 3, decided))))
			theirs, theirStore := b.founded(t, "bbbb")
			check := func() {}
			b.cfg.Observe = func(request string, _ time.Duration, _ error) {
				if request == protocol.InitProducerId.String() { // after the check and before its first record
					check()
				}
			}
			ours, ourStore := b.founded(t, "aaaa")
			began, later := time.Now(), time.Duration(0)
			theirs.now = func() time.Time { return began.Add(later) }
			check = func() {
				check = func() {}
				require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 4, decided))))
			}
			require.Nil(t, ours.Handle(t.Context(), testkit.Batch(ourStore.grants(0, 4, decided))))
			if newSession {
				theirs.slots[0].session = nil
			} else {
				later = b.cfg.MaxClaimAge * 2 / 3
				require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 4, decided))), "its last check is recent")
				require.Nil(t, ours.Handle(t.Context(), testkit.Batch(ourStore.grants(0, 4, decided))))
				later *= 2 // the check is due, but the session's end of the log is still fresh
			}
			for range 2 {
				errs := theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 4, decided)))
				requireClass(t, errs, 4, hongbao.ClassBroken, false)
				require.ErrorContains(t, errs[0], "deployment.id")
			}
			ours.slots[0].session = nil
			require.Nil(t, ours.Handle(t.Context(), testkit.Batch(ourStore.grants(0, 4, decided))), "the last publisher continues")
		})
	}
}

// rogue returns a worker that publishes with the founding bbbb and never runs the check.
func (b *bench) rogue(t *testing.T) (*Publisher, *store) {
	t.Helper()
	p, s := b.founded(t, "")
	p.slots[0].batch.addFounding("bbbb")
	return p, s
}

// Looking back ignores records of another deployment with the same id, even if they have the seqs of the claim.
func TestLookingBackPassesOverAnotherFounding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Founding = "aaaa"
	g, _ := orphan(t, b, 20, lost)
	theirs, theirStore := b.rogue(t)
	require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 20, decided))))
	last, lastStore := b.founded(t, "")
	last.slots[0].batch.addFounding("aaaa")
	require.Nil(t, last.Handle(t.Context(), testkit.Batch(lastStore.grants(2, 1, decided))), "the last record is ours")
	p, _ := forgetful(t, b)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.Zero(t, p.Stats().FoundInLog)
	require.EqualValues(t, 1, p.Stats().LetGo)
	report, err := p.Scan(t.Context(), nil, func(Position, topic.Event) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, 3+1+20, report.Events)
	require.EqualValues(t, 20+1, report.Foreign, "the other deployment's grants and the fence record of its session")
}

// Scan and HighestSeq skip records of another founding if they know their own.
func TestReadingPassesOverAnotherFounding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, oldStore := b.founded(t, "")
	require.Nil(t, old.Handle(t.Context(), testkit.Batch(oldStore.grants(0, 10, decided))))
	ours, ourStore := b.founded(t, "aaaa")
	require.Nil(t, ours.Handle(t.Context(), testkit.Batch(shifted(ourStore.grants(0, 10, decided), 10))))
	theirs, theirStore := b.rogue(t)
	require.Nil(t, theirs.Handle(t.Context(), testkit.Batch(theirStore.grants(0, 50, decided))))
	unknown, _ := b.founded(t, "")
	for _, c := range []struct {
		p                        *Publisher
		events, foreign, highest int64
	}{{ours, 20, 50 + 1, 20}, {unknown, 70, 0, 50}} {
		report, err := c.p.Scan(t.Context(), nil, func(Position, topic.Event) error { return nil })
		require.NoError(t, err)
		require.Equal(t, c.events, report.Events)
		require.Equal(t, c.foreign, report.Foreign)
		highest, err := c.p.HighestSeq(t.Context(), 0, time.Time{})
		require.NoError(t, err)
		require.Equal(t, c.highest, highest)
	}
}

// shifted returns copies of the grants with higher seqs.
func shifted(grants []hongbao.Grant, by int64) []hongbao.Grant {
	out := make([]hongbao.Grant, len(grants))
	for i, g := range grants {
		g.Seq += by
		out[i] = g
	}
	return out
}

func TestRecordsCarryTheFounding(t *testing.T) {
	t.Parallel()
	b := newBatch("/hongbao/d1")
	b.addFounding("aaaa")
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
