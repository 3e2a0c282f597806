package deliveries

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/store"
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
		"never had one": {SinkStatus{Shards: shards}, SinkNoWorker, "`hongbao work` starts one"},
		"own sink without worker": {SinkStatus{Shards: shards, Program: "points of team CRM"}, SinkNoWorker,
			"its program (points of team CRM) starts one"},
		"nothing was read": {SinkStatus{Workers: []SinkWorker{alive}, Unread: []UnreadShard{{}}}, SinkUnread, "1 of 1 shards did not"},
		"a part was read":  {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Unread: []UnreadShard{{}}}, SinkUnread, "1 of 2"},
		"a campaign waits": {SinkStatus{Shards: shards, Workers: []SinkWorker{alive}, Oldest: oldest(45),
			Campaigns: []PausedCampaign{{Campaign: "rain"}}}, SinkBehind, "1 campaign is paused for this sink"},
		"paused": {SinkStatus{Shards: shards, Pause: SinkPause{Paused: true, By: "ann", Why: "lunch"}, Oldest: oldest(360)}, SinkPaused,
			"paused by ann: lunch"},
	} {
		c.status.judge(store.SinkReports{})
		require.Equal(t, c.state, c.status.State, name)
		require.Contains(t, c.status.Why, c.why, name)
		require.Equal(t, c.why == "", c.status.Why == "", name)
	}
}

// A worker's report names the reason at once, before a grant has waited for long. It counts less than a pause, and more
// than missing workers: a worker that can't open its sink has not registered yet.
func TestSinkIsDownOnceAWorkerSaysSo(t *testing.T) {
	t.Parallel()
	down := &store.DownReport{Worker: "host-1", Code: "sink_down", Since: time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC), Shards: 2,
		Error: "dial tcp 10.0.0.1:3306: connection refused"}
	for _, s := range []SinkStatus{
		{Shards: []ShardStatus{{}}, Workers: []SinkWorker{{Alive: true}}},
		{Shards: []ShardStatus{{}}},
	} {
		s.judge(store.SinkReports{Down: down})
		require.Equal(t, SinkDown, s.State)
		require.Equal(t, &SinkReport{"host-1", "sink_down", down.Since, 2, down.Error}, s.Down)
		require.EqualValues(t, "worker host-1 can't deliver on 2 shards since 2026-11-30 01:02:03 UTC (sink_down) and tries again within a minute: dial tcp "+
			"10.0.0.1:3306: connection refused", s.Why)
	}
	one := SinkStatus{Shards: []ShardStatus{{}}}
	one.judge(store.SinkReports{Down: &store.DownReport{Worker: "host-1", Code: "sink_down", Since: down.Since, Shards: 1, Error: "refused"}})
	require.EqualValues(t, "worker host-1 can't deliver on 1 shard since 2026-11-30 01:02:03 UTC (sink_down) and tries again within a minute: refused", one.Why)
	s := SinkStatus{Shards: []ShardStatus{{}}, Pause: SinkPause{Paused: true, By: "ann", Why: "lunch"}}
	s.judge(store.SinkReports{Down: down})
	require.Equal(t, SinkPaused, s.State)
}

// A sink whose last worker was stopped has no worker, but its status shows no crash. A worker that was seen later than
// that end did crash.
func TestAStoppedWorkerIsNoCrash(t *testing.T) {
	t.Parallel()
	end := &store.WorkerEnd{Worker: "host-1", At: time.Now().Add(-time.Minute)}
	stopped, crashed := "its last worker host-1 was stopped 1m0s ago, in order; `hongbao work` starts one", "did not end in order"
	for why, seen := range map[string][]float64{stopped: {61, 300}, crashed: {40, 61}} {
		s := SinkStatus{Shards: []ShardStatus{{}}}
		for _, seconds := range seen {
			s.Workers = append(s.Workers, SinkWorker{Seen: seconds})
		}
		s.judge(store.SinkReports{Ended: end})
		require.Equal(t, SinkNoWorker, s.State)
		require.Contains(t, string(s.Why), why)
	}
	s := SinkStatus{Shards: []ShardStatus{{}}} // the trimmer has removed the consumer
	s.judge(store.SinkReports{Ended: end})
	require.EqualValues(t, stopped, s.Why)
	s = SinkStatus{Shards: []ShardStatus{{}}, Workers: []SinkWorker{{Alive: true}}}
	s.judge(store.SinkReports{Ended: end})
	require.Equal(t, SinkWorking, s.State, "another worker goes on")
	s.Workers[0].Worker = end.Worker
	s.judge(store.SinkReports{Ended: end})
	require.Equal(t, SinkNoWorker, s.State, "its lease has not ended, but it has")
}
