package replay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// lose opens shard 0 after Redis has lost n events that the ledger has paid. Then it adds ten grants to each shard.
func (w *world) lose(t *testing.T, n int64) {
	t.Helper()
	k, from := w.Store.Shard(0), w.Seq[0]+1
	for seq := from; seq < from+n; seq++ {
		w.ledger.add(deadlettertest.Grant(0, seq))
	}
	w.Seq[0] = from + 1_000
	g := deadlettertest.Grant(0, w.Seq[0])
	entry := newEntry(k, testkit.Entry("epoch", "-", from, 2, g.Time.UnixMilli(), fmt.Sprint(w.Seq[0], " ", from+n-1))...)
	entry.ID = fmt.Sprintf("%d-%d", deadlettertest.Began+w.Seq[0]/5, w.Seq[0])
	require.NoError(t, w.Redis.XAdd(t.Context(), entry).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Meta(), "epoch", 2, "seq", w.Seq[0], "skipped",
		fmt.Sprintf("%d-%d@2", from, w.Seq[0])).Err())
	w.Add(t, 10)
}

// Redis lost events that the ledger has paid, and a person accepted the loss. The replay delivers those that the topic
// lacks, whether or not the skipped seqs are marked as done or the opening's entry is trimmed.
func TestLostOfAnAcceptedLoss(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{false, true} {
		for _, trimmed := range []bool{false, true} {
			t.Run(fmt.Sprintf("marked %t, trimmed %t", marked, trimmed), func(t *testing.T) {
				t.Parallel()
				w := setup(t)
				w.Add(t, 10)
				w.lose(t, 6) // 11 to 16
				done := []stream.SeqRange{{First: 1, Last: 10}}
				if marked {
					done[0].Last = w.Seq[0] - 10
				}
				_, err := w.Store.Shard(0).Group("kafka").Ack(t.Context(), stream.OfCampaign("", done...), nil)
				require.NoError(t, err)
				if trimmed {
					w.trim(t, 0, w.Seq[0]-5)
				}
				lost, err := replay.FindLost(t.Context(), w.Store, "kafka")
				require.NoError(t, err)
				for _, seq := range []int64{1, 2, 4, 5, 6, 7, 8, 9, 10, 12} {
					g := deadlettertest.Grant(0, seq)
					lost.Has(&g)
				}
				lost.Since(0, deadlettertest.Grant(0, 2).Time)
				cfg := w.config("repair")
				cfg.Only = lost.Picks
				want := map[string]int{"0-3": 1, "0-11": 1, "0-13": 1, "0-14": 1, "0-15": 1, "0-16": 1}
				require.EqualValues(t, len(want), w.run(t, cfg, replay.Options{}).Delivered)
				require.Equal(t, want, w.Target.Copies)
				require.Zero(t, w.run(t, cfg, replay.Options{}).Delivered, "the first run has delivered everything")

				lost.Since(0, deadlettertest.Grant(0, 14).Time.Add(time.Millisecond))
				cfg = w.config("later")
				cfg.Only = lost.Picks
				require.EqualValues(t, 2, w.run(t, cfg, replay.Options{}).Delivered, "earlier events may have expired")
			})
		}
	}
}

// Redis lost grants that the ledger has paid. A replay of everything includes them.
func TestReplayOfAnAcceptedLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 10)
	w.lose(t, 6)
	report := w.run(t, w.config("copy"), replay.Options{})
	require.EqualValues(t, 6, report.FromLedger)
	require.EqualValues(t, 46, report.Delivered, "20 on each shard, and 6 that Redis lost")
	require.Zero(t, report.NotFound)
	require.Equal(t, report.Events, report.Looked)
}

// Redis lost grants that the ledger has paid. A replay by the sink's own done bits leaves them out, because Redis lost
// their done bits, too. Only the topic shows whether it has them.
func TestReplayByDoneBitsLeavesAnAcceptedLossOut(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 10)
	w.lose(t, 6)
	cfg := w.config("rest")
	cfg.DoneSink, cfg.Sink, cfg.Marks = "kafka", "kafka", true
	report := w.run(t, cfg, replay.Options{})
	require.Zero(t, report.FromLedger)
	require.EqualValues(t, 40, report.Delivered)
}
