package replay_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// twinOf returns a grant of another packet with the seq of a world's grant, as after an accepted loss.
func twinOf(shard int, seq int64) hongbao.Grant {
	g := deadlettertest.Grant(shard, seq)
	g.Packet, g.User, g.RequestID = 1_000_000+seq, "twin", ""
	return g
}

// pays adds a grant to the ledger, in the order in which the ledger returns grants.
func (w *world) pays(g hongbao.Grant) {
	list := w.ledger.grants[g.Shard]
	at := slices.IndexFunc(list, func(o hongbao.Grant) bool {
		return o.Seq > g.Seq || o.Seq == g.Seq && o.Packet > g.Packet
	})
	if at < 0 {
		at = len(list)
	}
	w.ledger.grants[g.Shard] = slices.Insert(list, at, g)
}

// got returns what the target got: shard-seq, and a "+" for a twin.
func (w *world) got() (list []string) {
	for i := range w.Target.Got {
		g := &w.Target.Got[i]
		list = append(list, g.EventID()+strings.Repeat("+", int(g.Packet/1_000_000)))
	}
	slices.Sort(list)
	w.Target.Got = nil
	return list
}

// The ledger has paid two grants with the same seq. A replay delivers one of them and counts the other. A replay with
// another name and a filter delivers the other one. Both grants may be in the ledger only, or one in the stream. The
// seq may also belong to a close.
func TestSameSeq(t *testing.T) {
	t.Parallel()
	for _, trimmed := range []bool{false, true} {
		t.Run(fmt.Sprintf("trimmed %t", trimmed), func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.Add(t, 20)
			w.pays(twinOf(0, 5))
			w.pays(twinOf(0, 20))
			k := w.Store.Shard(0)
			require.NoError(t, w.Redis.XAdd(t.Context(), newEntry(k, testkit.Entry("close", "rain", 21, 1,
				deadlettertest.Began, "1 1")...)).Err())
			require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Meta(), "seq", 21).Err())
			w.pays(twinOf(0, 21))
			if trimmed {
				w.trim(t, 0, 21)
			}
			report := w.run(t, w.config("copy"), replay.Options{})
			require.EqualValues(t, 2, report.SameSeq)
			require.EqualValues(t, 41, report.Delivered)
			got := w.got()
			require.Len(t, got, 41)
			require.Subset(t, got, []string{"0-5", "0-20", "0-21+"})
			var text strings.Builder
			require.NoError(t, report.Write(&text))
			require.Contains(t, text.String(), "2 grants were left out, because another grant with the same seq was delivered.")

			cfg, opts := w.config("twins"), replay.Options{Filter: replay.Filter{User: "twin"}}
			report = w.run(t, cfg, opts)
			require.Zero(t, report.SameSeq)
			require.Equal(t, []string{"0-20+", "0-21+", "0-5+"}, w.got())
			require.Zero(t, w.run(t, cfg, opts).Delivered, "each once")
		})
	}
}

// A publisher has to rebuild a batch of a killed replay. By the entry's ID it gets the twin, not the other grant.
func TestEntriesOfTwins(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 20)
	w.trim(t, 0, 20)
	w.pays(twinOf(0, 5))
	var ids []string
	w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
		for i := range grants {
			ids = append(ids, grants[i].EntryID)
		}
		return nil
	}
	w.run(t, w.config("twins"), replay.Options{Filter: replay.Filter{User: "twin"}})
	require.Len(t, ids, 1)
	entries := &replay.Entries{Store: w.Store, Ledger: &w.ledger}
	found, err := entries.Entries(t.Context(), stream.Opening{Shard: 0}, ids[0], ids[0])
	require.NoError(t, err)
	require.Len(t, found, 1)
	want := twinOf(0, 5)
	want.EntryID = ids[0]
	require.Equal(t, want, found[0].Grants[0])
	require.Equal(t, ids[0], found[0].ID)

	w.writeReceipts(t, 0, 20)
	w.vanish(t, 0, 20)
	w.pays(twinOf(0, 20))
	cfg, shard := w.config("receipts"), 0
	cfg.Sink = "kafka"
	ids = nil
	w.run(t, cfg, replay.Options{Filter: replay.Filter{Shard: &shard, Seqs: stream.SeqRange{First: 20, Last: 20}}})
	require.Len(t, ids, 1)
	found, err = entries.Entries(t.Context(), stream.Opening{Shard: 0}, ids[0], ids[0])
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, deadlettertest.Grant(0, 20).Packet, found[0].Grants[0].Packet)
}

// The sink has one of two grants with the same seq. The other one is lost. Once the sink has both, none is.
func TestLostOfTwoGrantsWithTheSameSeq(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 10)
	_, err := w.Store.Shard(0).Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 10}), nil)
	require.NoError(t, err)
	for _, shard := range []int{0, 1} { // in the stream, and in the ledger only
		w.pays(twinOf(shard, 5))
	}
	lost, err := replay.FindLost(t.Context(), w.Store, "kafka")
	require.NoError(t, err)
	for seq := int64(1); seq <= 10; seq++ {
		if g := deadlettertest.Grant(0, seq); seq != 7 {
			lost.Has(&g)
		}
	}
	other := twinOf(0, 7)
	lost.Has(&other)
	cfg := w.config("repair")
	cfg.Only = lost.Picks
	w.run(t, cfg, replay.Options{})
	require.Equal(t, []string{"0-5+", "0-7"}, w.got())
	for _, g := range []hongbao.Grant{twinOf(0, 5), deadlettertest.Grant(0, 7)} {
		lost.Has(&g)
		require.False(t, lost.Picks(&g))
	}
}

// A person decides about the dead letter of a grant. The other grant with its seq is lost.
func TestLostBesideADeadLetter(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 10)
	w.Bury(t, 0, 5, hongbao.ClassPermanent)
	_, err := w.Store.Shard(0).Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 1, Last: 10}), nil)
	require.NoError(t, err)
	w.pays(twinOf(0, 5))
	lost, err := replay.FindLost(t.Context(), w.Store, "kafka")
	require.NoError(t, err)
	for seq := int64(1); seq <= 10; seq++ {
		if g := deadlettertest.Grant(0, seq); seq != 5 {
			lost.Has(&g)
		}
	}
	cfg := w.config("repair")
	cfg.Only = lost.Picks
	w.run(t, cfg, replay.Options{})
	require.Equal(t, []string{"0-5+"}, w.got())
}

// The ledger was restored from a backup. It has a grant whose seq another win has, and lacks that win. The replay pays
// the win from the stream, or from its receipt, and marks it as done.
func TestTheLedgerLacksAWinWhoseSeqItHas(t *testing.T) {
	t.Parallel()
	for _, missing := range []bool{false, true} {
		for _, from := range []string{"stream", "receipts"} {
			t.Run(fmt.Sprintf("missing %t, from %s", missing, from), func(t *testing.T) {
				t.Parallel()
				w := setup(t)
				w.Add(t, 10)
				if from == "receipts" {
					w.writeReceipts(t, 0, 5)
					w.vanish(t, 0, 5)
				}
				w.ledger.grants[0] = slices.DeleteFunc(w.ledger.grants[0], func(g hongbao.Grant) bool { return g.Seq == 5 })
				w.pays(twinOf(0, 5))
				cfg := w.config("repair")
				cfg.Settles, cfg.Sink = true, "balance"
				if missing {
					lost, err := replay.FindLacking(t.Context(), w.Store, "balance", &w.ledger)
					require.NoError(t, err)
					cfg.Only = lost.Picks
				}
				report := w.run(t, cfg, replay.Options{})
				require.EqualValues(t, 1, report.Delivered)
				require.Contains(t, w.got(), "0-5")
				require.Equal(t, from == "receipts", len(w.done(t, 0, "balance", 5)) == 1)
				w.pays(deadlettertest.Grant(0, 5))
				require.Zero(t, w.run(t, cfg, replay.Options{}).Delivered)
			})
		}
	}
}

// Redis lost a grant that the ledger has paid, and granted its seq again. Then an entry was deleted before sink kafka
// had finished it. A replay by the sink's own done bits publishes the grant that Redis has.
func TestReplayByDoneBitsOfASeqThatTheLedgerHas(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 10)
	w.writeReceipts(t, 0, 5)
	w.vanish(t, 0, 5)
	w.pays(twinOf(0, 5))
	_, err := w.Store.Shard(0).Group("kafka").Ack(t.Context(),
		stream.OfCampaign("", stream.SeqRange{First: 1, Last: 4}, stream.SeqRange{First: 6, Last: 10}), nil)
	require.NoError(t, err)
	cfg := w.config("rest")
	cfg.DoneSink, cfg.Sink = "kafka", "kafka"
	shard := 0
	report := w.run(t, cfg, replay.Options{Filter: replay.Filter{Shard: &shard, To: time.UnixMilli(deadlettertest.Began + 9000)}})
	require.EqualValues(t, 1, report.FromReceipts)
	require.Equal(t, []string{"0-5"}, w.got())
}

// The ledger has two grants with a seq, first and second. The sink has not finished a third one, or the second, which has
// a receipt. The replay delivers that one once, and counts the selected grants that it leaves out.
func TestReceiptBesideTwins(t *testing.T) {
	t.Parallel()
	unfinished := deadlettertest.Grant(0, 5)
	other := twinOf(0, 5)
	other.Packet, other.User = 2*other.Packet, unfinished.User
	for name, c := range map[string]struct {
		second  hongbao.Grant
		user    string // the filter; it never selects the twin alone
		sameSeq int64
	}{
		"all are selected":                          {other, "", 2},
		"the first is not selected":                 {other, unfinished.User, 1},
		"the second, all are selected":              {unfinished, "", 1},
		"the second, and the first is not selected": {unfinished, unfinished.User, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			w.Add(t, 10)
			w.writeReceipts(t, 0, 5)
			w.vanish(t, 0, 5)
			w.ledger.grants[0] = slices.Insert(w.ledger.grants[0], 4, twinOf(0, 5), c.second)
			_, err := w.Store.Shard(0).Group("kafka").Ack(t.Context(),
				stream.OfCampaign("", stream.SeqRange{First: 1, Last: 4}, stream.SeqRange{First: 6, Last: 10}), nil)
			require.NoError(t, err)
			cfg, shard := w.config("rest"), 0
			cfg.Sink = "kafka"
			report := w.run(t, cfg, replay.Options{Filter: replay.Filter{Shard: &shard, User: c.user,
				Seqs: stream.SeqRange{First: 5, Last: 5}}})
			require.Equal(t, []string{"0-5"}, w.got())
			require.EqualValues(t, 1, report.Delivered)
			require.Zero(t, report.Before)
			require.EqualValues(t, 1, report.Matched)
			require.Equal(t, c.sameSeq, report.SameSeq)
			unselected := int64(0) // grants that the filter leaves out are counted where they are read
			if c.user != "" {
				unselected = 1
			}
			require.Equal(t, 1+unselected, report.FromLedger+report.FromReceipts)
		})
	}
}
