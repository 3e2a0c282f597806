package recovery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis comes back from an old file, sinks were paused, and the process that answered users since is silent. So no
// source knows of a loss. The margin is withheld: as many packets as the shard granted just before its last write. The
// users of the silent process get theirs once it reports, and the report does not freeze the shard again.
func TestSilentProcessAndNoKnownLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_, silent := w.process(t), w.process(t)
	silent.wins(t, 11)
	old := w.older(t)
	unreported := silent.wins(t, 5)
	w.restart(t, old)
	w.restores(t, w.guarded())
	withheld := w.withheld(t)
	require.Len(t, withheld, 11, "the margin")
	require.Subset(t, withheld, packetsOf(unreported))
	opened := w.logs.FilterMessageSnippet("no loss is known").All()
	require.Len(t, opened, 1)
	require.Contains(t, opened[0].Message, "packets withheld: 11, see `hongbao hole list`")
	require.Equal(t, "redis_restored", opened[0].ContextMap()["code"])
	list, err := w.rec.Restored(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []int64{0, 11, 11}, []int64{list[0].First, list[0].Margin, list[0].Withheld})
	ids, err := w.ledger.Withholding(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids)
	require.Len(t, w.grab(t, w.rdb, 20), 20)
	w.wakes(t, silent, unreported)
	require.Len(t, w.withheld(t), 6)
	require.Empty(t, silent.alarms)
	w.adds(t)
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
}

// Redis loses its first grants of a campaign, and the process that reported most of them to users is silent. The
// campaign is younger than the margin, so the few known grants tell its rate only if they count for its age.
func TestMarginAtTheStartOfACampaign(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p, silent := w.process(t), w.process(t)
	old := w.older(t)
	won := p.wins(t, 3)
	unreported := silent.wins(t, 4)
	w.restart(t, old)
	p.watch(t)
	w.restores(t, w.guarded(func(c *recovery.Config) { c.Ledger, c.Margin = w.ledger, time.Minute }), won)
	require.Subset(t, w.withheld(t), packetsOf(unreported))
	w.wakes(t, silent, unreported)
}

// Redis loses the very first grants of a campaign, and no source knows one of them. A process had answered users before,
// so it may have reported these grants, too.
func TestMarginOfACampaignWithoutAKnownGrant(t *testing.T) {
	t.Parallel()
	w := setup(t)
	silent := w.process(t)
	stop := silent.watch(t)
	silent.wins(t, 1)
	last := w.rdb.Time(t.Context()).Val()
	testkit.Eventually(t, 10*time.Second, func() bool {
		return w.rdb.Time(t.Context()).Val().Sub(last) > time.Second
	}, "nobody has grabbed for a second")
	w.looks(t, silent) // it still writes its registrations
	stop()
	w.fund(t, "next", 0)
	old := w.older(t)
	for i := range 4 {
		storetest.Grab(t, w.over(silent.rdb).Shard(0), "next", fmt.Sprintf("u%d/r", i))
	}
	w.restart(t, old)
	w.restores(t, w.guarded(func(c *recovery.Config) { c.Ledger, c.Margin = w.ledger, 500*time.Millisecond }))
	list, err := w.shard().Place("next").Withheld(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(list), 4)
}

// Redis loses an opening that withheld a margin, and later grants of its epoch. A process saw these, and nobody knows
// them. The next opening withholds first what the lost one withheld: the later grants are behind it.
func TestGrantsBehindALostMargin(t *testing.T) {
	t.Parallel()
	w := setup(t)
	silent := w.process(t)
	silent.wins(t, 11)
	old := w.older(t)
	unreported := packetsOf(silent.wins(t, 5))
	w.restart(t, old)
	w.restores(t, w.guarded())
	require.Len(t, w.withheld(t), 11)
	next := w.seq(t) + 1
	for number, amount := range packetsOf(silent.wins(t, 3)) {
		unreported[number] = amount
	}
	w.restart(t, old)
	w.saw(t, 0)
	w.sawIn(t, 2, next+2)
	w.restores(t, w.guarded())
	require.Subset(t, w.withheld(t), unreported)
	require.Len(t, w.withheld(t), 11+3+11, "the lost margin, three unknown events, and the margin")
	require.Zero(t, w.logs.FilterMessageSnippet("ALARM").Len())
	w.adds(t)
}

// Redis restarts from its complete file at night, and a process that may have answered users is silent. No packet was
// granted for longer than the margin, so none is withheld: not in a campaign over several shards either.
func TestQuietRestartAtNight(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 4)
	wide := w.idAt(0)
	w.fundOver(t, wide, 0, 2)
	silent := w.process(t)
	stop := silent.watch(t)
	places := w.store.Places(wide, 2)
	w.grantOn(t, wide, places)
	for _, k := range places {
		storetest.Grab(t, w.over(silent.rdb).Shard(k.Index()), wide, fmt.Sprintf("silent%d/r", k.Index()))
	}
	last := w.rdb.Time(t.Context()).Val()
	night := func(c *recovery.Config) { c.Margin = 100 * time.Millisecond }
	testkit.Eventually(t, 10*time.Second, func() bool {
		return w.rdb.Time(t.Context()).Val().Sub(last) > time.Second
	}, "nobody has grabbed for a second")
	w.looks(t, silent) // it still writes its registrations
	stop()
	w.restart(t, "")
	r := w.guarded(night)
	for shard := range 4 {
		testkit.Eventually(t, 20*time.Second, func() bool {
			require.NoError(t, r.OpenFrozen(t.Context(), shard))
			_, err := w.store.Shard(shard).OpenHead(t.Context())
			return err == nil
		}, "shard %d is open", shard)
	}
	require.Empty(t, w.withheld(t))
	for _, k := range places {
		list, err := k.Withheld(t.Context())
		require.NoError(t, err)
		require.Empty(t, list)
	}
	require.NotEmpty(t, w.logs.FilterMessageSnippet("no loss is known").All())
	require.Zero(t, w.logs.FilterMessageSnippet("packets withheld").Len())
	answers, err := w.store.Shard(0).Place(wide).Grab(t.Context(), storetest.Call(wide, "late/r"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeGranted, answers[0].Outcome)
}

// Without a margin a person decides about a loss. If no loss is known, there is nothing to decide: the shard opens.
func TestNoMarginAndNoKnownLoss(t *testing.T) {
	t.Parallel()
	w := setup(t)
	silent := w.process(t)
	silent.wins(t, 5)
	w.restart(t, "")
	w.restores(t, w.guarded(func(c *recovery.Config) { c.Margin = 0 }))
	require.Empty(t, w.withheld(t))
	require.NotEmpty(t, w.logs.FilterMessageSnippet("no loss is known").All())
}

// Redis restarts from a complete file, and every process reports. A server without an append-only file may have loaded
// an older dump, which lacks the registration of a process that has died since. So the margin is withheld there.
func TestQuietRestartWithoutAnAppendOnlyFile(t *testing.T) {
	t.Parallel()
	for appendOnly, margin := range map[string]int{"yes": 0, "no": 11} {
		t.Run(appendOnly, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			p := w.process(t)
			p.wins(t, 11)
			w.restart(t, "")
			require.NoError(t, w.rdb.ConfigSet(t.Context(), "appendonly", appendOnly).Err())
			p.watch(t)
			w.restores(t, w.guarded())
			require.Len(t, w.withheld(t), margin)
		})
	}
}
