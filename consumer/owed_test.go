package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const added = "kafka" // the sink that the tests add

// book keeps what each group owes, as the ledger does, and can be down.
type book struct {
	down  atomic.Bool
	asked atomic.Int64 // calls of Owe while it was down

	mu   sync.Mutex
	rows map[page][]stream.SeqRange
}

type page struct {
	group string
	shard int
}

func newBook() *book { return &book{rows: map[page][]stream.SeqRange{}} }

func (b *book) check() error {
	if b.down.Load() {
		return hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
	}
	return nil
}

func (b *book) Owe(_ context.Context, group string, shard int, first int64) error {
	if err := b.check(); err != nil {
		b.asked.Add(1)
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at := page{group, shard}
	last := int64(0)
	for _, r := range b.rows[at] {
		if last = max(last, r.Last); last == stream.Forever {
			return nil
		}
	}
	b.rows[at] = append(b.rows[at], stream.SeqRange{First: max(first, last+1), Last: stream.Forever})
	return nil
}

func (b *book) Owed(_ context.Context, shard int) (map[string]stream.Owed, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]stream.Owed{}
	for at, ranges := range b.rows {
		if owed := stream.NewOwed(ranges); at.shard == shard && owed != nil {
			out[at.group] = owed
		}
	}
	return out, nil
}

func (b *book) EndOwing(ctx context.Context, group string, shard int, last int64,
	gone func(context.Context) (bool, error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if still, err := gone(ctx); err != nil || !still {
		return err
	}
	ranges := b.rows[page{group, shard}]
	end := &ranges[len(ranges)-1]
	if end.First > last { // the group owed nothing yet
		b.rows[page{group, shard}] = ranges[:len(ranges)-1]
		return nil
	}
	end.Last = last
	return nil
}

func (b *book) owes(t *testing.T, group string) stream.Owed {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	return stream.NewOwed(b.rows[page{group, 0}])
}

// history is a shard on which most of the events 1 to 500 were finished by the first group and trimmed.
type history struct {
	*bundle
	book *book
}

func newHistory(t *testing.T) *history {
	t.Helper()
	h := &history{setup(t, 1), newBook()}
	h.add(t, 0, repeat(2, 250)...)
	h.finish(t, group, 250)
	tr, _ := h.trims(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Less(t, h.length(t), int64(150))
	return h
}

func (h *history) trims(t *testing.T, groups ...string) (*Trimmer, *observer.ObservedLogs) {
	t.Helper()
	tr, logs := h.trimmer(t, groups...)
	tr.cfg.Debts = h.book
	return tr, logs
}

// more adds events, which the first group finishes.
func (h *history) more(t *testing.T, entries int) {
	t.Helper()
	h.add(t, 0, repeat(2, entries)...)
	h.finish(t, group, entries)
}

// works returns the configuration of a worker of the added sink.
func (h *history) works(t *testing.T, name string) Config {
	t.Helper()
	c := h.config(t, name, newSink(nil))
	c.Group, c.Debts = added, h.book
	return c
}

// firstKept returns the first event in the stream.
func (h *history) firstKept(t *testing.T) int64 {
	t.Helper()
	list, err := h.keys().Entries(t.Context(), "-", "+")
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return list[0].Seq
}

// settles trims until nothing is left to finish, and requires that no incident was found.
func (h *history) settles(t *testing.T, tr *Trimmer, logs *observer.ObservedLogs) {
	t.Helper()
	testkit.Eventually(t, soon, func() bool {
		out := lag(t, tr)
		return out.Finished == out.Seq
	}, "all that is owed is finished")
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Zero(t, logs.FilterMessageSnippet("INCIDENT").Len(), "%v", logs.All())
}

// A group that is added to a shard with a trimmed history does not owe that history: nobody has trimmed anything by
// hand, and the history is no backlog.
func TestAnAddedGroupOwesNoHistory(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	first := h.firstKept(t)
	w := start(t, h.works(t, "w"))
	h.more(t, 10)
	tr, logs := h.trims(t, group, added)
	h.settles(t, tr, logs)
	require.NoError(t, w.stop())
	require.Equal(t, stream.Owed{{First: first, Last: stream.Forever}}, h.book.owes(t, added))

	ids := h.add(t, 0, 1, 1)
	require.NoError(t, h.rdb.XDel(t.Context(), h.keys().Keys.Events(), ids[0]).Err())
	w = start(t, h.works(t, "w2"))
	testkit.Eventually(t, soon, func() bool {
		require.NoError(t, tr.Trim(t.Context(), 0))
		return logs.FilterMessageSnippet("INCIDENT").Len() > 0
	}, "an event that it owes is lost")
	require.EqualValues(t, 1, logs.FilterMessageSnippet("INCIDENT").All()[0].ContextMap()["events"])
	require.NoError(t, w.stop())
}

// The trimmer deletes finished entries behind a parked one. A group that is added later does not owe these, although the
// stream begins before them. It still gets the parked entry.
func TestAnAddedGroupOwesNothingThatWasDeletedBehindAParkedEntry(t *testing.T) {
	t.Parallel()
	h := &history{setup(t, 1), newBook()}
	ids := h.add(t, 0, repeat(2, 50)...)
	h.vanish(t, group, 50)
	h.ack(t, group, append(ids[1:30:30], ids[31:]...)...) // events 1 and 2, 61 and 62 wait
	tr, _ := h.trims(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.EqualValues(t, 2, h.length(t))
	require.EqualValues(t, 1, h.firstKept(t))

	w := start(t, h.works(t, "w"))
	h.ack(t, group, ids[0], ids[30])
	h.more(t, 10)
	tr, logs := h.trims(t, group, added)
	h.settles(t, tr, logs)
	require.NoError(t, w.stop())
	require.Equal(t, stream.Owed{{First: 101, Last: stream.Forever}}, h.book.owes(t, added))
	require.EqualValues(t, 24, w.Stats().Done, "ten new entries, and the two that waited")
}

// A worker died after it had created the group. The next one records what the group owes, although other events came
// meanwhile. While the ledger is down, it reads nothing.
func TestAGroupIsRecordedBeforeItReads(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	first := h.firstKept(t)
	_, err := h.keys().Group(added).Create(t.Context())
	require.NoError(t, err)
	h.more(t, 10)
	tr, logs := h.trims(t, group, added)
	require.NoError(t, tr.Trim(t.Context(), 0))
	h.book.down.Store(true)
	w := start(t, h.works(t, "w"))
	testkit.Eventually(t, soon, func() bool { return h.book.asked.Load() > 2 }, "the worker tries again")
	begin, err := h.keys().Group(added).Begin(t.Context())
	require.NoError(t, err)
	require.False(t, begin.Read)
	require.Equal(t, SinkDown, w.Health()[0].Code)
	require.Nil(t, h.book.owes(t, added))

	h.book.down.Store(false)
	h.settles(t, tr, logs)
	require.NoError(t, w.stop())
	require.Equal(t, stream.Owed{{First: first, Last: stream.Forever}}, h.book.owes(t, added))
}

// A group of a build that kept no record owes everything, also after Redis has lost it. It works while the ledger is
// down.
func TestAGroupWithoutRecordOwesEverything(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	old := h.works(t, "old")
	old.Debts = nil
	kept := 501 - h.firstKept(t)
	w := start(t, old)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == kept }, "it has read everything")
	require.NoError(t, w.stop())

	h.book.down.Store(true)
	w = start(t, h.works(t, "new"))
	h.more(t, 10)
	testkit.Eventually(t, soon, func() bool { return w.Stats().Done == 20 }, "it works without the ledger")
	require.NoError(t, w.stop())
	require.Nil(t, h.book.owes(t, added))

	h.book.down.Store(false)
	w = start(t, h.works(t, "newer"))
	testkit.Eventually(t, soon, func() bool { return h.book.owes(t, added) != nil }, "it is recorded")
	require.NoError(t, h.rdb.XGroupDestroy(t.Context(), h.keys().Keys.Events(), added).Err())
	testkit.Eventually(t, soon, func() bool {
		ok, err := h.store.HasGroup(t.Context(), added)
		return err == nil && ok
	}, "the worker creates it again")
	require.NoError(t, w.stop())
	require.Equal(t, stream.Owed{{First: 1, Last: stream.Forever}}, h.book.owes(t, added))
}

// A sink is removed from the configuration, its group is deleted, and it is added again. It owes neither the events in
// between, nor does it forget those before. While the ledger is down, nothing is deleted.
func TestASinkThatIsRemovedAndAddedAgain(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	first := h.firstKept(t)
	w := start(t, h.works(t, "w"))
	h.more(t, 10)
	tr, logs := h.trims(t, group, added)
	h.settles(t, tr, logs)
	require.NoError(t, w.stop())
	last := h.seqs[0]

	without, logs := h.trims(t, group)
	require.NoError(t, without.Trim(t.Context(), 0))
	h.more(t, 150) // the group still exists, so its entries stay
	require.NoError(t, h.rdb.XGroupDestroy(t.Context(), h.keys().Keys.Events(), added).Err())
	h.book.down.Store(true)
	n := h.length(t)
	require.Error(t, without.Trim(t.Context(), 0))
	restarted, _ := h.trims(t, group)
	require.Error(t, restarted.Trim(t.Context(), 0))
	require.Equal(t, n, h.length(t))
	require.Equal(t, "820", h.meta(t, "finished"), "the backlog is counted")
	h.book.down.Store(false)
	require.NoError(t, without.Trim(t.Context(), 0))
	require.Less(t, h.length(t), n)
	require.Equal(t, stream.Owed{{First: first, Last: last}}, h.book.owes(t, added))
	require.Equal(t, 1, logs.FilterMessageSnippet("a sink was removed").Len())

	again := h.firstKept(t)
	require.Greater(t, again, last+1)
	w = start(t, h.works(t, "w2"))
	h.more(t, 10)
	tr, logs = h.trims(t, group, added)
	h.settles(t, tr, logs)
	require.NoError(t, w.stop())
	require.Equal(t, stream.Owed{{First: first, Last: last}, {First: again, Last: stream.Forever}}, h.book.owes(t, added))
}

// The done bits of a sink that was removed leave Redis with their events, also if the trimmer starts after the removal.
// Until then they stay, because the sink may come back.
func TestDoneBitsOfARemovedSinkAreDeleted(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		h := newHistory(t)
		w := start(t, h.works(t, "w"))
		h.more(t, 10)
		tr, logs := h.trims(t, group, added)
		h.settles(t, tr, logs)
		require.NoError(t, w.stop())
		tr, _ = h.trims(t, group)
		require.NoError(t, tr.Trim(t.Context(), 0))
		_, err := h.keys().Group(added).Remove(t.Context())
		require.NoError(t, err)
		require.NoError(t, tr.Trim(t.Context(), 0))
		require.False(t, h.book.owes(t, added).Now())
		has := func() int64 {
			n, err := h.rdb.Exists(t.Context(), h.keys().Keys.Done(added, 0)).Result()
			require.NoError(t, err)
			return n
		}
		require.EqualValues(t, 1, has())
		if late {
			tr, _ = h.trims(t, group)
		}
		h.jump(t, store.ChunkEvents)
		h.more(t, 150)
		require.NoError(t, tr.Trim(t.Context(), 0))
		require.Zero(t, has())
	}
}

// The group of another program owes nothing on record. Deleting it holds up no trimming.
func TestAnotherProgramsGroupIsDeleted(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	_, err := h.keys().Group("mine").Create(t.Context())
	require.NoError(t, err)
	tr, logs := h.trims(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	h.more(t, 150)
	n := h.length(t)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, n, h.length(t), "it keeps entries")
	require.NoError(t, h.rdb.XGroupDestroy(t.Context(), h.keys().Keys.Events(), "mine").Err())
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Less(t, h.length(t), n)
	require.Zero(t, logs.FilterMessageSnippet("was removed").Len())
}
