package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// An operator decides about a dead letter twice. Only the first decision counts, and the resolved letter has all
// fields of the dead letter.
func TestDecide(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	deadLetter(t, b)
	letters, err := b.k.Group("kafka").Letters(ctx, "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	d := store.Resolution{Sink: "kafka", Letter: letters[0].ID, What: model.LetterRequeued, Decision: by("ann", "fixed")}
	for _, want := range []bool{true, false} {
		decided, err := b.k.ResolveLetter(ctx, &d)
		require.NoError(t, err)
		require.Equal(t, want, decided)
	}
	require.Zero(t, b.rdb.XLen(ctx, b.k.Keys.Dead("kafka")).Val())
	log, err := b.k.Group("kafka").ResolvedLetters(ctx, "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, log, 1)
	v := log[0].Values
	require.Equal(t, []string{"letter", letters[0].ID, "decision", "requeued", "by", "ann", "why", "fixed", "resolved"},
		v[:9])
	require.Equal(t, letters[0].Values, v[10:])
}

// A replay is begun and begun again with other arguments. The events that it covers stay the same.
func TestBeginReplay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	_, found, err := b.k.LookUpReplay(ctx, "r1")
	require.NoError(t, err)
	require.False(t, found)
	b.events(t, "rain", 2, 1)
	last, err := b.k.LastSeq(ctx)
	require.NoError(t, err)
	first, err := b.k.BeginReplay(ctx, "r1", "all", 0)
	require.NoError(t, err)
	require.Equal(t, store.Replay{Covers: "all", Last: last, Begun: first.Begun, Epoch: 1}, first)
	require.NoError(t, b.rdb.HIncrBy(ctx, b.k.Keys.Meta(), "seq", 5).Err())
	again, err := b.k.BeginReplay(ctx, "r1", "less", 1)
	require.NoError(t, err)
	require.Equal(t, first, again)
	has, found, err := b.k.LookUpReplay(ctx, "r1")
	require.NoError(t, err)
	require.True(t, found)
	require.WithinDuration(t, time.Now(), has.Begun, time.Minute)
	require.Equal(t, first, has)
	short, err := b.k.BeginReplay(ctx, "r2", "some", 1)
	require.NoError(t, err)
	require.Equal(t, int64(1), short.Last)
}

// A claim checks the done bits of a different sink. Complete sets the bits of both sinks.
func TestClaimWithOtherDoneBits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 2*store.ChunkEvents)
	ctx := t.Context()
	_, err := b.k.Group("kafka").Ack(ctx, ranges, nil)
	require.NoError(t, err)
	c := claimCall("c1", "w1")
	c.Done = "requeue-kafka"
	a, err := b.k.Claim(ctx, c)
	require.NoError(t, err)
	require.True(t, a.Granted(), "kafka's own bits are not checked")
	more := append(stream.OfCampaign("rain", stream.SeqRange{First: 9, Last: 9}), ranges...)
	require.NoError(t, b.k.Group("kafka").Complete(ctx, &stream.Claim{ID: "c1", Fence: a.Fence}, more,
		store.Also{Sink: "requeue-kafka"}))
	for _, sink := range []string{"kafka", "requeue-kafka"} {
		done, err := b.k.Group(sink).Done(ctx, stream.SeqRange{First: 1, Last: store.ChunkEvents})
		require.NoError(t, err)
		for _, seq := range []int64{1, 2, 9, store.ChunkEvents - 1, store.ChunkEvents} {
			require.True(t, done.Has(seq), "%s %d", sink, seq)
		}
		require.False(t, done.Has(3))
	}
	a, err = b.k.Claim(ctx, c)
	require.NoError(t, err)
	require.Equal(t, claimRanges, a.Done)
}

// After a claim was made, two of its events became dead letters, and trimming deleted the bit of one of them. Complete
// marks both for requeues, and no other event.
func TestCompleteMarksDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reached(t, 3*store.ChunkEvents)
	ctx := t.Context()
	c := claimCall("c1", "w1")
	c.Events = []stream.SeqRange{{First: 7, Last: 7}, {First: store.ChunkEvents, Last: store.ChunkEvents + 20}}
	a, err := b.k.Claim(ctx, c)
	require.NoError(t, err)
	require.True(t, a.Granted())
	letter := int64(store.ChunkEvents + 9)
	done := stream.OfCampaign("", stream.SeqRange{First: 7, Last: 7}, stream.SeqRange{First: letter, Last: letter})
	_, err = b.k.Group("kafka").Ack(ctx, done, nil)
	require.NoError(t, err)
	require.NoError(t, b.k.RaiseDoneFloor(ctx, 0, 1, []string{"kafka"}))
	require.NoError(t, b.k.Group("kafka").Complete(ctx, &stream.Claim{ID: "c1", Fence: a.Fence}, stream.OfCampaign("rain", c.Events...),
		store.Also{Sink: "requeue-kafka", Letters: true}))
	for chunk := range int64(3) {
		all := stream.SeqRange{First: chunk * store.ChunkEvents, Last: (chunk+1)*store.ChunkEvents - 1}
		done, err := b.k.Group("kafka").Done(ctx, all)
		require.NoError(t, err)
		marked, err := b.k.Group("requeue-kafka").Done(ctx, all)
		require.NoError(t, err)
		for seq := all.First; seq <= all.Last; seq++ {
			require.Equal(t, covers(c.Events, seq), done.Has(seq), "done %d", seq)
			require.Equal(t, seq == 7 || seq == letter, marked.Has(seq), "marked %d", seq)
		}
	}
}

func covers(events []stream.SeqRange, seq int64) bool {
	return slices.ContainsFunc(events, func(r stream.SeqRange) bool { return r.Has(seq) })
}
