package recovery_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
)

// moves adds a duration to a time in ms.
func moves(t *testing.T, ms string, by time.Duration) string {
	t.Helper()
	n, err := strconv.ParseInt(ms, 10, 64)
	require.NoError(t, err)
	return strconv.FormatInt(n+by.Milliseconds(), 10)
}

// moveEntry moves the time of the last entry, and its id. Redis' later ids are not lower.
func (w *world) moveEntry(t *testing.T, by time.Duration) {
	t.Helper()
	events := w.shard().Keys.Events()
	last, err := w.rdb.XRevRangeN(t.Context(), events, "+", "-", 1).Result()
	require.NoError(t, err)
	require.NoError(t, w.rdb.XDel(t.Context(), events, last[0].ID).Err())
	ms, _, _ := strings.Cut(last[0].ID, "-")
	for version, text := range last[0].Values {
		head, body, _ := strings.Cut(fmt.Sprint(text), "\n")
		words := strings.Split(head, " ")
		words[4] = moves(t, words[4], by)
		require.NoError(t, w.rdb.Do(t.Context(), "XADD", events, moves(t, ms, by)+"-0", version,
			strings.Join(words, " ")+"\n"+body).Err())
	}
}

// moveLines moves the times of all registrations, and when the last one was written.
func (w *world) moveLines(t *testing.T, by time.Duration) {
	t.Helper()
	ctx, keys := t.Context(), w.shard().Keys
	watched := w.rdb.HGet(ctx, keys.Meta(), "watched").Val()
	require.NoError(t, w.rdb.HSet(ctx, keys.Meta(), "watched", moves(t, watched, by)).Err())
	for process, line := range w.rdb.HGetAll(ctx, keys.Witnesses()).Val() {
		at, sent, _ := strings.Cut(line, " ")
		require.NoError(t, w.rdb.HSet(ctx, keys.Witnesses(), process, moves(t, at, by)+" "+sent).Err())
	}
}

// Redis' clock was ahead and was corrected, and then Redis loses grants. A process that registered after the correction
// has reported some of them to users, and is silent. Its packets are withheld: it is not too old to have to report, and
// an old file is not new.
func TestClockOfRedisWasAhead(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]func(t *testing.T, w *world, silent *process){
		"Redis still has the process's registration": func(t *testing.T, w *world, silent *process) {
			t.Helper()
			w.moveEntry(t, 8*time.Hour)
			w.moveLines(t, 8*time.Hour)
			silent.wins(t, 1)
		},
		"the file is older than the correction": func(t *testing.T, w *world, _ *process) {
			t.Helper()
			w.moveEntry(t, 8*time.Hour)
			w.moveLines(t, 8*time.Hour)
		},
		// The clock was ahead by a minute, and the file is a minute old. So the last entry seems to be new.
		"the file is as old as the clock was ahead": func(t *testing.T, w *world, silent *process) {
			t.Helper()
			silent.wins(t, 1)
			w.moveLines(t, -time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p, silent := w.process(t), w.process(t)
			won := p.wins(t, 10)
			file(t, w, silent)
			old := w.older(t)
			unreported, known := silent.wins(t, 5), p.wins(t, 1)
			w.restart(t, old)
			p.watch(t)
			w.restores(t, w.guarded(), won, known)
			require.Subset(t, w.withheld(t), packetsOf(unreported))
			w.adds(t)
			w.wakes(t, silent, unreported)
			require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
		})
	}
}

// Redis' clock was ahead. The topic is read from before the first event that Redis may have lost: from the last
// registration, or from the beginning if even that is in the future.
func TestTopicIsAskedFromNoFutureTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(t *testing.T, w *world)
		from  func(since, began time.Time) bool
	}{
		"only the entries": {
			func(t *testing.T, w *world) { t.Helper(); w.moveEntry(t, 8*time.Hour) },
			func(since, began time.Time) bool {
				return since.After(began.Add(-2*time.Minute)) && since.Before(began)
			},
		},
		"the registrations, too": {
			func(t *testing.T, w *world) { t.Helper(); w.moveEntry(t, 8*time.Hour); w.moveLines(t, 8*time.Hour) },
			func(since, _ time.Time) bool { return since.IsZero() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			began := time.Now()
			w.grab(t, w.rdb, 10)
			c.plant(t, w)
			asks := &asked{topic{highest: 10}, make(chan time.Time, 1)}
			w.rec = w.recoverer(func(c *recovery.Config) { c.Topic = asks })
			w.restart(t, "")
			reports, err := w.rec.Reports(t.Context())
			require.NoError(t, err)
			require.True(t, reports[0].Frozen)
			since := <-asks.since
			require.True(t, c.from(since, began), "what a person sees: %s", since)
			w.opens(t)
			since = <-asks.since
			require.True(t, c.from(since, began), "the restore: %s", since)
			require.Equal(t, map[hongbao.Outcome]int{hongbao.OutcomeGranted: 1}, outcomes(w.grab(t, w.rdb, 1)))
		})
	}
}

// No process has written a registration for hours. A close and an opening still show until when Redis has everything.
func TestLastWriteOfAQuietShard(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.grab(t, w.rdb, 10)
	for name, writes := range map[string]func(){
		"a close": func() {
			_, err := w.shard().Place(id).Close(t.Context(), true, 0)
			require.NoError(t, err)
		},
		"an opening": func() {
			w.restart(t, "")
			w.opens(t)
		},
	} {
		w.moveLines(t, -3*time.Hour)
		before := w.rdb.Time(t.Context()).Val().Truncate(time.Millisecond)
		writes()
		last, err := w.shard().LastWrite(t.Context())
		require.NoError(t, err)
		require.WithinRange(t, last.Wrote, before, w.rdb.Time(t.Context()).Val(), name)
	}
}
