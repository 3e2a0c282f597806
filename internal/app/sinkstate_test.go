package app

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A sink is working only if a worker is alive and no grant has waited for long. In every other state Why is set.
func TestSinkState(t *testing.T) {
	t.Parallel()
	oldest := func(seconds float64) *float64 { return &seconds }
	shards, alive, gone := []ShardStatus{{}}, SinkWorker{Alive: true}, SinkWorker{Seen: 361}
	for name, c := range map[string]struct {
		status SinkStatus
		state  SinkState
		why    string
	}{
		"idle":            {SinkStatus{Shards: shards, Workers: []SinkWorker{gone, alive}}, SinkWorking, ""},
		"busy":            {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Waiting: 5_773, Oldest: oldest(2)}, SinkWorking, ""},
		"the target away": {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Waiting: 800, Oldest: oldest(45)}, SinkBehind, "waited for 45s"},
		"its worker gone": {SinkStatus{Shards: shards, Workers: []SinkWorker{gone}, Waiting: 5_773, Oldest: oldest(360)}, SinkNoWorker, "6m1s ago"},
		"two gone": {SinkStatus{Shards: shards, Workers: []SinkWorker{{Seen: 20.9}, {Seen: 20.1}}}, SinkNoWorker,
			"seen 20s ago"},
		"never had one":    {SinkStatus{Shards: shards}, SinkNoWorker, "hongbao work"},
		"nothing was read": {SinkStatus{Workers: []SinkWorker{alive}, Unread: []UnreadShard{{}}}, SinkUnread, "1 of 1 shards did not"},
		"a part was read":  {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Unread: []UnreadShard{{}}}, SinkUnread, "1 of 2"},
		"a campaign waits": {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Oldest: oldest(45),
			Campaigns: []PausedCampaign{{Campaign: "rain"}}}, SinkBehind, "1 campaigns are paused for this sink"},
		"paused": {SinkStatus{Shards: shards, Pause: SinkPause{Paused: true, By: "ann", Why: "lunch"}, Oldest: oldest(360)}, SinkPaused,
			"paused by ann: lunch"},
	} {
		c.status.judge()
		require.Equal(t, c.state, c.status.State, name)
		require.Contains(t, c.status.Why, c.why, name)
		require.Equal(t, c.why == "", c.status.Why == "", name)
	}
}
