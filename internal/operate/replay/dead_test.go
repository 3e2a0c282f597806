package replay_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
)

var ann = stream.Decision{By: "ann", Why: `fixed, "by hand", 修好了`}

// buried returns a world with dead letters of sink kafka: seqs 3, 4 (permanent) and 7 (conflict) of shard 0, seq 5 of
// shard 1, and an entry that can't be read.
func buried(t *testing.T) *world {
	t.Helper()
	w := setup(t)
	w.Add(t, 10)
	w.Bury(t, 0, 3, hongbao.ClassPermanent)
	w.Bury(t, 0, 4, hongbao.ClassPermanent)
	w.Bury(t, 0, 7, hongbao.ClassConflict)
	w.Bury(t, 1, 5, hongbao.ClassPermanent)
	w.BuryEntry(t, "3", "grant rain forged")
	return w
}

// A replay of a sink's dead letters delivers their grants once. The letters stay.
func TestReplayOfDeadLetters(t *testing.T) {
	t.Parallel()
	w := buried(t)
	report := w.run(t, w.config("dead"), replay.Options{Dead: "kafka", Filter: replay.Filter{Campaign: "snow"}})
	require.True(t, report.Finished)
	require.Equal(t, map[string]int{"0-3": 1, "0-7": 1, "1-5": 1}, w.Target.Copies)
	require.Equal(t, int64(1), report.Unreadable)
	require.Len(t, deadlettertest.List(t, w.Letters(), deadletter.Filter{}), 5)
	report = w.run(t, w.config("dead"), replay.Options{Dead: "kafka", Filter: replay.Filter{Campaign: "snow"}})
	require.Equal(t, int64(3), report.Before)
	require.Zero(t, report.Delivered)
}

// A replay to a sink omits the sink's dead letters, waiting and dropped ones, also while the stream has their entries:
// a person decides about them. It delivers the letters of another sink.
func TestReplayToASinkOmitsItsDeadLetters(t *testing.T) {
	t.Parallel()
	w := buried(t) // the dead letters are 0-3 0-4 0-7 1-5
	l := w.Letters()
	_, err := l.Drop(t.Context(), deadletter.Pick{IDs: []string{deadlettertest.List(t, l, deadletter.Filter{})[1].ID}}, ann, false) // 0-4
	require.NoError(t, err)
	cfg := w.config("repair")
	cfg.Sink = "kafka"
	report := w.run(t, cfg, replay.Options{})
	require.True(t, report.Finished)
	letters := []string{"0-3", "0-4", "0-7", "1-5"}
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return !slices.Contains(letters, g.EventID()) }), w.Target.Copies)
	cfg = w.config("other")
	cfg.Sink = "balance"
	require.EqualValues(t, 20, w.run(t, cfg, replay.Options{}).Delivered, "another sink")
	for shard := range deadlettertest.Shards { // the grants are dead letters of both sinks
		keys := &w.Store.Shard(shard).Keys
		require.NoError(t, w.Redis.Copy(t.Context(), keys.Dead("kafka"), keys.Dead("balance"), 0, false).Err())
	}
	cfg = w.config("both")
	cfg.Sink = "balance"
	require.Zero(t, w.run(t, cfg, replay.Options{Dead: "kafka"}).Delivered)
}

// Lost picks the grants that the sink has finished and does not have. It leaves out grants in flight, dead letters, and
// grants that may have expired from the sink.
func TestLost(t *testing.T) {
	t.Parallel()
	w := buried(t) // the dead letters are 0-3 0-4 0-7 1-5
	l := w.Letters()
	_, err := l.Drop(t.Context(), deadletter.Pick{IDs: []string{deadlettertest.List(t, l, deadletter.Filter{})[1].ID}}, ann, false) // 0-4
	require.NoError(t, err)
	for shard := range deadlettertest.Shards {
		_, err := w.Store.Shard(shard).Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 8}),
			nil)
		require.NoError(t, err)
	}
	lost, err := replay.FindLost(t.Context(), w.Store, "kafka")
	require.NoError(t, err)
	// The sink finishes this event while it is read, after FindLost.
	_, err = w.Store.Shard(0).Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 9, Last: 9}), nil)
	require.NoError(t, err)
	for _, seq := range []int64{2, 5, 8} {
		for shard := range deadlettertest.Shards {
			g := deadlettertest.Grant(shard, seq)
			lost.Has(&g)
		}
	}
	lost.Has(&hongbao.Grant{Shard: 7, Seq: 1})
	lost.Since(1, deadlettertest.Grant(1, 2).Time)
	var picked []string
	for shard := range deadlettertest.Shards {
		for seq := int64(1); seq <= 10; seq++ {
			if g := deadlettertest.Grant(shard, seq); lost.Picks(&g) {
				picked = append(picked, g.EventID())
			}
		}
	}
	require.Equal(t, []string{"0-1", "0-6", "1-3", "1-4", "1-6", "1-7"}, picked)
	cfg := w.config("repair")
	cfg.Only = lost.Picks
	require.Equal(t, int64(6), w.run(t, cfg, replay.Options{}).Delivered)
	require.False(t, lost.Picks(&hongbao.Grant{Shard: 7, Seq: 1}))
	require.Equal(t, 1, w.Target.Copies["0-6"])
	require.Len(t, w.Target.Copies, 6, fmt.Sprint(w.Target.Copies))
}
