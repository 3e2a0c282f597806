package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// jumps freezes the shard and opens it again in the next epoch. It returns the seqs that the opening skipped.
func (b *bundle) jumps(t *testing.T) stream.SeqRange {
	t.Helper()
	b.freeze(t)
	z, err := b.k.Freeze(t.Context())
	require.NoError(t, err)
	last := (max(z.Seq, 0)/store.ChunkEvents+2)*store.ChunkEvents - 1
	opened, err := b.k.Reopen(t.Context(), &store.Reopening{Was: z, Epoch: max(z.Epoch, z.Seen.Epoch) + 1, Last: last,
		Known: z.Seq, Mark: store.Owner{Deployment: "test"}, Evidence: store.AnyEvidence})
	require.NoError(t, err)
	require.True(t, opened)
	return stream.SeqRange{First: max(z.Seq, 0) + 1, Last: last}
}

// bounded makes n grabs with a bound of the backlog, and returns how many are granted. The others are answered busy.
func (b *bundle) bounded(t *testing.T, n int, bound int64) (granted int) {
	t.Helper()
	for range n {
		c := call("rain")
		c.MaxBacklog = bound
		c.Grabs = append(c.Grabs, &hongbao.Grab{Campaign: "rain", User: fmt.Sprint("u", time.Now().UnixNano())})
		answers, err := b.k.Place("rain").Grab(t.Context(), c, nil)
		require.NoError(t, err)
		if answers[0].Outcome == hongbao.OutcomeGranted {
			granted++
		} else {
			require.Equal(t, hongbao.OutcomeBusy, answers[0].Outcome)
		}
	}
	return granted
}

// An opening skips seqs, and a sink is paused. The skipped seqs are no backlog: before a trim, after one, and when the
// sink has come to the entry of the opening and not to earlier ones.
func TestJumpIsNoBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	groups := []string{"kafka"}
	b.group(t, "kafka")
	require.Equal(t, 4, b.bounded(t, 4, 10))
	first := b.jumps(t)
	require.Equal(t, 6, b.bounded(t, 9, 10), "four events are unfinished")
	second := b.jumps(t)
	require.Zero(t, b.bounded(t, 1, 10))
	require.Equal(t, 1, b.bounded(t, 2, 11))

	out := b.trim(t, store.Trim{Groups: groups})
	require.EqualValues(t, 11, out.Seq-out.Finished)
	require.Zero(t, b.bounded(t, 1, 11))
	require.Equal(t, 1, b.bounded(t, 2, 12))

	raw := b.read(t, "kafka", "w1", 100)
	require.Len(t, raw, 4+1+6+1+2)
	for done, skipped := range map[string]stream.SeqRange{raw[4].ID: first, raw[11].ID: second} {
		_, err := b.k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", skipped), []string{done})
		require.NoError(t, err)
	}
	out = b.trim(t, store.Trim{Groups: groups})
	require.EqualValues(t, 12, out.Seq-out.Finished, "the bits of the skipped seqs do not count twice")
	_, err := b.k.Group("kafka").Ack(t.Context(),
		slices.Concat(seqs("", 1, 4), seqs("", first.Last+1, second.First-1)), nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, second.Last+2-b.trim(t, store.Trim{Groups: groups}).Finished)
}

// A group has pending entries. Skipped seqs after the first of them are no backlog either.
func TestJumpIsNoBacklogOfPendingEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	b.group(t, "kafka")
	require.Equal(t, 4, b.bounded(t, 4, 10))
	b.jumps(t)
	b.read(t, "kafka", "w1", 100)
	out, err := b.k.TrimEvents(t.Context(), store.Trim{Groups: []string{"kafka"}, MaxEvents: 1e6, Limit: 100})
	require.NoError(t, err)
	require.EqualValues(t, 4, out.Seq-out.Finished)
}

// Redis has lost a shard, and a group is missing, so no trim counts. The opening's seqs are no backlog.
func TestJumpOfALostShardIsNoBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	require.Equal(t, 4, b.bounded(t, 4, 10))
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Meta()).Err())
	b.jumps(t)
	require.Equal(t, 10, b.bounded(t, 12, 10))
}

// A restore skips seqs that no source knows. They are no backlog.
func TestUnknownSeqsAreNoBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	require.Equal(t, 4, b.bounded(t, 4, 10))
	b.begin(t)
	require.NoError(t, b.k.RestoreGrants(t.Context(), attempt, store.Run{Unknown: stream.SeqRange{First: 5, Last: 104}}))
	finished, err := b.rdb.HGet(t.Context(), b.k.Keys.Meta(), "finished").Int64()
	require.NoError(t, err)
	require.EqualValues(t, 100, finished)
}

// The bound on the events that are kept does not count skipped seqs, so an opening trims nothing early.
func TestJumpTrimsNothingEarly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.written(t, repeat(1, 300), func(i int) time.Duration { return time.Duration(1000-i) * time.Second })
	b.group(t, "kafka")
	b.done(t, "kafka", 300)
	skipped := b.jumps(t)
	raw := b.read(t, "kafka", "w1", 1)
	_, err := b.k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", skipped), idsOf(raw))
	require.NoError(t, err)
	out := b.trim(t, store.Trim{Groups: []string{"kafka"}, Retention: time.Hour, MaxEvents: 300})
	require.Zero(t, out.Deleted)
	out = b.trim(t, store.Trim{Groups: []string{"kafka"}, Retention: time.Hour, MaxEvents: 20})
	require.InDelta(t, 250, out.Deleted, 51)
}
