package replay_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// Trimmed grants come from the ledger, all others from the stream. Each grant is delivered once, unchanged, and in the
// order of the seqs.
func TestStreamThenLedger(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 300)
	w.trim(t, 0, 101)
	require.NoError(t, w.Redis.Del(t.Context(), w.Store.Shard(1).Keys.Events()).Err()) // the whole stream
	report := w.run(t, w.config("copy"), replay.Options{})
	require.True(t, report.Finished)
	require.Equal(t, w.events(all), w.Target.Copies)
	require.Equal(t, model.ReplayCounts{FromStream: 200, FromLedger: 400}, report.ReplayCounts)
	require.Equal(t, int64(600), report.Events)
	require.Equal(t, int64(600), report.Looked)
	var last [deadlettertest.Shards]int64
	for _, g := range w.Target.Got {
		require.Equal(t, deadlettertest.Grant(g.Shard, g.Seq), g)
		require.Greater(t, g.Seq, last[g.Shard])
		last[g.Shard] = g.Seq
	}

	again := w.run(t, w.config("copy"), replay.Options{})
	require.True(t, again.Finished)
	require.Zero(t, again.Delivered)
	require.Equal(t, int64(600), again.Before)
	require.Equal(t, w.events(all), w.Target.Copies, "the second run delivers nothing")
}

// Entries are trimmed from the stream before the replay has read them. The replay reads their grants from the ledger.
func TestTrimmedMeanwhile(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 2000)
	cfg := w.config("copy")
	cfg.Parallel = 1
	w.Target.Before = func(calls int, grants []hongbao.Grant) []error {
		if g := grants[0]; calls%7 == 0 && g.Seq+400 < 2000 {
			w.trim(t, g.Shard, g.Seq+400)
		}
		return nil
	}
	report := w.run(t, cfg, replay.Options{})
	require.Equal(t, w.events(all), w.Target.Copies)
	require.Positive(t, report.FromLedger)
	require.Equal(t, int64(4000), report.FromLedger+report.FromStream)
	require.Zero(t, report.NotFound)
}

// The stream has unreadable entries, a close, and seqs without a grant. The replay counts them, and delivers all
// grants. At an entry of a newer build it stops.
func TestGapsAreTold(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 50)
	k := w.Store.Shard(0)
	require.NoError(t, w.Redis.XDel(t.Context(), k.Keys.Events(), "1700000000002-10", "1700000000002-11").Err()) // seqs 10 and 11
	// The ledger lacks seq 10.
	w.ledger.grants[0] = append(w.ledger.grants[0][:9:9], w.ledger.grants[0][10:]...)
	w.BuryEntry(t, "x", "1")
	require.NoError(t, w.Redis.XAdd(t.Context(), newEntry(k, "1", "what ever")).Err())
	require.NoError(t, w.Redis.XAdd(t.Context(), newEntry(k, "1", "close rain 51 1 1700000100000\n1 2 3 4")).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Meta(), "seq", 51).Err())
	report := w.run(t, w.config("copy"), replay.Options{})
	want := w.events(func(g *hongbao.Grant) bool { return g.EventID() != "0-10" })
	require.Equal(t, want, w.Target.Copies)
	require.Equal(t, model.ReplayCounts{FromStream: 98, FromLedger: 1, NotFound: 1, Unreadable: 1}, report.ReplayCounts)

	require.NoError(t, w.Redis.XAdd(t.Context(), newEntry(k, "4", "new words")).Err())
	require.NoError(t, w.Redis.HSet(t.Context(), k.Keys.Meta(), "seq", 60).Err())
	r, err := replay.New(w.config("newer"))
	require.NoError(t, err)
	_, err = r.Run(t.Context(), replay.Options{})
	require.ErrorIs(t, err, stream.ErrNewerEntry, "the replay stops at a newer entry")
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 200)
	w.trim(t, 0, 90)
	one := 1
	at := func(seq int64) time.Time { return time.UnixMilli(deadlettertest.Began + seq*1000).UTC() }
	for name, c := range map[string]struct {
		filter replay.Filter
		pick   func(g *hongbao.Grant) bool
	}{
		"campaign": {replay.Filter{Campaign: "rain"}, func(g *hongbao.Grant) bool { return g.Campaign == "rain" }},
		"user":     {replay.Filter{User: "u3"}, func(g *hongbao.Grant) bool { return g.User == "u3" }},
		"time": {replay.Filter{From: at(50), To: at(120)},
			func(g *hongbao.Grant) bool { return g.Seq >= 50 && g.Seq < 120 }},
		"shard": {replay.Filter{Shard: &one}, func(g *hongbao.Grant) bool { return g.Shard == 1 }},
		"seqs": {replay.Filter{Shard: &one, Seqs: stream.SeqRange{First: 77, Last: 131}},
			func(g *hongbao.Grant) bool { return g.Shard == 1 && g.Seq >= 77 && g.Seq <= 131 }},
		"seqs beyond the last": {replay.Filter{Shard: &one, Seqs: stream.SeqRange{First: 199, Last: 500}},
			func(g *hongbao.Grant) bool { return g.Shard == 1 && g.Seq >= 199 }},
		"all at once": {replay.Filter{Shard: &one, Seqs: stream.SeqRange{First: 5, Last: 150}, Campaign: "snow", User: "u5",
			From: at(20), To: at(96)},
			func(g *hongbao.Grant) bool {
				return g.Shard == 1 && g.Seq >= 20 && g.Seq < 96 && g.Campaign == "snow" && g.User == "u5"
			}},
		"no user": {replay.Filter{User: "absent"}, func(*hongbao.Grant) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := w.config(strings.ReplaceAll(name, " ", "-"))
			mine := &deadlettertest.Target{Copies: map[string]int{}}
			cfg.Handler = mine
			want := w.events(c.pick)
			report := w.run(t, cfg, replay.Options{Filter: c.filter})
			require.Equal(t, want, mine.Copies)
			require.Equal(t, int64(len(want)), report.Matched)
			require.True(t, report.Finished)
		})
	}
}

// A dry run counts the grants that a run would deliver. It writes nothing to Redis or the target.
func TestDryRun(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	before := storetest.Dump(t, w.Store)
	dry := w.run(t, w.config("copy"), replay.Options{DryRun: true, Filter: replay.Filter{Campaign: "rain"}})
	require.Equal(t, before, storetest.Dump(t, w.Store))
	require.Zero(t, w.Target.Calls)
	require.Equal(t, int64(100), dry.Matched)
	require.Zero(t, dry.Delivered)
	var text strings.Builder
	require.NoError(t, dry.Write(&text))
	require.Contains(t, text.String(), "It would deliver 100 of 100 grants")

	wet := w.run(t, w.config("copy"), replay.Options{Filter: replay.Filter{Campaign: "rain"}})
	require.Equal(t, dry.Matched, wet.Delivered, "the run delivers what the dry run counted")
	before = storetest.Dump(t, w.Store)
	dry = w.run(t, w.config("copy"), replay.Options{DryRun: true, Filter: replay.Filter{Campaign: "rain"}})
	require.Equal(t, int64(100), dry.Before)
	require.Equal(t, before, storetest.Dump(t, w.Store))
}

// A name keeps the range and target of its first run. Another range or target is refused, and later grants are not
// covered.
func TestNameKeepsItsRange(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 30)
	w.run(t, w.config("copy"), replay.Options{})
	w.Add(t, 30)
	report := w.run(t, w.config("copy"), replay.Options{})
	require.Equal(t, []int64{30, 30}, report.Last)
	require.Len(t, w.Target.Copies, 60)
	other := w.config("copy")
	other.Target = "elsewhere"
	for _, c := range []struct {
		cfg  replay.Config
		opts replay.Options
	}{{w.config("copy"), replay.Options{Filter: replay.Filter{User: "u1"}}}, {other, replay.Options{}},
		{w.config("copy"), replay.Options{Dead: "kafka"}}} {
		r, err := replay.New(c.cfg)
		require.NoError(t, err)
		_, err = r.Run(t.Context(), c.opts)
		require.ErrorIs(t, err, replay.ErrOtherReplay)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
	}
	w.run(t, w.config("copy-2"), replay.Options{})
	require.Equal(t, 2, w.Target.Copies["0-1"], "another name delivers everything again")
}

// A replay is stopped repeatedly at random points, and finishes with the same result. Its Handler ignores grants that
// it already has, as the ledger does.
func TestStoppedAnywhere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 1000)
	w.trim(t, 0, 400)
	stops := 0
	for ; ; stops++ {
		require.Less(t, stops, 1000)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := rand.IntN(12)
		w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
			if left--; left < 0 {
				cancel(errStopped)
				errs := make([]error, len(grants))
				for i := rand.IntN(len(grants)); i < len(errs); i++ {
					errs[i] = hongbao.Errorf(hongbao.ClassUnknown, "%w", errStopped)
				}
				return errs
			}
			for i, g := range grants {
				if w.Target.Copies[g.EventID()] > 0 { // delivered before, so it is ignored
					w.Target.Copies[g.EventID()] = 0
					grants[i].Trace = "again"
				}
			}
			return nil
		}
		r, err := replay.New(w.config("copy"))
		require.NoError(t, err)
		report, err := r.Run(ctx, replay.Options{})
		cancel(nil)
		if err == nil {
			require.True(t, report.Finished)
			break
		}
		require.False(t, report.Finished)
		require.ErrorContains(t, err, "start it again under this name")
	}
	require.Greater(t, stops, 10)
	require.Equal(t, w.events(all), w.Target.Copies)
	t.Logf("stopped %d times", stops)
}

var errStopped = errors.New("stopped")

// Two grants can't be delivered. The report names them, all others are delivered, and the next run tries them again.
func TestFailuresAreNamed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	bad := map[string]bool{"0-33": true, "1-77": true}
	shared := hongbao.Errorf(hongbao.ClassConflict, "a claim in the way")
	w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
		errs := make([]error, len(grants))
		found := false
		for i := range grants {
			found = found || bad[grants[i].EventID()]
			errs[i] = shared // an error of the whole batch, so the replay halves the batch
		}
		if found {
			return errs
		}
		return nil
	}
	report := w.run(t, w.config("copy"), replay.Options{})
	require.False(t, report.Finished)
	require.Equal(t, int64(2), report.Failed)
	require.Equal(t, int64(198), report.Delivered)
	for _, f := range report.Failures {
		require.True(t, bad[f.Event])
		require.Equal(t, "conflict", f.Class)
	}
	var text strings.Builder
	require.NoError(t, report.Write(&text))
	require.Contains(t, text.String(), "event 0-33")
	require.Contains(t, text.String(), "NOT finished")

	clear(bad)
	report = w.run(t, w.config("copy"), replay.Options{})
	require.True(t, report.Finished)
	require.Equal(t, int64(2), report.Delivered)
	require.Equal(t, w.events(all), w.Target.Copies)
}

// A replay waits for the end of an outage. An outage that is longer than Patience ends the run, and the next run
// continues.
func TestOutage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	down := func(from, to int) func(int, []hongbao.Grant) []error {
		return func(calls int, grants []hongbao.Grant) []error {
			if calls < from || calls > to {
				return nil
			}
			errs := make([]error, len(grants))
			for i := range errs {
				errs[i] = hongbao.Outagef(hongbao.ClassTransient, "down")
			}
			return errs
		}
	}
	w.Target.Before = down(3, 5)
	cfg := w.config("copy")
	cfg.Parallel = 1
	require.True(t, w.run(t, cfg, replay.Options{Filter: replay.Filter{Campaign: "rain"}}).Finished)
	w.Target.Before = down(w.Target.Calls+2, 1e9)
	cfg = w.config("copy-2")
	cfg.Patience = 0
	r, err := replay.New(cfg)
	require.NoError(t, err)
	report, err := r.Run(t.Context(), replay.Options{Filter: replay.Filter{Campaign: "snow"}})
	require.ErrorContains(t, err, "unreachable")
	require.True(t, hongbao.IsOutage(err))
	require.Zero(t, report.Failed, "an outage refuses no grant")
	w.Target.Before = nil
	require.True(t, w.run(t, cfg, replay.Options{Filter: replay.Filter{Campaign: "snow"}}).Finished)
	require.Equal(t, w.events(all), w.Target.Copies)
}

// The Handler sets the sink's done bits itself. The replay delivers the grants without a done bit, and sets none.
func TestDoneBitsOfTheSinkItself(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 50)
	for shard := range deadlettertest.Shards {
		_, err := w.Store.Shard(shard).Group("kafka").Ack(t.Context(),
			stream.OfCampaign("", stream.SeqRange{First: 1, Last: 20}, stream.SeqRange{First: 30, Last: 50}), nil)
		require.NoError(t, err)
	}
	cfg := w.config("repair")
	cfg.DoneSink, cfg.Marks = "kafka", true
	report := w.run(t, cfg, replay.Options{})
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Seq > 20 && g.Seq < 30 }), w.Target.Copies)
	require.Equal(t, int64(82), report.Before)
	done, err := w.Store.Shard(0).Group("kafka").Done(t.Context(), stream.SeqRange{First: 21, Last: 21})
	require.NoError(t, err)
	require.False(t, done.Has(21))
}
