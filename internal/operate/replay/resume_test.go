package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter/deadlettertest"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
)

// A run is stopped, and the next run continues where it stopped. After a finished run, the next run processes
// everything again.
func TestGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 4000)
	w.trim(t, 1, 2000)
	broken := func(_ int, grants []hongbao.Grant) []error {
		errs := make([]error, len(grants))
		for i, g := range grants {
			if g.Seq >= 3000 {
				errs[i] = hongbao.Errorf(hongbao.ClassBroken, "enough for today")
			}
		}
		if grants[len(grants)-1].Seq < 3000 {
			return nil
		}
		return errs
	}
	w.Target.Before = broken
	cfg := w.config("copy")
	cfg.Parallel = 1 // so that an error on one shard does not stop the other at a random point
	r, err := replay.New(cfg)
	require.NoError(t, err)
	first, err := r.Run(t.Context(), replay.Options{})
	require.ErrorContains(t, err, "enough for today")
	require.EqualValues(t, 2999, first.Delivered)
	require.Zero(t, first.Resumed)

	dry := w.run(t, cfg, replay.Options{DryRun: true})
	w.Target.Before = nil
	second := w.run(t, cfg, replay.Options{})
	require.Greater(t, second.Resumed, int64(1000), "shard 0 was processed almost up to seq 3000")
	require.Equal(t, dry.Resumed, second.Resumed)
	require.LessOrEqual(t, second.FromStream+second.FromLedger, 8000-second.Resumed, "no earlier event was read")
	require.EqualValues(t, 8000, second.Events)
	require.EqualValues(t, 8000, second.Looked)
	require.EqualValues(t, 8000-2999, second.Delivered)
	require.True(t, second.Finished)
	require.Equal(t, w.events(all), w.Target.Copies)

	third := w.run(t, cfg, replay.Options{})
	require.Zero(t, third.Resumed)
	require.EqualValues(t, 8000, third.Before)
	require.EqualValues(t, 8000, third.FromStream+third.FromLedger)
}

// A grant could not be delivered. The next run continues before this grant, and delivers it.
func TestGoesOnBeforeAFailure(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 4000)
	var fails string
	w.Target.Before = func(_ int, grants []hongbao.Grant) []error {
		errs := make([]error, len(grants))
		for i := range grants {
			if grants[i].EventID() == fails {
				errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "not this one")
			}
		}
		return errs
	}
	fails = "0-2500"
	report := w.run(t, w.config("copy"), replay.Options{})
	require.EqualValues(t, 1, report.Failed)
	fails = ""
	report = w.run(t, w.config("copy"), replay.Options{})
	require.EqualValues(t, 1, report.Delivered)
	require.Positive(t, report.Resumed)
	require.Less(t, report.Resumed, int64(2500))
	require.Equal(t, w.events(all), w.Target.Copies)
}

func TestTimeRangeIsFoundWithoutReadingTheRest(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 4000)
	w.trim(t, 0, 3500) // shard 0 has the range in the ledger, shard 1 in the stream
	at := func(seq int64) time.Time { return time.UnixMilli(deadlettertest.Began + seq*1000).UTC() }
	report := w.run(t, w.config("minute"), replay.Options{Filter: replay.Filter{From: at(2000), To: at(2060)}})
	require.EqualValues(t, 2*60, report.Delivered)
	require.Equal(t, w.events(func(g *hongbao.Grant) bool { return g.Seq >= 2000 && g.Seq < 2060 }), w.Target.Copies)
	const slack = 10 * 60 // five minutes on both sides, with one grant per second
	require.LessOrEqual(t, report.Events, int64(2*(60+slack+20)))
	require.LessOrEqual(t, report.FromStream+report.FromLedger, report.Events)
	require.Positive(t, report.FromStream)
	require.Positive(t, report.FromLedger)

	for name, f := range map[string]replay.Filter{"before": {To: at(-3600)}, "after": {From: at(4000 + 3600)}} {
		report = w.run(t, w.config(name), replay.Options{Filter: f})
		require.Zero(t, report.Delivered)
		require.LessOrEqual(t, report.Events, int64(20), name)
	}
	report = w.run(t, w.config("since"), replay.Options{Filter: replay.Filter{From: at(3600)}})
	require.EqualValues(t, 2*401, report.Delivered)
	cfg := w.config("no-ledger")
	cfg.Ledger = nil
	report = w.run(t, cfg, replay.Options{Filter: replay.Filter{From: at(2000), To: at(2060)}})
	require.EqualValues(t, 60, report.Delivered, "only the stream's grants are found")
}

// A replay to the ledger counts separately the grants that it delivered and those that the ledger already had.
func TestTellsDeliveredFromWhatWasThere(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 100)
	w.ledger.grants[0] = w.ledger.grants[0][:70]
	other := deadlettertest.Grant(1, 5)
	other.Packet = 1 << 40
	w.ledger.grants[1][4] = other // another packet with the same seq is another grant
	cfg := w.config("repair")
	cfg.Settles = true
	dry := w.run(t, cfg, replay.Options{DryRun: true})
	wet := w.run(t, cfg, replay.Options{})
	for _, r := range []*model.ReplayReport{dry, wet} {
		require.EqualValues(t, 200, r.Matched)
		require.EqualValues(t, 169, r.There)
	}
	require.Zero(t, dry.Delivered)
	require.EqualValues(t, 31, wet.Delivered)
	require.Len(t, w.Target.Copies, 200, "the ledger gets all grants")
	var text strings.Builder
	require.NoError(t, dry.Write(&text))
	require.NoError(t, wet.Write(&text))
	require.Contains(t, text.String(), "It would deliver 31 of 200 grants; 0 were delivered before, 169 are there.")
	require.Contains(t, text.String(), "31 grants delivered now, 169 were there, 0 delivered before")
}

// Redis keeps the record of a replay, without the id of the user in the filter.
func TestTheRecordHasNoUser(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Add(t, 20)
	opts := replay.Options{Filter: replay.Filter{User: "u3"}}
	first := w.run(t, w.config("copy"), opts)
	require.Positive(t, first.Delivered)
	for shard := range deadlettertest.Shards {
		key := w.Store.Shard(shard).Keys.Replay("copy")
		text := w.Redis.HGet(t.Context(), key, "covers").Val()
		require.Contains(t, text, `"user":"sha256:`)
		require.NotContains(t, text, "u3")
	}
	require.Zero(t, w.run(t, w.config("copy"), opts).Delivered)
}
