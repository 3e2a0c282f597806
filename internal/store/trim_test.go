package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// written writes stream entries with the given numbers of events and ages, and sets the shard's seq. An entry with 0
// events is unreadable. eventsOf records the events for ack.
func (b *bundle) written(t *testing.T, sizes []int, ageOf func(i int) time.Duration) []string {
	t.Helper()
	seq := int64(0)
	now := time.Now()
	var ids []string
	for i, n := range sizes {
		id := fmt.Sprintf("%d-%d", now.Add(-ageOf(i)).UnixMilli(), i)
		args := append([]any{"XADD", b.k.Keys.Events(), id}, testkit.Entry("grant", "rain", seq+1, 1, 1, "x")...)
		if n == 0 {
			args = []any{"XADD", b.k.Keys.Events(), id, "3", "grant rain 1e9 1 1 -", "junk", "y"}
		}
		require.NoError(t, b.rdb.Do(t.Context(), args...).Err())
		if b.eventsOf == nil {
			b.eventsOf = map[string]stream.SeqRange{}
		}
		if n > 0 {
			b.eventsOf[id] = stream.SeqRange{First: seq + 1, Last: seq + int64(n)}
		}
		seq += int64(n)
		ids = append(ids, id)
	}
	require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "seq", seq).Err())
	return ids
}

func repeat(n, times int) []int {
	out := make([]int, times)
	for i := range out {
		out[i] = n
	}
	return out
}

func old(int) time.Duration { return time.Hour }

func (b *bundle) trim(t *testing.T, c store.Trim) store.Trimmed {
	t.Helper()
	if c.Limit == 0 {
		c.Limit = 10_000
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = 1e6
	}
	c.LookBehind = 1_000
	out, err := b.k.TrimEvents(t.Context(), c)
	require.NoError(t, err)
	meta, err := b.rdb.HGet(t.Context(), b.k.Keys.Meta(), "finished").Int64()
	require.NoError(t, err)
	require.Equal(t, out.Finished, meta)
	return out
}

func (b *bundle) done(t *testing.T, group string, count int) {
	t.Helper()
	raw := b.read(t, group, "w1", count)
	require.Len(t, raw, count)
	b.ack(t, group, idsOf(raw))
}

// ack marks the events of entries as done and acks the entries.
func (b *bundle) ack(t *testing.T, group string, ids []string) {
	t.Helper()
	var done []stream.SeqRange
	for _, id := range ids {
		if r, ok := b.eventsOf[id]; ok {
			done = append(done, r)
		}
	}
	_, err := b.k.Group(group).Ack(t.Context(), stream.OfCampaign("", done...), ids)
	require.NoError(t, err)
}

func lags(out store.Trimmed) map[string]int64 {
	m := map[string]int64{}
	for _, g := range out.Groups {
		m[g.Name] = g.Finished
	}
	return m
}

func TestTrimKeepsWhatAnyGroupNeeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.written(t, repeat(2, 1000), old)
	for _, g := range []string{"balance", "kafka", "stranger"} {
		b.group(t, g)
	}
	declared := []string{"balance", "kafka"}
	out := b.trim(t, store.Trim{Groups: declared})
	require.Equal(t, 0, out.Deleted, "no one has read anything")
	require.EqualValues(t, 0, out.Finished)
	require.EqualValues(t, 2000, out.Seq)
	require.EqualValues(t, 1, out.FirstKept)

	b.done(t, "balance", 1000)
	b.done(t, "kafka", 900)
	b.read(t, "stranger", "w1", 500)
	b.ack(t, "stranger", append(ids[:300:300], ids[301:500]...))
	out = b.trim(t, store.Trim{Groups: declared})
	require.Equal(t, map[string]int64{"balance": 2000, "kafka": 1800, "stranger": 600}, lags(out))
	require.EqualValues(t, 1800, out.Finished, "only declared groups count for Finished")
	require.Positive(t, out.Deleted)
	kept := b.ids(t)
	require.Contains(t, kept, ids[300], "pending for an undeclared group")
	require.Subset(t, kept, ids[500:], "unread by an undeclared group")
	require.LessOrEqual(t, len(kept), 601,
		"before the pending entry only whole nodes of 100 entries are deleted, after it single entries")
	require.LessOrEqual(t, out.FirstKept, int64(601))
	for _, g := range out.Groups {
		require.Equal(t, g.Name != "balance", g.Age > 0, g.Name)
		require.InDelta(t, time.Hour, max(g.Age, time.Hour), float64(time.Minute))
	}

	b.done(t, "kafka", 100)
	b.ack(t, "stranger", ids[300:301])
	out = b.trim(t, store.Trim{Groups: declared})
	require.EqualValues(t, 2000, out.Finished)
	require.Contains(t, b.ids(t), ids[500], "undelivered for the stranger")
	require.NoError(t, b.rdb.XGroupDestroy(t.Context(), b.k.Keys.Events(), "stranger").Err())
	out = b.trim(t, store.Trim{Groups: declared})
	require.Less(t, len(b.ids(t)), 200, "at most the rest of a stream node of 100 entries is kept")
	require.Empty(t, out.Missing)
}

func TestTrimMissingGroupBlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.written(t, repeat(1, 300), old)
	b.group(t, "kafka")
	b.done(t, "kafka", 300)
	out := b.trim(t, store.Trim{Groups: []string{"balance", "kafka"}})
	require.Equal(t, []string{"balance"}, out.Missing)
	require.Zero(t, out.Deleted)
	require.Zero(t, out.Finished, "the missing group balance has finished nothing")
	require.Len(t, b.ids(t), 300)

	fresh := setupOn(t, b.rdb)
	out = fresh.trim(t, store.Trim{Groups: []string{"kafka"}})
	require.Equal(t, []string{"kafka"}, out.Missing)
}

func TestTrimRetentionAndBounds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.written(t, repeat(1, 1000), func(i int) time.Duration { return time.Duration(1000-i) * time.Second })
	b.group(t, "kafka")
	b.done(t, "kafka", 1000)
	groups := []string{"kafka"}
	out := b.trim(t, store.Trim{Groups: groups, Retention: time.Hour})
	require.Zero(t, out.Deleted)
	out = b.trim(t, store.Trim{Groups: groups, Retention: 500 * time.Second})
	require.InDelta(t, 450, out.Deleted, 51)
	require.Contains(t, b.ids(t), ids[560], "a minute later, too")

	out = b.trim(t, store.Trim{Groups: groups, Retention: 0, Limit: 100})
	require.LessOrEqual(t, out.Deleted, 100)
	require.Positive(t, out.Deleted)

	// MaxEvents takes precedence over the retention
	b.trim(t, store.Trim{Groups: groups, Retention: time.Hour, MaxEvents: 10})
	kept := len(b.ids(t))
	require.GreaterOrEqual(t, kept, 10)
	require.Less(t, kept, 10+101, "at most one stream node too many is kept")
}

func TestTrimMaxEventsNeverPassesPending(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.written(t, repeat(1, 500), func(i int) time.Duration { return time.Duration(1000-i) * time.Millisecond })
	b.group(t, "kafka")
	raw := b.read(t, "kafka", "w1", 500)
	b.ack(t, "kafka", append(ids[:250:250], ids[251:]...))
	require.Len(t, raw, 500)
	b.trim(t, store.Trim{Groups: []string{"kafka"}, Retention: time.Hour, MaxEvents: 1})
	require.Contains(t, b.ids(t), ids[250])
	require.Less(t, len(b.ids(t)), 351)
}

// A group has 400 unreadable entries before its next event. They do not make its Finished too high.
func TestTrimFinishedAmongUnreadable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sizes := append(append(repeat(2, 3), repeat(0, 400)...), repeat(2, 2)...)
	ids := b.written(t, sizes, old)
	b.group(t, "kafka")
	groups := []string{"kafka"}
	b.done(t, "kafka", 3)
	require.EqualValues(t, 6, b.trim(t, store.Trim{Groups: groups}).Finished,
		"the next event is undelivered, after 400 unreadable entries")
	raw := b.read(t, "kafka", "w1", 402)
	require.Len(t, raw, 402)
	require.EqualValues(t, 6, b.trim(t, store.Trim{Groups: groups}).Finished, "pending, after 400 unreadable entries")
	b.ack(t, "kafka", ids[3:403])
	require.EqualValues(t, 6, b.trim(t, store.Trim{Groups: groups}).Finished)
	b.ack(t, "kafka", ids[403:404])
	require.EqualValues(t, 8, b.trim(t, store.Trim{Groups: groups}).Finished)
}

// A forged entry has a seq that was never assigned. The trim ignores it.
func TestTrimIgnoresForgedSeq(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.rdb.Do(t.Context(), "XADD", b.k.Keys.Events(), "1-1", "3", "grant rain 99999999999 1 1 -\n").Err())
	b.written(t, repeat(1, 5), old)
	b.group(t, "kafka")
	out := b.trim(t, store.Trim{Groups: []string{"kafka"}})
	require.EqualValues(t, 0, out.Finished)
	require.EqualValues(t, 1, out.FirstKept)
}

// Done bits below the done floor are deleted, and the floor never falls. Events below it then count as done in
// FinishedEvents, and in a claim with Trimmed. In a claim without Trimmed they do not.
func TestWhatTheDeletedBitsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 2*store.ChunkEvents)
	const group = "kafka"
	look := func(seq int64) bool {
		t.Helper()
		done, err := b.k.Group(group).FinishedEvents(t.Context(),
			stream.SeqRange{First: 1, Last: 2 * store.ChunkEvents})
		require.NoError(t, err)
		return done.Has(seq)
	}
	claim := func(trimmed bool) stream.ClaimAnswer {
		t.Helper()
		a, err := b.k.Claim(t.Context(), &store.ClaimCall{
			Sink: group, ID: fmt.Sprint(trimmed, time.Now().UnixNano()), Owner: "w1", Lease: time.Minute, Trimmed: trimmed,
			TakeLive: true,
			Events:   []stream.SeqRange{{First: 5, Last: 6}, {First: store.ChunkEvents - 2, Last: store.ChunkEvents + 1}},
		})
		require.NoError(t, err)
		return a
	}
	require.False(t, look(5), "nothing was deleted yet")
	a := claim(true)
	require.True(t, a.Granted())
	require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Claims(group)).Err())

	for _, from := range []int64{0, 0, 1} {
		require.NoError(t, b.k.RaiseDoneFloor(t.Context(), from, 1, []string{group}))
	}
	require.True(t, look(1))
	require.True(t, look(store.ChunkEvents-1))
	require.False(t, look(store.ChunkEvents))
	_, err := b.k.Group(group).Ack(t.Context(),
		slices.Concat(seqs("", 5, 5), seqs("", store.ChunkEvents, store.ChunkEvents)), nil)
	require.NoError(t, err)
	require.True(t, look(store.ChunkEvents))
	require.Equal(t, []stream.SeqRange{{First: 5, Last: 6}, {First: store.ChunkEvents - 2, Last: store.ChunkEvents}},
		claim(true).Done)
	require.Equal(t, []stream.SeqRange{{First: 5, Last: 5}, {First: store.ChunkEvents, Last: store.ChunkEvents}},
		claim(false).Done)
}

// An entry is parked, and later entries are finished. The trim deletes the later ones and keeps the parked one. They
// do not count as backlog, and the group's Finished stays below the parked entry.
func TestTrimBehindAPendingEntry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.written(t, repeat(3, 500), func(i int) time.Duration { return time.Duration(1000-i) * time.Second })
	b.group(t, "kafka")
	b.group(t, "balance")
	b.done(t, "balance", 450)
	require.Len(t, b.read(t, "kafka", "w1", 460), 460)
	b.ack(t, "kafka", append(append(ids[:7:7], ids[8:200]...), ids[201:460]...))
	_, err := b.k.Group("kafka").Ack(t.Context(), stream.OfCampaign("", stream.SeqRange{First: 22, Last: 23}), nil)
	require.NoError(t, err)
	groups := []string{"balance", "kafka"}
	out := b.trim(t, store.Trim{Groups: groups, Retention: 700 * time.Second})
	require.EqualValues(t, 3*450, out.Finished, "balance is slower: it has read 450 entries")
	require.EqualValues(t, 21, out.Groups[1].Finished)
	kept := b.ids(t)
	require.Subset(t, kept, append([]string{ids[7], ids[200]}, ids[360:]...),
		"pending entries, and entries within the retention, a minute later, too")
	require.LessOrEqual(t, len(kept), 8+1+200)

	b.done(t, "balance", 50)
	out = b.trim(t, store.Trim{Groups: groups})
	require.EqualValues(t, 3*460-1-3, out.Finished,
		"two of the three events of the first pending entry are done; its third event and the second pending entry are not")
	kept = b.ids(t)
	require.Subset(t, kept, append([]string{ids[7], ids[200]}, ids[460:]...))
	require.LessOrEqual(t, len(kept), 8+1+40)
}

// A person deletes entries that are pending. They stay in the group's list of pending entries, so this list has more
// rows than the stream. The trim keeps every other pending entry, and deletes the finished ones.
func TestTrimAfterPendingEntriesWereDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.written(t, repeat(1, 300), old)
	b.group(t, "balance")
	b.group(t, "kafka")
	b.done(t, "balance", 300)
	require.Len(t, b.read(t, "kafka", "w1", 300), 300)
	b.ack(t, "kafka", append(ids[150:160:160], ids[250:260]...))
	require.NoError(t, b.rdb.XDel(t.Context(), b.k.Keys.Events(), ids[10:15]...).Err())
	for _, n := range []int{2, 7, 50, 200, 1000} {
		c := store.Trim{Groups: []string{"balance", "kafka"}, Limit: 10_000, MaxEvents: 1e6, LookBehind: n}
		for more := true; more; more = c.Behind != "" {
			out, err := b.k.TrimEvents(t.Context(), c)
			require.NoError(t, err)
			c.Behind, c.Epoch = out.Behind, out.Epoch
		}
		require.Equal(t, slices.Concat(ids[:10], ids[15:150], ids[160:250], ids[260:]), b.ids(t),
			"the trim examined %d entries at a time", n)
	}
}

// A person deletes very many pending entries between two that are kept. A trim reads only some of their rows, and keeps
// the entries after these, although they are finished.
func TestTrimReadsABoundedNumberOfDeletedEntries(t *testing.T) {
	t.Parallel()
	b := setupOn(t, testkit.NewRedis(t, testkit.RedisOptions{}).Client(t))
	ids := b.written(t, repeat(1, 250), old)
	b.group(t, "kafka")
	require.Len(t, b.read(t, "kafka", "w1", 250), 250)
	b.ack(t, "kafka", ids[249:])
	require.NoError(t, b.rdb.XDel(t.Context(), b.k.Keys.Events(), ids[1:249]...).Err())
	c := store.Trim{Groups: []string{"kafka"}, Limit: 10_000, MaxEvents: 1e6, LookBehind: 5}
	before, _ := b.commandStat(t, "xpending")
	out, err := b.k.TrimEvents(t.Context(), c)
	require.NoError(t, err)
	calls, _ := b.commandStat(t, "xpending")
	require.LessOrEqual(t, calls-before, int64(1+10))
	require.Zero(t, out.Deleted, "the trim does not know whether the group has finished the last entry")
	require.Equal(t, []string{ids[0], ids[249]}, b.ids(t))

	require.NoError(t, b.rdb.XAck(t.Context(), b.k.Keys.Events(), "kafka", ids[1:249]...).Err())
	_, err = b.k.TrimEvents(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, ids[:1], b.ids(t))
}
