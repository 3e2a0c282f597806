package consumer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// forged are the fields of an entry of one grant to a thief.
func forged(seq, epoch int64) []any {
	return []any{"v", "1", "k", "grant", "c", "rain", "q", seq, "e", epoch, "t", "1700000000000", "g", "77 900000 thief - -"}
}

// thefts counts the grants to the thief that reach a sink.
func thefts(n *atomic.Int64) func(context.Context, []hongbao.Grant) []error {
	return func(_ context.Context, grants []hongbao.Grant) []error {
		for i := range grants {
			if grants[i].User == "thief" {
				n.Add(1)
			}
		}
		return nil
	}
}

// Somebody writes entries with seqs that the shard has not come to. None is an event: the sink never sees them, and when
// the real events of those seqs come they are delivered.
func TestEntriesAheadOfTheirShardAreNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2)
	for _, values := range [][]any{
		forged(3, 1),
		{"v", "1", "k", "grant", "c", "rain", "q", "2", "e", "1", "t", "1700000000000", "g", "77 9 thief - -\n78 9 thief - -"}, // its end is ahead
		{"v", "1", "k", "close", "c", "rain", "q", "4", "e", "1", "t", "1700000000000", "g", "2 203 0 0"},
		forged(1<<40, 1),
		forged(1, 2), // of an epoch that has not begun
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
		require.Empty(t, dead[i]["grant"], "whole, so that nobody can requeue it")
		require.Contains(t, dead[i]["reason"], "no grab wrote it")
	}
	require.Equal(t, "77 900000 thief - -", dead[0]["entry.g"])
}

// B41, B39: entries in due form, with seqs that the shard has come to, behind their campaign's close or of a campaign that lives on another
// shard. Neither is an event; the events of other campaigns, before and after, are.
func TestEntriesBehindTheirCloseOrElsewhereAreNoEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, 2)
	foreign := "snow"
	for i := 0; b.space.Home(foreign).Index() == 0; i++ {
		foreign = fmt.Sprintf("snow%d", i)
	}
	ctx := t.Context()
	require.NoError(t, b.rdb.HSet(ctx, b.space.Shard(1).Campaign(foreign), "state", "open").Err())
	require.NoError(t, b.rdb.HSet(ctx, b.keys().Campaign("over"), "state", "closed", "close_seq", 3).Err())
	b.add(t, 0, 2)
	event := func(kind, campaign string, seq int, g string) {
		b.raw(t, "v", "1", "k", kind, "c", campaign, "q", seq, "e", "1", "t", "1700000000000", "g", g)
	}
	event("close", "over", 3, "0 0 10 1000") // the real one
	b.reached(t, 8, 1)
	event("grant", "over", 3, "77 9 thief - -")
	event("grant", "over", 4, "77 9 thief - -")
	event("grant", "over", 2, "77 9 thief - -\n78 9 thief - -") // its end is behind it
	event("close", "over", 5, "0 0 10 1000")
	event("grant", foreign, 6, "77 9 thief - -")
	event("grant", "nobody-knows", 7, "1 9 u7 - -") // the sink has to judge
	event("grant", "rain", 8, "8 9 u8 - -")
	var stolen atomic.Int64
	s := newSink(thefts(&stolen))
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	require.Zero(t, stolen.Load())
	s.onceEach(t, 4)
	require.Equal(t, []int64{1, 2, 7, 8}, b.doneBits(t, 100), "a close has none")
	dead := b.dead(t)
	require.Len(t, dead, 5)
	for i := range dead {
		require.Equal(t, "conflict", dead[i]["class"])
		require.Empty(t, dead[i]["grant"], "whole, so that nobody can requeue it")
		says := "was closed on shard 0 by event 3"
		if i == 4 {
			says = "lives on shard 1"
		}
		require.Contains(t, dead[i]["reason"], says)
	}
	require.EqualValues(t, 5, w.Stats().Forged)
}

// A forged entry that a dead worker had is found out as well by the one who takes it over.
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

// Entries of an earlier epoch are real: they were written before the epoch was raised.
func TestEntriesOfAnEarlierEpochAreDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, 2, 2)
	require.NoError(t, b.rdb.HSet(t.Context(), b.keys().Meta(), "epoch", 2).Err())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 4)
	require.Empty(t, b.dead(t))
}

// Whether entries are real is asked once a batch, in one round trip: meta, the campaign, and the receipts of the first and the last
// entry. Only what is taken again, which may come from anywhere, is told by its own.
func TestForgeriesAreLookedForOnceABatch(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	b.add(t, 0, repeat(2, 50)...)
	tries := map[int64]int{}
	s := newSink(failing(func(seq int64) error {
		if tries[seq]++; tries[seq] == 1 && seq > 98 {
			return hongbao.Errorf(hongbao.Transient, "not now %d", seq)
		}
		return nil
	}))
	cfg := b.config(t, "w", s)
	counted := b.client(t, b.addr)
	var hook pipelineHook
	counted.AddHook(&hook)
	cfg.Redis = counted
	w := start(t, cfg)
	b.idle(t, 0)
	require.NoError(t, w.stop())
	s.onceEach(t, 100)
	require.EqualValues(t, 1, w.Stats().Parked, "it was taken again")
	news, again := hook.seen[:len(hook.seen)-1], hook.seen[len(hook.seen)-1]
	for _, cmds := range news {
		require.Equal(t, []string{"hmget", "hmget", "hmget", "hmget"}, cmds)
	}
	require.Less(t, len(news), 10)
	require.Equal(t, []string{"hmget", "hmget", "hmget"}, again)
}

// pipelineHook notes the commands of each pipeline that looks for forgeries.
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
		if names[0] == "hmget" {
			h.seen = append(h.seen, names)
		}
		h.mu.Unlock()
		return next(ctx, cmds)
	}
}

// A shard whose meta is gone can't tell what is real: it is broken and hands back what it holds.
func TestShardWithoutMetaIsBroken(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	ids := b.add(t, 0, 2)
	require.NoError(t, b.rdb.Del(t.Context(), b.keys().Meta()).Err())
	s := newSink(nil)
	w := start(t, b.config(t, "w", s))
	w.stands(0, ShardBroken)
	err := w.stop()
	require.Equal(t, hongbao.Broken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "never initialised, or its meta key was deleted")
	holder, _ := b.holder(t, ids[0])
	require.Equal(t, "_retry/0", holder)
	require.Zero(t, s.numberOfCalls())
}
