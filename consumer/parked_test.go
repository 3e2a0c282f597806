package consumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

// parks reads n new entries as a worker that then parks them.
func (b *bundle) parks(t *testing.T, n int, as store.Parking) {
	t.Helper()
	for n > 0 {
		raw, err := b.keys().Group(group).ReadNew(t.Context(), "parks", min(n, 2_000), 0)
		require.NoError(t, err)
		require.NotEmpty(t, raw)
		list := make([]store.Parking, len(raw))
		for i := range raw {
			list[i] = as
			list[i].ID = raw[i].ID
		}
		moved, err := b.keys().Group(group).Park(t.Context(), "parks", list)
		require.NoError(t, err)
		require.Equal(t, len(list), moved)
		n -= len(list)
	}
}

// A shard has 200,000 parked entries: half of them wait for a campaign that is paused for the sink, half of them failed,
// and it is not yet time to try them again. The entries of a worker that was killed are delivered within two leases, as
// if there were no parked ones. The parked ones count as backlog, one event each; finished events between them do not.
func TestManyParkedEntriesDelayNoOthers(t *testing.T) {
	t.Parallel()
	const many, killed = 100_000, 50
	b, _ := setupOwn(t, 1)
	k := b.keys()
	_, err := k.Group(group).Create(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
	for range 2 * many / 1_000 {
		b.add(t, 0, repeat(1, 1_000)...)
	}
	_, _, err = k.Group(group).PauseCampaign(t.Context(), "rain", annSays("the budget is disputed"))
	require.NoError(t, err)
	b.parks(t, many, store.Parking{Campaign: "rain"})
	b.parks(t, many, store.Parking{Level: 3, Wait: time.Hour, Attempts: 3})
	b.addTo(t, "snow", killed)
	b.vanish(t, "killed", killed)
	_, err = loaded.Seeded(t.Context(), b.store, loaded.Rain("gale", 1_000_000, 1_000_000), campaign.NewSeed())
	require.NoError(t, err)
	require.NoError(t, b.rdb.ConfigSet(t.Context(), "slowlog-log-slower-than", "1000").Err())
	require.NoError(t, b.rdb.Do(t.Context(), "SLOWLOG", "RESET").Err())

	s := newSink(nil)
	cfg := b.config(t, "w", s)
	cfg.Lease, cfg.BatchGrants, cfg.MaxBackoff = 10*time.Second, 500, time.Hour
	began := time.Now()
	w := start(t, cfg)
	paid := func() bool {
		for seq := int64(2*many + 1); seq <= 2*many+killed; seq++ {
			if _, did := s.times(seq); did == 0 {
				return false
			}
		}
		return true
	}
	var took []time.Duration
	for n := 0; !paid() || n < 1_000; n++ {
		require.Less(t, time.Since(began), 2*cfg.Lease, "two leases")
		at := time.Now()
		a, err := k.Place("gale").Grab(t.Context(), &store.GrabCall{MaxBacklog: 4 * many,
			Grabs: []*hongbao.Grab{{Campaign: "gale", User: fmt.Sprintf("u%d", n)}}}, nil)
		took = append(took, time.Since(at))
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeGranted, a[0].Outcome)
	}
	within := time.Since(began)
	testkit.Eventually(t, soon, func() bool { return s.size() == killed+len(took) }, "the new grants are delivered")
	tr, _ := b.trimmer(t, group)
	out, err := tr.trim(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 2*many, out.Seq-out.Finished, "the backlog is what is parked")
	slowest := time.Duration(0)
	slow, err := b.rdb.SlowLogGet(t.Context(), 100).Result()
	require.NoError(t, err)
	for i := range slow {
		slowest = max(slowest, slow[i].Duration)
	}
	require.EqualValues(t, killed, w.Stats().Taken)
	slices.Sort(took)
	t.Logf("delivered within %v; %d grabs, p99 %v; the slowest command took %v (0: less than 1 ms)", within, len(took),
		took[len(took)*99/100], slowest)
	require.NoError(t, w.stop())
}
