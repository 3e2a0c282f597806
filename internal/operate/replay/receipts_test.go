package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (w *world) writeReceipts(t *testing.T, shard int, seqs ...int64) {
	t.Helper()
	k := w.Store.Shard(shard)
	for _, seq := range seqs {
		g := deadlettertest.Grant(shard, seq)
		require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Campaign(g.Campaign), "from", deadlettertest.Began).Err())
		has := w.Redis.HGet(t.Context(), k.Keys.Receipts(g.Campaign), g.User).Val()
		one := fmt.Sprintf("\n%d %d %d %d %s", g.Packet, g.Amount, g.Seq, g.Time.UnixMilli()-deadlettertest.Began, g.RequestID)
		require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Receipts(g.Campaign), g.User, strings.TrimPrefix(has+one, "\n")).Err())
	}
}

func (w *world) vanish(t *testing.T, shard int, seqs ...int64) {
	t.Helper()
	for _, seq := range seqs {
		require.EqualValues(t, 1, w.Redis.XDel(t.Context(), w.Store.Shard(shard).Keys.Events(),
			fmt.Sprintf("%d-%d", deadlettertest.Began+seq/5, seq)).Val())
	}
	w.ledger.grants[shard] = slices.DeleteFunc(w.ledger.grants[shard],
		func(g hongbao.Grant) bool { return slices.Contains(seqs, g.Seq) })
}

func (w *world) done(t *testing.T, shard int, sink string, seqs ...int64) (list []int64) {
	t.Helper()
	bits, err := w.Store.Shard(shard).Group(sink).Done(t.Context(),
		stream.SeqRange{First: 1, Last: w.Seq[shard]})
	require.NoError(t, err)
	for _, seq := range seqs {
		if bits.Has(seq) {
			list = append(list, seq)
		}
	}
	return list
}

// Entries were deleted before their sink had read them, but the users have receipts. The replay delivers these grants
// once, and marks them as done for the sink. It leaves out grants that the sink has finished, and dead letters.
func TestReceiptsAfterLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 30)
	w.writeReceipts(t, 0, 9, 10, 11, 12, 13, 14, 15, 20)
	w.Bury(t, 0, 14, hongbao.ClassPermanent) // an undecided letter
	w.Bury(t, 0, 15, hongbao.ClassPermanent)
	letter := deadlettertest.List(t, w.Letters(), deadletter.Filter{})[1]
	dropped, err := w.Letters().Drop(t.Context(), deadletter.Pick{IDs: []string{letter.ID}},
		stream.Decision{By: "ann", Why: "no"}, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, dropped.Resolved)
	k := w.Store.Shard(0)
	_, err = k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 13, Last: 13}), nil)
	require.NoError(t, err)
	w.vanish(t, 0, 10, 11, 12, 13, 14, 15, 20, 21)
	// Without their done bits, the dead letters are excluded only because they are letters.
	require.NoError(t, w.Redis.Del(t.Context(), w.Store.Shard(0).Keys.Done("kafka", 0)).Err())
	_, err = k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 13, Last: 13}), nil)
	require.NoError(t, err)

	cfg := w.config("repair")
	cfg.Sink = "kafka"
	dry := w.run(t, cfg, replay.Options{DryRun: true})
	require.EqualValues(t, 4, dry.FromReceipts)
	require.Empty(t, w.Target.Copies)
	report := w.run(t, cfg, replay.Options{})
	require.True(t, report.Finished)
	lost := []int64{13, 14, 15, 21} // finished, two dead letters, and one without a receipt
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Shard == 1 || !slices.Contains(lost, g.Seq) }),
		w.Target.Copies)
	require.Equal(t, model.ReplayCounts{FromStream: 52, FromReceipts: 4, NotFound: 4}, report.ReplayCounts)
	for i := range w.Target.Got {
		g := &w.Target.Got[i]
		require.Equal(t, deadlettertest.Grant(g.Shard, g.Seq), *g, "the grant is the same as in the receipt")
	}
	require.Equal(t, []int64{10, 11, 12, 13, 20}, w.done(t, 0, "kafka", 9, 10, 11, 12, 13, 14, 15, 20, 21))

	again := w.run(t, cfg, replay.Options{})
	require.Zero(t, again.FromReceipts+again.Delivered)
	cfg = w.config("another")
	cfg.Sink, cfg.Target = "kafka", "mem"
	require.Zero(t, w.run(t, cfg, replay.Options{}).FromReceipts, "the sink has finished these grants")
	cfg = w.config("copy") // to another topic
	require.Zero(t, w.run(t, cfg, replay.Options{}).FromReceipts)
}

// A publisher has to rebuild a batch whose grants have no entries. Entries returns them from the ledger and the
// receipts.
func TestEntriesFromReceipts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 9)
	w.writeReceipts(t, 0, 3, 4)
	w.vanish(t, 0, 3, 4, 6)
	twin := deadlettertest.Grant(0, 5)
	twin.User = "twin"
	w.ledger.add(twin)
	entries, err := (&replay.Entries{Store: w.Store, Ledger: &w.ledger}).Entries(t.Context(), stream.Opening{Shard: 0}, "0-2",
		"0-7")
	require.NoError(t, err)
	var seqs []int64
	for _, e := range entries {
		require.Len(t, e.Grants, 1)
		want := deadlettertest.Grant(0, e.Seq)
		want.EntryID = fmt.Sprintf("0-%d", e.Seq)
		require.Equal(t, want, e.Grants[0])
		seqs = append(seqs, e.Seq)
	}
	require.Equal(t, []int64{2, 3, 4, 5, 7}, seqs)
	none, err := (&replay.Entries{Store: w.Store}).Entries(t.Context(), stream.Opening{Shard: 0}, "0-5", "0-7")
	require.NoError(t, err)
	require.Empty(t, none)
}

// An opening of the shard has skipped some seqs. The replay does not count them as missing.
func TestSkippedSeqsAreNotMissing(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 20)
	k := w.Store.Shard(0)
	w.trim(t, 0, 21)
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(),
		Values: testkit.Entry("grant", "rain", 131, 3, deadlettertest.Began, "500 1 u1 - -")}).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Meta(), "seq", 131, "epoch", 3,
		"skipped", "21-64@2,71-130@3").Err())
	shard := 0
	report := w.run(t, w.config("copy"), replay.Options{Filter: replay.Filter{Shard: &shard}})
	require.True(t, report.Finished)
	require.Equal(t, model.ReplayCounts{FromStream: 1, FromLedger: 20, NotFound: 6}, report.ReplayCounts,
		"65 to 70 are missing")
	require.Equal(t, []int64{131, 131}, []int64{report.Events, report.Looked})
}
