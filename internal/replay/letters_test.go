package replay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/internal/shards"
)

var ann = replay.Decider{By: "ann", Why: "mended,\nby hand"}

// buried is a world with dead letters of sink kafka: seqs 3, 4 (permanent) and 7 (conflict) of shard 0, 5 of shard 1,
// and an entry that can't be read (B38).
func buried(t *testing.T) *world {
	t.Helper()
	w := setup(t)
	w.add(t, 10)
	w.bury(t, 0, 3, hongbao.ClassPermanent)
	w.bury(t, 0, 4, hongbao.ClassPermanent)
	w.bury(t, 0, 7, hongbao.ClassConflict)
	w.bury(t, 1, 5, hongbao.ClassPermanent)
	w.buryEntry(t, "v", "1", "k", "grant", "c", "rain", "forged", "1")
	return w
}

func TestListLetters(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.letters(t)
	page := list(t, l, replay.LetterFilter{})
	require.Equal(t, "0-3 0-4 0-7 0-0 1-5", idsOf(page))
	for name, c := range map[string]struct {
		filter replay.LetterFilter
		want   string
	}{
		"class":    {replay.LetterFilter{Class: "permanent"}, "0-3 0-4 0-0 1-5"},
		"campaign": {replay.LetterFilter{Campaign: "rain"}, "0-4 0-0"},
		"user":     {replay.LetterFilter{User: "u5"}, "1-5"},
		"from":     {replay.LetterFilter{From: page[2].Last, Campaign: "snow", Class: "conflict"}, "0-7"},
		"to":       {replay.LetterFilter{To: page[0].Last}, ""},
		"future":   {replay.LetterFilter{From: time.Now().Add(time.Hour)}, ""},
	} {
		require.Equal(t, c.want, idsOf(list(t, l, c.filter)), name)
	}
	var paged []replay.Letter
	for after, pages := "", 0; ; pages++ {
		require.Less(t, pages, 4)
		some, next, err := l.List(t.Context(), replay.LetterFilter{Sinks: []string{"balance", "kafka"}}, after, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(some), 2)
		paged = append(paged, some...)
		if after = next; next == "" {
			break
		}
	}
	require.Equal(t, page, paged, "pages leave nothing out and give nothing twice")
	for _, f := range []replay.LetterFilter{
		{Sinks: []string{"no:sink"}}, {Class: "bad"}, {Campaign: "no campaign"}, {User: "two words"},
		{From: page[0].Last, To: page[0].Last},
	} {
		_, _, err := l.List(t.Context(), f, "", 10)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
}

// show gives the whole entry, also when the stream has it no more.
func TestGetLetter(t *testing.T) {
	t.Parallel()
	w := buried(t)
	require.NoError(t, w.rdb.XTrimMaxLen(t.Context(), w.space.Shard(0).Events(), 0).Err())
	l := w.letters(t)
	page := list(t, l, replay.LetterFilter{})
	one, err := l.Get(t.Context(), page[0].ID)
	require.NoError(t, err)
	require.Equal(t, page[0], one)
	g := grant(0, 3)
	g.EntryID = one.Entry
	require.Equal(t, &g, one.Grant)
	require.Equal(t, "permanent", one.Class)
	require.Equal(t, "no, \"never\"\nagain", one.Reason)
	require.Equal(t, int64(3), one.Attempts)
	require.Equal(t, []string{"v", "1", "k", "grant", "c", "snow", "q", "3"}, one.Fields[:8])
	require.False(t, one.First.IsZero())
	require.True(t, one.Last.After(one.First))
	whole, err := l.Get(t.Context(), page[3].ID)
	require.NoError(t, err)
	require.Nil(t, whole.Grant)
	require.Equal(t, []string{"v", "1", "k", "grant", "c", "rain", "forged", "1"}, whole.Fields)
	for id, says := range map[string]string{
		"": "want <sink>", "kafka/0": "want <sink>", "kafka/x/1-1": "want <sink>", "kafka/0/1": "want <sink>",
		"kafka/-1/1-1": "want <sink>",
		"k:a/0/1-1":    "want <sink>", "kafka/9/1-1": "shards 0 to 1", "kafka/0/1-1": "no_such_dead_letter",
	} {
		_, err := l.Get(t.Context(), id)
		require.ErrorContains(t, err, says, id)
	}
}

// Each letter is delivered once and ended, whole, with who and why.
func TestRequeue(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.letters(t)
	cfg := replay.RequeueConfig{Handler: w.target, BatchGrants: 2, Patience: time.Second}
	kafka := replay.LetterFilter{Sinks: []string{"kafka"}}
	before := w.dump(t)
	cfg.DryRun = true
	report, err := l.Requeue(t.Context(), cfg, replay.Pick{Filter: kafka}, ann)
	require.NoError(t, err)
	require.Equal(t, before, w.dump(t))
	require.Zero(t, w.target.calls)
	require.Equal(t, int64(5), report.Matched)
	require.Equal(t, int64(1), report.Unreadable)

	cfg.DryRun = false
	page := list(t, l, replay.LetterFilter{})
	report, err = l.Requeue(t.Context(), cfg, replay.Pick{IDs: []string{page[4].ID}, Filter: kafka}, ann)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Decided)
	require.Equal(t, map[string]int{"1-5": 1}, w.target.copies, "one")
	permanent := kafka
	permanent.Class = "permanent"
	report, err = l.Requeue(t.Context(), cfg, replay.Pick{Filter: permanent}, ann)
	require.NoError(t, err)
	require.Equal(t, int64(2), report.Decided, "all of a class")
	require.Equal(t, map[string]int{"1-5": 1, "0-3": 1, "0-4": 1}, w.target.copies)
	require.Equal(t, "0-7 0-0", idsOf(list(t, l, replay.LetterFilter{})))

	log, err := shards.Of(w.rdb, w.space.Shard(0)).DecidedLetters(t.Context(), "kafka", "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, log, 2)
	require.Equal(t, []string{"decision", "requeued", "by", "ann", "why", "mended,\nby hand"}, log[0].Values[2:8])
	require.Contains(t, log[0].Values, "entry.g")

	w.target.before = func(_ int, grants []hongbao.Grant) []error {
		return []error{hongbao.Errorf(hongbao.ClassPermanent, "no again")}
	}
	report, err = l.Requeue(t.Context(), cfg, replay.Pick{Filter: kafka}, ann)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Failed)
	require.Contains(t, report.Failures[0].Letter, "kafka/0/")
	require.Equal(t, "0-7 0-0", idsOf(list(t, l, replay.LetterFilter{})), "what is refused again stays as it was")
	for _, who := range []replay.Decider{{}, {By: "ann"}, {Why: "x"}, {By: "a b", Why: "x"},
		{By: "ann", Why: strings.Repeat("x", 1001)}} {
		_, err := l.Requeue(t.Context(), cfg, replay.Pick{Filter: kafka}, who)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		_, err = l.Drop(t.Context(), replay.Pick{Filter: kafka}, who, false)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
}

// Killed between the delivery and the end of the letter, a requeue is done again and the handler has the grant a second
// time: nothing is lost, and the sink makes it harmless.
func TestRequeueKilled(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.letters(t)
	cfg := replay.RequeueConfig{Handler: w.target, BatchGrants: 1, Patience: time.Second}
	kafka := replay.Pick{Filter: replay.LetterFilter{Sinks: []string{"kafka"}}}
	kills := 0
	for run := 1; run < 20; run++ {
		ctx, cancel := context.WithCancel(t.Context())
		left := run % 3
		w.target.before = func(int, []hongbao.Grant) []error {
			if left--; left == 0 {
				kills++
				cancel() // the sink takes it, and then nothing more happens
			}
			return nil
		}
		_, err := l.Requeue(ctx, cfg, kafka, ann)
		cancel()
		if err == nil {
			break
		}
		require.ErrorContains(t, err, "run it again to go on")
	}
	require.Equal(t, "0-0", idsOf(list(t, l, replay.LetterFilter{})))
	require.Positive(t, kills)
	for _, id := range []string{"0-3", "0-4", "0-7", "1-5"} {
		require.Positive(t, w.target.copies[id], id)
	}
	var log int64
	for shard := range shardCount {
		log += w.rdb.XLen(t.Context(), w.space.Shard(shard).Decided("kafka")).Val()
	}
	require.Equal(t, int64(4), log, "each letter is ended once")
	t.Logf("killed %d times", kills)
}

func TestDrop(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.letters(t)
	whole := list(t, l, replay.LetterFilter{})[3]
	before := w.dump(t)
	report, err := l.Drop(t.Context(), replay.Pick{IDs: []string{whole.ID}}, ann, true)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Matched)
	require.Equal(t, before, w.dump(t))
	report, err = l.Drop(t.Context(), replay.Pick{IDs: []string{whole.ID}}, ann, false)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Decided)
	_, err = l.Drop(t.Context(), replay.Pick{IDs: []string{whole.ID}}, ann, false)
	require.ErrorIs(t, err, replay.ErrNoLetter)
	require.Equal(t, "0-3 0-4 0-7 1-5", idsOf(list(t, l, replay.LetterFilter{})))
	log, err := shards.Of(w.rdb, w.space.Shard(0)).DecidedLetters(t.Context(), "kafka", "-", "+", 10)
	require.NoError(t, err)
	require.Contains(t, strings.Join(log[0].Values, " "), "decision dropped by ann")
	require.Contains(t, strings.Join(log[0].Values, " "), "entry.forged 1")
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "1 of 1 letters were dropped")
}

// Dead letters are a source of replays as well; they stay.
func TestReplayOfDeadLetters(t *testing.T) {
	t.Parallel()
	w := buried(t)
	report := w.run(t, w.config("dead"), replay.Options{Dead: "kafka", Filter: replay.Filter{Campaign: "snow"}})
	require.True(t, report.Finished)
	require.Equal(t, map[string]int{"0-3": 1, "0-7": 1, "1-5": 1}, w.target.copies)
	require.Equal(t, int64(1), report.Unreadable)
	require.Len(t, list(t, w.letters(t), replay.LetterFilter{}), 5)
	report = w.run(t, w.config("dead"), replay.Options{Dead: "kafka", Filter: replay.Filter{Campaign: "snow"}})
	require.Equal(t, int64(3), report.Before)
	require.Zero(t, report.Delivered)
}

// Lost picks what the sink has finished and does not have: neither what is on its way, nor dead letters, nor what has
// expired.
func TestLost(t *testing.T) {
	t.Parallel()
	w := buried(t) // dead: 0-3 0-4 0-7 1-5
	l := w.letters(t)
	_, err := l.Drop(t.Context(), replay.Pick{IDs: []string{list(t, l, replay.LetterFilter{})[1].ID}}, ann, false) // 0-4
	require.NoError(t, err)
	for shard := range shardCount {
		_, err := shards.Of(w.rdb, w.space.Shard(shard)).Ack(t.Context(), "kafka", []hongbao.SeqRange{{First: 1, Last: 8}},
			nil)
		require.NoError(t, err)
	}
	lost, err := replay.FindLost(t.Context(), w.rdb, w.space, "kafka")
	require.NoError(t, err)
	// delivered while the sink is read
	_, err = shards.Of(w.rdb, w.space.Shard(0)).Ack(t.Context(), "kafka", []hongbao.SeqRange{{First: 9, Last: 9}}, nil)
	require.NoError(t, err)
	for _, seq := range []int64{2, 5, 8} {
		for shard := range shardCount {
			g := grant(shard, seq)
			lost.Has(&g)
		}
	}
	lost.Has(&hongbao.Grant{Shard: 7, Seq: 1})
	lost.Expired(1) // keeps events from 2 on
	var picked []string
	for shard := range shardCount {
		for seq := int64(1); seq <= 10; seq++ {
			if g := grant(shard, seq); lost.Picks(&g) {
				picked = append(picked, g.EventID())
			}
		}
	}
	require.Equal(t, []string{"0-1", "0-6", "1-3", "1-4", "1-6", "1-7"}, picked)
	cfg := w.config("mend")
	cfg.Only = lost.Picks
	require.Equal(t, int64(6), w.run(t, cfg, replay.Options{}).Delivered)
	require.False(t, lost.Picks(&hongbao.Grant{Shard: 7, Seq: 1}))
	require.Equal(t, 1, w.target.copies["0-6"])
	require.Len(t, w.target.copies, 6, fmt.Sprint(w.target.copies))
}
