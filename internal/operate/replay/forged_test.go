package replay_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// forge writes an entry with grants to a thief. id is the entry's ID, or "*" for the next one.
func (w *world) forge(t *testing.T, id string, seq, epoch int64, lines string) {
	t.Helper()
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: w.Store.Shard(0).Keys.Events(), ID: id,
		Values: testkit.Entry("grant", "rain", seq, epoch, deadlettertest.Began, lines)}).Err())
}

const theft = "77 900000 thief - -"

// Entries are forged if their seqs or epoch are beyond those of the shard. The replay skips them, and reads all real
// entries from the stream.
func TestForgedEntriesAreNotReplayed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.forge(t, "5-1", 1<<40, 1, theft)         // a seq far beyond the shard's, before all other entries
	w.forge(t, "5-2", 3, 2, theft)             // an epoch that has not begun
	w.forge(t, "5-3", 60, 1, theft+"\n"+theft) // the second seq is beyond the shard's last
	w.Add(t, 54)
	w.forge(t, "1700000000010-60", 61, 1, theft)    // a seq beyond the shard's
	w.forge(t, "1700000000010-61", 20, 1<<9, theft) // in the middle of the stream, with a later epoch
	w.Add(t, 6)
	w.ledger.grants[0] = nil // only the stream has the grants
	report := w.run(t, w.config("copy"), replay.Options{})
	require.Equal(t, w.events(all), w.Target.Copies)
	for _, g := range w.Target.Got {
		require.Equal(t, deadlettertest.Grant(g.Shard, g.Seq), g, "no forged grant is delivered")
	}
	require.Equal(t, model.ReplayCounts{FromStream: 120, Forged: 5}, report.ReplayCounts)
	require.Equal(t, int64(120), report.Looked)
	require.True(t, report.Finished)
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "ALARM: 5 entries are forged")
}

// The search for a range of seqs begins at a forged entry. The replay still finds the range.
func TestForgedEntryDoesNotMisleadTheSearch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	w.forge(t, "1700000000500-1", 1, 9, theft) // a low seq after all others, with a later epoch
	zero := 0
	w.ledger.grants[0] = nil
	report := w.run(t, w.config("copy"),
		replay.Options{Filter: replay.Filter{Shard: &zero, Seqs: stream.SeqRange{First: 95, Last: 100}}})
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Shard == 0 && g.Seq >= 95 }), w.Target.Copies)
	require.Zero(t, report.NotFound)
}

// Grabs continue during the replay, and the stream has entries of an earlier epoch. None of these entries counts as
// forged.
func TestRealEntriesAreNotForged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	require.NoError(t, w.Redis.HSet(t.Context(), w.Store.Shard(0).Keys.Meta(), "epoch", 2).Err())
	cfg := w.config("copy")
	cfg.Parallel = 1
	w.Target.Before = func(calls int, _ []hongbao.Grant) []error {
		if calls <= 5 {
			w.Add(t, 20)
		}
		return nil
	}
	report := w.run(t, cfg, replay.Options{})
	require.Equal(t, model.ReplayCounts{FromStream: 200}, report.ReplayCounts,
		"only grants from before the replay are covered")
	again := w.run(t, w.config("again"), replay.Options{})
	require.Equal(t, model.ReplayCounts{FromStream: 400}, again.ReplayCounts)
}
