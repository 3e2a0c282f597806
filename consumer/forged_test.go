package consumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// forged returns the fields of an entry with one grant, to the user thief.
func forged(seq, epoch int64) []any {
	return testkit.Entry("grant", "rain", seq, epoch, "1700000000000",
		"77 900000 thief - -")
}

// thefts returns a sink function that counts the grants to the user thief.
func thefts(n *atomic.Int64) func(context.Context, hongbao.Batch) []error {
	return func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		for i := range grants {
			if grants[i].User == "thief" {
				n.Add(1)
			}
		}
		return nil
	}
}

// Entries whose seq or epoch is ahead of their shard are forged: the shard never issued them. The sink does not get
// them, and the real events with these seqs are delivered when they are written.
func TestEntriesAheadOfTheirShardAreNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	for _, values := range [][]any{
		forged(3, 1),
		// the last seq of this entry is ahead
		testkit.Entry("grant", "rain", 2, 1, 1700000000000, "77 9 thief - -\n78 9 thief - -"),
		testkit.Entry("close", "rain", 4, 1, 1700000000000, "2 203 0 0"),
		forged(1<<40, 1),
		forged(1, 2), // epoch 2 has not begun
	} {
		b.raw(t, values...)
	}
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.Equal(t, []int64{1, 2}, b.doneBits(t, 100), "the real events only")
	b.add(t, 0, 2, 2)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 6)
	require.Zero(t, stolen.Load())
	require.EqualValues(t, 5, w.Stats().Forged)
	require.EqualValues(t, 5, w.Stats().Dead)
	dead := b.dead(t)
	require.Len(t, dead, 5, "nothing is dropped silently")
	for i := range dead {
		require.Equal(t, "conflict", dead[i]["class"])
		require.Empty(t, dead[i]["grant"], "the letter is for the whole entry, so that nobody can requeue its grant")
		require.Contains(t, dead[i]["reason"], "no grab wrote it")
	}
	require.Equal(t, "grant rain 3 1 1700000000000 -\n77 900000 thief - -", dead[0]["entry.3"])
}

func TestEntriesWithHugeNumbersAreDeadLetters(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]any{
		"a grant":               forged(9007199254740990, 1),
		"a grant above the top": forged(9007199254740991, 1),
		"a close":               testkit.Entry("close", "rain", 9007199254740991, 1, 1700000000000, "2 203 0 0"),
		"an epoch":              testkit.Entry("epoch", "-", 3, 1, 1700000000000, "9007199254740991 2"),
		"an epoch at the top":   testkit.Entry("epoch", "-", 9007199254740991, 1, 1700000000000, "9007199254740991 2"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, 1)
			b.add(t, 0, 2)
			b.raw(t, values...)
			b.add(t, 0, 2)
			s := newSink(nil)
			w := start(t, b.config(t, "w", s))
			b.idle(t, 0)
			require.NoError(t, w.stop())
			s.onceEach(t, 4)
			require.Len(t, b.dead(t), 1)
		})
	}
}

func TestForgedEntryIsTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	b.raw(t, forged(3, 1)...)
	b.vanish(t, "gone", 2)
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	cfg := b.config(t, "w", s)
	cfg.Lease = shortLease
	w := start(t, cfg)
	b.idle(t, 0)
	b.add(t, 0, 1)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 3)
	require.Zero(t, stolen.Load())
	require.Len(t, b.dead(t), 1)
}

// Entries of an earlier epoch are not forged: they were written before the epoch was raised.
func TestEntriesOfAnEarlierEpochAreDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2, 2)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Keys.Meta(), "epoch", 2).Err())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	require.Empty(t, b.dead(t))
}

// For each batch a worker makes only one round trip to read the done bits, the head and the pause.
func TestOneRoundTripABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(2, 50)...)
	tries := map[int64]int{}
	s := newSink(failing(func(seq int64) error {
		if tries[seq]++; tries[seq] == 1 && seq > 98 {
			return hongbao.Errorf(hongbao.ClassTransient, "not now %d", seq)
		}
		return nil
	}))
	cfg := b.config(t, "w", s)
	counted := b.client(t, b.addr)
	var hook pipelineHook
	counted.AddHook(&hook)
	cfg.Deployment = b.over(t, counted, b.client(t, b.addr))
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 100)
	require.EqualValues(t, 1, w.Stats().Parked, "the failed entry was parked and retried")
	for _, cmds := range hook.seen {
		require.Equal(t, []string{"getrange", "hmget", "hgetall"}, cmds)
	}
	require.Less(t, len(hook.seen), 10)
}

// pipelineHook records the names of the commands of each pipeline.
type pipelineHook struct {
	mu   sync.Mutex
	seen [][]string
}

func (*pipelineHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*pipelineHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *pipelineHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var names []string
		for _, cmd := range cmds {
			names = append(names, cmd.Name())
		}
		h.mu.Lock()
		if names[0] == "getrange" {
			h.seen = append(h.seen, names)
		}
		h.mu.Unlock()
		return next(ctx, cmds)
	}
}

// An event is finished, and its entry and its done bit are trimmed. A forged copy of the event is then not delivered.
func TestCopyOfWhatLeftTheStream(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	w := start(t, b.config(t, "w", s))
	b.add(t, 0, repeat(1, 300)...)
	b.idle(t, 0)
	b.jump(t, store.ChunkEvents)
	b.add(t, 0, repeat(1, 300)...)
	b.idle(t, 0)
	tr, _ := b.trimmer(t, group)
	require.NoError(t, tr.Trim(t.Context(), 0))
	require.Equal(t, "1", b.chunks(t))
	b.raw(t, fields(7, 1)...)
	b.raw(t, testkit.Entry("grant", "nobody-knows", 8, 1, 1700000000000, "8 101 thief - -")...)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 600)
	require.Zero(t, stolen.Load())
	require.Len(t, b.dead(t), 2)
	require.Equal(t, "1", b.chunks(t))
}

func TestShardWithoutMetaWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	meta := b.rdb.Dump(t.Context(), b.keys().Keys.Meta()).Val()
	require.NoError(t, b.rdb.Del(t.Context(), b.keys().Keys.Meta()).Err())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	require.ErrorContains(t, w.awaitHealth(0, ShardFrozen).Err, "the shard is frozen")
	require.Zero(t, s.numberOfCalls())
	require.NoError(t, b.rdb.Restore(t.Context(), b.keys().Keys.Meta(), 0, meta).Err())
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 2)
}
