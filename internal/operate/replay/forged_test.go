package replay_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// forge writes an entry with one or two grants to a thief, under an id; "*" for the next id.
func (w *world) forge(t *testing.T, id string, seq, epoch int64, lines string) {
	t.Helper()
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: w.Store.Shard(0).Keys.Events(), ID: id,
		Values: testkit.Entry(1, "grant", "rain", seq, epoch, deadlettertest.Began, lines)}).Err())
}

const theft = "77 900000 thief - -"

// Entries with seqs or an epoch that their shard has not reached are forged. None of them is replayed. The replay still
// finds the real entries after them, although the ledger does not have these.
func TestForgedEntriesAreNotReplayed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.forge(t, "5-1", 1<<40, 1, theft)         // far ahead, before all others
	w.forge(t, "5-2", 3, 2, theft)             // of an epoch that has not begun
	w.forge(t, "5-3", 60, 1, theft+"\n"+theft) // begins in the range of the shard, and ends after it
	w.Add(t, 54)
	w.forge(t, "1700000000010-60", 61, 1, theft)    // ahead
	w.forge(t, "1700000000010-61", 20, 1<<9, theft) // in the middle, of a later epoch
	w.Add(t, 6)
	w.ledger.grants[0] = nil // nothing is settled yet: only the stream has the grants
	report := w.run(t, w.config("copy"), replay.Options{})
	require.Equal(t, w.events(all), w.Target.Copies)
	for _, g := range w.Target.Got {
		require.Equal(t, deadlettertest.Grant(g.Shard, g.Seq), g, "no grant of the thief")
	}
	require.Equal(t, replay.Counts{FromStream: 120, Forged: 5}, report.Counts)
	require.Equal(t, int64(120), report.Looked)
	require.True(t, report.Finished)
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "ALARM: 5 entries are forged")
}

// A forged entry is where the search for a range begins. The replay still finds the range.
func TestForgedEntryDoesNotMisleadTheSearch(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	w.forge(t, "1700000000500-1", 1, 9, theft) // a low seq behind all others, of a later epoch
	zero := 0
	w.ledger.grants[0] = nil
	report := w.run(t, w.config("copy"),
		replay.Options{Filter: replay.Filter{Shard: &zero, Seqs: stream.SeqRange{First: 95, Last: 100}}})
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Shard == 0 && g.Seq >= 95 }), w.Target.Copies)
	require.Zero(t, report.NotFound)
}

// Grants continue while the replay reads. Neither new entries nor entries of an earlier epoch are taken for forged.
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
	require.Equal(t, replay.Counts{FromStream: 200}, report.Counts, "the grants from before the replay")
	again := w.run(t, w.config("again"), replay.Options{})
	require.Equal(t, replay.Counts{FromStream: 400}, again.Counts)
}
