package subscriber

import (
	"context"
	"database/sql"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

// win returns a grant of a packet with (shard, seq) 0-5.
func win(campaign string, packet int64, user string) topic.Event {
	e := event(0, 5)
	e.Grant.Campaign, e.Grant.Packet, e.Grant.User = campaign, packet, user
	return e
}

// bothSinks runs a test on NewFuncSink, and on NewSQL with each database. restart returns a new Sink with the same
// database, as after a restart; for NewFuncSink it returns the same Sink.
func bothSinks(t *testing.T, fn func(t *testing.T, b *effectLog, restart func() Sink)) {
	t.Helper()
	databases(t, func(t *testing.T, db *database) {
		b := newBook()
		fn(t, b, func() Sink {
			s, err := NewSQL(t.Context(), SQLConfig{DB: db.DB, Dialect: db.dialect, Name: "g", UnsafeAllow: fastServers, Timeout: soon,
				Effect: func(ctx context.Context, _ *sql.Tx, list []topic.Event) error {
					for i := range list {
						if err := b.note(ctx, list[i]); err != nil {
							return err
						}
					}
					return nil
				}})
			require.NoError(t, err)
			return s
		})
	})
	t.Run("NewFuncSink", func(t *testing.T) {
		t.Parallel()
		b := newBook()
		s := b.funcSink(t)
		fn(t, b, func() Sink { return s })
	})
}

func push(t *testing.T, s Sink, events ...topic.Event) Report {
	t.Helper()
	r, err := s.Push(t.Context(), events)
	require.NoError(t, err)
	return r
}

// After an operator has accepted a loss in Redis, wins of different packets can have the same (shard, seq), and the
// ledger pays each of them. Each has its effect once. Copies have none, in the same batch, later, and after a restart.
func TestWinsWithTheSameSeqHaveTheirEffects(t *testing.T) {
	bothSinks(t, func(t *testing.T, b *effectLog, restart func() Sink) {
		first, second, other := win("spring", 1, "ann"), win("spring", 999, "bob"), win("autumn", 1, "cat")
		abroad := first
		abroad.Source, abroad.Grant.User = "/hongbao/d2", "dan"
		s := restart()
		require.Equal(t, Report{Next: 3, Done: 2, Repeated: 1}, push(t, s, first, first, second))
		require.Equal(t, Report{Next: 4, Done: 2, Repeated: 2}, push(t, s, second, other, abroad, first))
		s = restart()
		require.Equal(t, Report{Next: 5, Done: 1, Repeated: 4},
			push(t, s, abroad, other, second, first, win("spring", 1000, "eve")))
		require.Equal(t, map[string]int{"ann": 1, "bob": 1, "cat": 1, "dan": 1, "eve": 1}, b.users)
	})
}

// A dead letter counts as seen. A win with the same (shard, seq) is another event, and has its effect.
func TestSkipDropsOnePacket(t *testing.T) {
	bothSinks(t, func(t *testing.T, b *effectLog, restart func() Sink) {
		require.NoError(t, restart().Skip(t.Context(), win("spring", 1, "ann")))
		s := restart()
		require.Equal(t, Report{Next: 3, Done: 2, Repeated: 1},
			push(t, s, win("spring", 1, "ann"), win("spring", 2, "bob"), win("autumn", 1, "cat")))
		require.Equal(t, map[string]int{"bob": 1, "cat": 1}, b.users)
	})
}

// The bitmap has no users. A second record of a packet is dropped and counted as a repeat, also if it has another user.
// docs/subscribers.md says so.
func TestSecondUserOfAPacketIsDropped(t *testing.T) {
	bothSinks(t, func(t *testing.T, b *effectLog, restart func() Sink) {
		s := restart()
		twin := win("spring", 1, "bob")
		twin.Grant.Seq = 6
		require.Equal(t, Report{Next: 2, Done: 1, Repeated: 1}, push(t, s, win("spring", 1, "ann"), twin))
		require.Equal(t, map[string]int{"ann": 1}, b.users)
	})
}

// Random packets of several chunks, shards and campaigns are pushed in random batches. Each has its effect once, as in a
// map.
func TestSinksAreSets(t *testing.T) {
	bothSinks(t, func(t *testing.T, b *effectLog, restart func() Sink) {
		s := restart()
		seen := map[string]bool{}
		packets := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(4090, 4110), rapid.Int64Range(8190, 8200),
			rapid.Just(int64(hongbao.MaxAmount)))
		rapid.Check(t, func(rt *rapid.T) {
			var batch []topic.Event
			want := Report{}
			for range rapid.IntRange(1, 30).Draw(rt, "events") {
				e := win(rapid.SampledFrom([]string{"spring", "autumn"}).Draw(rt, "campaign"), packets.Draw(rt, "packet"), "u")
				e.Grant.Shard = int(e.Grant.Packet % 3)
				e.Grant.User = e.Grant.Campaign + "-" + strconv.FormatInt(e.Grant.Packet, 10)
				if seen[e.Grant.User] {
					want.Repeated++
				} else {
					want.Done++
				}
				seen[e.Grant.User] = true
				batch = append(batch, e)
			}
			want.Next = len(batch)
			got, err := s.Push(t.Context(), batch)
			require.NoError(rt, err)
			require.Equal(rt, want, got)
		})
		require.Len(t, b.users, len(seen))
		for user, n := range b.users {
			require.Equal(t, 1, n, user)
		}
	})
}

// A process that runs for years does not remember all packets. It forgets the chunks that it has not used for long.
func TestFuncSinkForgetsOldChunks(t *testing.T) {
	t.Parallel()
	s := newBook().funcSink(t)
	chunk := func(i int64) topic.Event { return win("spring", 1+i*chunkPackets, "u") }
	require.Equal(t, 1, push(t, s, chunk(0)).Done)
	for i := range int64(rememberedChunks) {
		require.Equal(t, Report{Next: 2, Done: 1, Repeated: 1}, push(t, s, chunk(i+1), chunk(0)), "chunk 0 is used")
	}
	require.Equal(t, Report{Next: 1, Repeated: 1}, push(t, s, chunk(1)), "at least this many chunks are remembered")
	for i := range int64(2 * rememberedChunks) {
		push(t, s, chunk(i+2*rememberedChunks))
	}
	for _, shard := range s.shards {
		require.LessOrEqual(t, len(shard.used), rememberedChunks)
		require.LessOrEqual(t, len(shard.older), rememberedChunks)
	}
	require.Equal(t, Report{Next: 1, Done: 1}, push(t, s, chunk(0)), "forgotten")
}

// A batch may have more chunks than one statement has rows.
func TestSQLBatchOfManyChunks(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		s := db.sink(t, nil)
		var batch []topic.Event
		for i := range int64(2*rowsPerStatement + 1) {
			batch = append(batch, win("spring", 1+i*chunkPackets, "u"))
		}
		n := len(batch)
		require.Equal(t, Report{Next: n, Done: n}, push(t, s, batch...))
		require.Equal(t, Report{Next: n, Repeated: n}, push(t, db.sink(t, nil), batch...))
	})
}
