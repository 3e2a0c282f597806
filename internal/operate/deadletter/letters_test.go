package deadletter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

var ann = stream.Decision{By: "ann", Why: `fixed, "by hand", 修好了`}

// buried returns a world with dead letters of sink kafka: seqs 3, 4 (permanent) and 7 (conflict) of shard 0, seq 5 of
// shard 1, and an entry that can't be read.
func buried(t *testing.T) *deadlettertest.World {
	t.Helper()
	w := deadlettertest.Setup(t)
	w.Add(t, 10)
	w.Bury(t, 0, 3, hongbao.ClassPermanent)
	w.Bury(t, 0, 4, hongbao.ClassPermanent)
	w.Bury(t, 0, 7, hongbao.ClassConflict)
	w.Bury(t, 1, 5, hongbao.ClassPermanent)
	w.BuryEntry(t, "3", "grant rain forged")
	return w
}

func TestListLetters(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	page := deadlettertest.List(t, l, deadletter.Filter{})
	require.Equal(t, "0-3 0-4 0-7 0-0 1-5", idsOf(page))
	for name, c := range map[string]struct {
		filter deadletter.Filter
		want   string
	}{
		"class":    {deadletter.Filter{Class: "permanent"}, "0-3 0-4 0-0 1-5"},
		"campaign": {deadletter.Filter{Campaign: "rain"}, "0-4 0-0"},
		"user":     {deadletter.Filter{User: "u5"}, "1-5"},
		"from":     {deadletter.Filter{From: page[2].Last, Campaign: "snow", Class: "conflict"}, "0-7"},
		"to":       {deadletter.Filter{To: page[0].Last}, ""},
		"future":   {deadletter.Filter{From: time.Now().Add(time.Hour)}, ""},
	} {
		require.Equal(t, c.want, idsOf(deadlettertest.List(t, l, c.filter)), name)
	}
	var paged []model.Letter
	for after, pages := "", 0; ; pages++ {
		require.Less(t, pages, 4)
		some, next, err := l.List(t.Context(), deadletter.Filter{Sinks: []string{"balance", "kafka"}}, after, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(some), 2)
		paged = append(paged, some...)
		if after = next; next == "" {
			break
		}
	}
	require.Equal(t, page, paged, "each letter is on one page")
	for _, f := range []deadletter.Filter{
		{Sinks: []string{"no:sink"}}, {Class: "bad"}, {Campaign: "no campaign"}, {User: "two words"},
		{From: page[0].Last, To: page[0].Last},
	} {
		_, _, err := l.List(t.Context(), f, "", 10)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
}

// Get returns the whole letter, even after its entry was trimmed from the stream.
func TestGetLetter(t *testing.T) {
	t.Parallel()
	w := buried(t)
	require.NoError(t, w.Redis.XTrimMaxLen(t.Context(), w.Store.Shard(0).Keys.Events(), 0).Err())
	l := w.Letters()
	page := deadlettertest.List(t, l, deadletter.Filter{})
	one, err := l.Get(t.Context(), page[0].ID)
	require.NoError(t, err)
	require.Equal(t, page[0], one)
	g := deadlettertest.Grant(0, 3)
	g.EntryID = one.Entry
	require.Equal(t, &g, one.Grant)
	require.Equal(t, "permanent", one.Class)
	require.Equal(t, "no, \"never\"\nagain", one.Reason)
	require.Equal(t, int64(3), one.Attempts)
	require.Equal(t, "3", one.Fields[0])
	require.True(t, strings.HasPrefix(one.Fields[1], "grant snow 3 "), one.Fields[1])
	require.False(t, one.First.IsZero())
	require.True(t, one.Last.After(one.First))
	whole, err := l.Get(t.Context(), page[3].ID)
	require.NoError(t, err)
	require.Nil(t, whole.Grant)
	require.Equal(t, []string{"3", "grant rain forged"}, whole.Fields)
	for id, says := range map[string]string{
		"": "want <sink>", "kafka/0": "want <sink>", "kafka/x/1-1": "want <sink>", "kafka/0/1": "want <sink>",
		"kafka/-1/1-1": "want <sink>",
		"k:a/0/1-1":    "want <sink>", "kafka/9/1-1": "shards 0 to 1", "kafka/0/1-1": "no_such_dead_letter",
	} {
		_, err := l.Get(t.Context(), id)
		require.ErrorContains(t, err, says, id)
	}
}

func TestLetterHasItsCurrency(t *testing.T) {
	t.Parallel()
	w := deadlettertest.Setup(t)
	g := deadlettertest.Grant(0, 1)
	require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: w.Store.Shard(0).Keys.Events(),
		ID: fmt.Sprintf("%d-1", int64(deadlettertest.Began)), Values: []string{"3",
			fmt.Sprintf("grant snow 1 1 %d CNY\n%s\n9 9 u9 - -", g.Time.UnixMilli(), store.GrantLine(&g))}}).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), w.Store.Shard(0).Keys.Meta(), "seq", 2).Err())
	w.Bury(t, 0, 1, hongbao.ClassPermanent)
	letter := deadlettertest.List(t, w.Letters(), deadletter.Filter{})[0]
	require.Equal(t, "CNY", letter.Grant.Currency)
	require.Equal(t, int64(1), letter.Grant.Seq)
	require.Equal(t, 1, strings.Count(letter.Fields[1], "\n"), "the letter has only its own grant")
}

// A letter of another version has no grant, so no requeue delivers it. An audit still finds its campaign, packet and
// seq.
func TestLetterOfAnotherVersion(t *testing.T) {
	t.Parallel()
	w := deadlettertest.Setup(t)
	w.Add(t, 3)
	w.Bury(t, 0, 3, hongbao.ClassPermanent)
	key := w.Store.Shard(0).Keys.Dead("kafka")
	rows, err := w.Redis.XRange(t.Context(), key, "-", "+").Result()
	require.NoError(t, err)
	require.Equal(t, "2", rows[0].Values["v"])
	require.NotNil(t, deadlettertest.List(t, w.Letters(), deadletter.Filter{})[0].Grant)
	for _, version := range []string{"1", "3", ""} {
		rows[0].Values["v"] = version
		require.NoError(t, w.Redis.XTrimMaxLen(t.Context(), key, 0).Err())
		require.NoError(t, w.Redis.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: rows[0].Values}).Err())
		letter := deadlettertest.List(t, w.Letters(), deadletter.Filter{})[0]
		require.Nil(t, letter.Grant, "version %q", version)
		facts, ok := letter.Facts()
		require.True(t, ok)
		require.Equal(t, []any{"snow", int64(3)}, []any{facts.Campaign, facts.Seq})
	}
}

// A dry run delivers nothing. A requeue delivers each selected letter once, and the resolved letter keeps all fields
// and gets the person and the reason. A letter that the sink refuses again stays.
func TestRequeue(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 2, Patience: time.Second}
	kafka := deadletter.Filter{Sinks: []string{"kafka"}}
	before := storetest.Dump(t, w.Store)
	report, err := l.Requeue(t.Context(), cfg, deadletter.Pick{Filter: kafka}, ann, true)
	require.NoError(t, err)
	require.Equal(t, before, storetest.Dump(t, w.Store))
	require.Zero(t, w.Target.Calls)
	require.Equal(t, int64(5), report.Matched)
	require.Equal(t, int64(1), report.Unreadable)

	page := deadlettertest.List(t, l, deadletter.Filter{})
	report, err = l.Requeue(t.Context(), cfg, deadletter.Pick{IDs: []string{page[4].ID}, Filter: kafka}, ann, false)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Resolved)
	require.Equal(t, map[string]int{"1-5": 1}, w.Target.Copies, "one letter was requeued")
	permanent := kafka
	permanent.Class = "permanent"
	report, err = l.Requeue(t.Context(), cfg, deadletter.Pick{Filter: permanent}, ann, false)
	require.NoError(t, err)
	require.Equal(t, int64(2), report.Resolved, "both permanent letters were requeued")
	require.Equal(t, map[string]int{"1-5": 1, "0-3": 1, "0-4": 1}, w.Target.Copies)
	require.Equal(t, "0-7 0-0", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))

	log, err := w.Store.Shard(0).Group("kafka").ResolvedLetters(t.Context(), "-", "+", 10)
	require.NoError(t, err)
	require.Len(t, log, 2)
	require.Equal(t, []string{"decision", "requeued", "by", "ann", "why", ann.Why}, log[0].Values[2:8])
	require.Contains(t, log[0].Values, "entry.3")

	w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
		return []error{hongbao.Errorf(hongbao.ClassPermanent, "no again")}
	}
	report, err = l.Requeue(t.Context(), cfg, deadletter.Pick{Filter: kafka}, ann, false)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Failed)
	require.Contains(t, report.Failures[0].Letter, "kafka/0/")
	require.Equal(t, "0-7 0-0", idsOf(deadlettertest.List(t, l, deadletter.Filter{})), "a letter that is refused again stays")
	for _, who := range []stream.Decision{{}, {By: "ann"}, {By: "ann", Why: " "}, {Why: "x"}, {By: "a b", Why: "x"},
		{By: "ann", Why: strings.Repeat("x", stream.MaxWhy+1)}} {
		_, err := l.Requeue(t.Context(), cfg, deadletter.Pick{Filter: kafka}, who, false)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		_, err = l.Drop(t.Context(), deadletter.Pick{Filter: kafka}, who, false)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	}
}

// A requeue also delivers letters of a campaign that is paused for their sink, so that a person can try one letter
// before resuming the campaign. A letter that the sink refuses again stays. The campaign stays paused in both cases.
func TestRequeueOfAPausedCampaign(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	for shard := range deadlettertest.Shards {
		k := w.Store.Shard(shard)
		_, _, err := k.Group("kafka").PauseCampaign(t.Context(), "snow",
			stream.Decision{By: "hongbao", Why: "1000 dead letters within a minute"})
		require.NoError(t, err)
	}
	refuse := true
	w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
		if !refuse {
			return nil
		}
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "no account")
		}
		return errs
	}
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 2, Patience: time.Second}
	one := deadletter.Pick{IDs: []string{deadlettertest.List(t, l, deadletter.Filter{})[0].ID}}
	one.Filter.Sinks = []string{"kafka"}
	for _, want := range []int64{0, 1} {
		report, err := l.Requeue(t.Context(), cfg, one, ann, false)
		require.NoError(t, err)
		require.Equal(t, []int64{want, 1 - want}, []int64{report.Resolved, report.Failed})
		require.Len(t, deadlettertest.List(t, l, deadletter.Filter{}), 5-int(want))
		refuse = false
	}
	for shard := range deadlettertest.Shards {
		list, err := w.Store.Shard(shard).Group("kafka").PausedCampaigns(t.Context())
		require.NoError(t, err)
		require.True(t, list[0].Paused)
	}
}

// A requeue is killed between the delivery and the resolution of a letter, and run again. Each letter is resolved once;
// its grant may be delivered twice, which the sink ignores.
func TestRequeueKilled(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 1, Patience: time.Second}
	kafka := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}}
	kills := 0
	for run := 1; run < 20; run++ {
		ctx, cancel := context.WithCancel(t.Context())
		left := run % 3
		w.Target.Before = func(int, []hongbao.Grant) []error {
			if left--; left == 0 {
				kills++
				cancel() // the sink takes the grant, and then the requeue is killed
			}
			return nil
		}
		_, err := l.Requeue(ctx, cfg, kafka, ann, false)
		cancel()
		if err == nil {
			break
		}
		require.ErrorContains(t, err, "run it again to continue")
	}
	require.Equal(t, "0-0", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))
	require.Positive(t, kills)
	for _, id := range []string{"0-3", "0-4", "0-7", "1-5"} {
		require.Positive(t, w.Target.Copies[id], id)
	}
	var log int64
	for shard := range deadlettertest.Shards {
		log += w.Redis.XLen(t.Context(), w.Store.Shard(shard).Keys.ResolvedLetters("kafka")).Val()
	}
	require.Equal(t, int64(4), log, "each letter is resolved once")
	t.Logf("killed %d times", kills)
}

// A requeue ends too early. Its report names the letter after which the next call continues, so letters that the sink
// has refused are not delivered again.
func TestRequeueGoesOn(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	page := deadlettertest.List(t, l, deadletter.Filter{})
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 2, Patience: time.Second}
	pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}}
	ctx, cancel := context.WithCancel(t.Context())
	var seen []string
	refuse := func(_ int, grants []hongbao.Grant) []error {
		errs := make([]error, len(grants))
		for i, g := range grants {
			seen = append(seen, g.EventID())
			errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "no, %s", g.EventID())
		}
		return errs
	}
	w.Target.Before = func(calls int, grants []hongbao.Grant) []error {
		if calls == 2 {
			cancel()
		}
		return refuse(calls, grants)
	}
	report, err := l.Requeue(ctx, cfg, pick, ann, false)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, page[1].ID, report.Next, "the result of the second batch is unknown")
	require.EqualValues(t, 2, report.Failed)

	w.Target.Before, seen = refuse, nil
	pick.After = string(report.Next)
	report, err = l.Requeue(t.Context(), cfg, pick, ann, false)
	require.NoError(t, err)
	require.Equal(t, []string{"0-7", "1-5"}, seen, "letters up to Next are not tried again")
	require.Empty(t, report.Next)
	require.EqualValues(t, 3, report.Matched)
	require.EqualValues(t, 1, report.Unreadable)
	dry, err := l.Requeue(t.Context(), cfg, pick, ann, true)
	require.NoError(t, err)
	require.EqualValues(t, 3, dry.Matched)

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	for after, next := range map[string]string{"": "kafka/0/0-0", page[2].ID: page[2].ID} {
		pick.After = after
		report, err = l.Requeue(stopped, cfg, pick, ann, false)
		require.ErrorIs(t, err, context.Canceled)
		require.EqualValues(t, next, report.Next, "no letter was processed")
	}
	pick.After = "kafka/0/0-0"
	report, err = l.Drop(t.Context(), pick, ann, true)
	require.NoError(t, err)
	require.EqualValues(t, 5, report.Matched, "0-0 is before all letters")
	pick.After = page[3].ID
	report, err = l.Drop(t.Context(), pick, ann, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Resolved)
	require.Equal(t, "0-3 0-4 0-7 0-0", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))
	require.Error(t, l.CheckAfter(&pick.Filter, "balance/0/1-1"))
	require.Error(t, l.CheckAfter(&pick.Filter, "kafka/7/1-1"))
}

// An open claim has the grant of a letter, so the topic may have the grant or still get it. The letter can't be dropped
// before the claim has ended. Other letters can.
func TestDropDuringAPush(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	claims, err := w.Store.Claims(store.ClaimsConfig{Sink: "kafka", Done: "requeue-kafka", Owner: "w1", Lease: time.Minute})
	require.NoError(t, err)
	a, err := claims.Claim(t.Context(), stream.Opening{Shard: 0}, "c1",
		[]stream.SeqRange{{First: 3, Last: 3}, {First: 7, Last: 9}}, "")
	require.NoError(t, err)
	require.True(t, a.Granted())
	letters := deadlettertest.List(t, l, deadletter.Filter{})
	require.Equal(t, "0-3 0-4 0-7 0-0 1-5", idsOf(letters))
	pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}}
	report, err := l.Drop(t.Context(), pick, ann, false)
	require.NoError(t, err)
	require.Equal(t, []int64{5, 3, 2}, []int64{report.Matched, report.Resolved, report.Failed})
	require.Equal(t, "0-3 0-7", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))
	require.Equal(t, letters[0].ID, report.Failures[0].Letter)
	require.Contains(t, report.Failures[0].Error, "claim kafka/0/c1 has the grant")

	require.NoError(t, claims.Release(t.Context(), stream.Opening{Shard: 0}, stream.Claim{ID: "c1", Fence: a.Fence}))
	report, err = l.Drop(t.Context(), pick, ann, false)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2, 0}, []int64{report.Matched, report.Resolved, report.Failed})
}

func TestDrop(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	whole := deadlettertest.List(t, l, deadletter.Filter{})[3]
	before := storetest.Dump(t, w.Store)
	report, err := l.Drop(t.Context(), deadletter.Pick{IDs: []string{whole.ID}}, ann, true)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Matched)
	require.Equal(t, before, storetest.Dump(t, w.Store))
	report, err = l.Drop(t.Context(), deadletter.Pick{IDs: []string{whole.ID}}, ann, false)
	require.NoError(t, err)
	require.Equal(t, int64(1), report.Resolved)
	_, err = l.Drop(t.Context(), deadletter.Pick{IDs: []string{whole.ID}}, ann, false)
	require.ErrorIs(t, err, deadletter.ErrNoLetter)
	require.Equal(t, "0-3 0-4 0-7 1-5", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))
	log, err := w.Store.Shard(0).Group("kafka").ResolvedLetters(t.Context(), "-", "+", 10)
	require.NoError(t, err)
	require.Contains(t, strings.Join(log[0].Values, " "), "decision dropped by ann")
	require.Contains(t, strings.Join(log[0].Values, " "), "entry.3 grant rain forged")
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "1 of 1 letter was dropped")
}

// A filter by class conflict selects forged entries, and credits that a remote balance system may have booked. The dry
// run names both, because a drop of such a credit returns its money to the sponsor, also if the user has it.
func TestDropNamesForgedEntriesAndCreditsInDoubt(t *testing.T) {
	t.Parallel()
	w := buried(t)
	w.Bury(t, 1, 2, hongbao.ClassConflict)
	w.BuryEntryAs(t, hongbao.ClassConflict, "3", "grant rain forged")
	l := w.Letters()
	pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"balance", "kafka"}, Class: "conflict"}}
	report, err := l.Drop(t.Context(), pick, ann, true)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1, 2}, []int64{report.Matched, report.Forged, report.InDoubt})
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "\nOf these, class conflict: 1 forged entry, and 2 grants.\n")
	require.Contains(t, text.String(), "ask the owners first")
	pick.Filter.Class = "permanent"
	report, err = l.Drop(t.Context(), pick, ann, true)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 0, 0}, []int64{report.Matched, report.Forged, report.InDoubt})
}

// A shard opens with a new epoch while one of its letters is delivered. The requeue fails with ErrStale, and the letter
// stays.
func TestRequeueOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	w := buried(t)
	w.Target.Before = func(calls int, _ []hongbao.Grant) []error {
		for shard := range deadlettertest.Shards {
			if calls == 2 {
				require.NoError(t, w.Redis.HSet(t.Context(), w.Store.Shard(shard).Keys.Meta(), "epoch", 2).Err())
			}
		}
		return nil
	}
	l := w.Letters()
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 1, Patience: time.Second}
	pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}}
	report, err := l.Requeue(t.Context(), cfg, pick, ann, false)
	require.ErrorIs(t, err, store.ErrStale)
	require.EqualValues(t, 1, report.Resolved)
	require.Equal(t, "0-4 0-7 0-0 1-5", idsOf(deadlettertest.List(t, l, deadletter.Filter{})))
	report, err = l.Requeue(t.Context(), cfg, pick, ann, false)
	require.NoError(t, err)
	require.EqualValues(t, 3, report.Resolved)
}

// A person drops a letter while a requeue delivers its grant. The report counts the letter as gone, not as resolved.
func TestLettersThatAreGoneAreReported(t *testing.T) {
	t.Parallel()
	w := buried(t)
	l := w.Letters()
	page := deadlettertest.List(t, l, deadletter.Filter{})
	w.Target.Before = func(int, []hongbao.Grant) []error {
		_, err := l.Drop(t.Context(), deadletter.Pick{IDs: []string{page[1].ID}}, ann, false)
		require.NoError(t, err)
		return nil
	}
	cfg := delivery.Options{Handler: w.Target, BatchGrants: 2, Patience: time.Second}
	report, err := l.Requeue(t.Context(), cfg, deadletter.Pick{IDs: []string{page[1].ID}}, ann, false)
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Gone)
	require.Zero(t, report.Resolved)
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "1 were decided before: another decision ended them first")
	require.Contains(t, text.String(), "They were delivered all the same")
}

// A letter is written after CheckExpected has counted the letters. It is not decided, because the person's expected
// number does not include it.
func TestOnlyCountedLettersAreDecided(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for _, requeue := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %t, requeue %t", after, requeue), func(t *testing.T) {
				t.Parallel()
				w := deadlettertest.Setup(t)
				w.Add(t, 10)
				w.Bury(t, 0, 3, hongbao.ClassPermanent)
				w.Bury(t, 0, 4, hongbao.ClassPermanent)
				l := w.Letters()
				n := int64(2)
				pick := deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{"kafka"}}, Expect: &n}
				if after {
					pick.After, n = deadlettertest.List(t, l, deadletter.Filter{})[0].ID, 1
				}
				require.NoError(t, l.CheckExpected(t.Context(), &pick))
				w.Bury(t, 0, 7, hongbao.ClassPermanent)
				w.Bury(t, 1, 5, hongbao.ClassPermanent) // the first letter on shard 1
				var report *model.LetterReport
				var err error
				if requeue {
					cfg := delivery.Options{Handler: w.Target, BatchGrants: 2, Patience: time.Second}
					report, err = l.Requeue(t.Context(), cfg, pick, ann, false)
				} else {
					report, err = l.Drop(t.Context(), pick, ann, false)
				}
				require.NoError(t, err)
				require.Empty(t, report.Next)
				require.Equal(t, n, report.Resolved)
				left := deadlettertest.List(t, l, deadletter.Filter{})
				require.Equal(t, "0-7 1-5", idsOf(left[len(left)-2:]))
			})
		}
	}
}
