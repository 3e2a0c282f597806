package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
)

// The list has the campaigns by the phase of their life; only those that rain have a line of the last minute, with a gap
// where nothing was read.
func TestCampaignsByPhase(t *testing.T) {
	t.Parallel()
	now := rainAt.Add(time.Minute)
	at := func(id, state string, from time.Duration, samples ...model.Sample) model.Campaign {
		return model.Campaign{ID: id, Status: state, From: now.Add(from), To: now.Add(from + 10*time.Minute), Samples: samples}
	}
	samples := []model.Sample{{At: rainAt, Granted: new(int64(10))}, {At: rainAt.Add(time.Second), Granted: new(int64(30))},
		{At: rainAt.Add(2 * time.Second)}, {At: rainAt.Add(3 * time.Second), Granted: new(int64(70))},
		{At: rainAt.Add(4 * time.Second), Granted: new(int64(80))}}
	groups := phasesOf([]model.Campaign{at("rains", "open", -time.Minute, samples...), at("gone", "refunded", -time.Hour),
		at("new", "created", time.Hour), at("next", "not_started", time.Hour), at("paused", "paused", -time.Minute),
		at("sold", "sold_out", -time.Minute), at("over", "ended", -time.Hour), at("closed", "closed", -time.Minute), at("dark", model.Unread, -time.Minute)}, now)
	var names []string
	for _, g := range groups {
		for _, c := range g.List {
			names = append(names, g.Code+" "+c.ID)
		}
	}
	require.Equal(t, []string{"raining rains", "raining paused", "raining sold", "raining dark", "upcoming next", "created new",
		"over over", "over closed", "ended gone"}, names)
	first := groups[0].List[0]
	require.InDelta(t, 10, *first.Rate, 1e-9)
	require.Len(t, first.Spark, 2, "of four rates, two are not known")
	require.InDelta(t, 24, first.Spark[0].H, 1e-9)
	require.Nil(t, groups[0].List[1].Rate)
}
