package console

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// A sink is judged in one sentence: crimson only if winners wait for their money until a person acts, and green only if
// nothing waits longer than a second.
func TestSinksAreJudged(t *testing.T) {
	t.Parallel()
	tongues, err := newTongues()
	require.NoError(t, err)
	const pay, tell = configs.SinkBalance, configs.SinkKafka
	for name, c := range map[string]struct {
		sink   deliveries.SinkStatus
		oldest float64
		level  level
		say    string
	}{
		"idle":        {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkWorking}, 0, levelOK, "Works: nothing waits."},
		"works":       {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkWorking, Waiting: 7}, 0.4, levelOK, "Works: 7 grants are on the way, the oldest 0.4 s."},
		"slow":        {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkWorking, Waiting: 7}, 4, levelInfo, "Works: 7 grants are on the way, the oldest 4 s."},
		"letters":     {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkWorking, Dead: 3}, 0, levelBad, "3 deliveries were given up and wait for a person."},
		"letters too": {deliveries.SinkStatus{Sink: tell, State: deliveries.SinkWorking, Dead: 3}, 0, levelWait, "3 deliveries were given up and wait for a person."},
		"pay down":    {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkDown, Waiting: 9}, 39, levelBad, "Down: 9 grants wait, the oldest 39 s."},
		"tell down":   {deliveries.SinkStatus{Sink: tell, State: deliveries.SinkDown, Waiting: 9}, 39, levelWait, "Down: 9 grants wait, the oldest 39 s."},
		"behind":      {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkBehind, Waiting: 9}, 39, levelWait, "Behind: 9 grants wait, the oldest 39 s."},
		"no worker":   {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkNoWorker, Waiting: 9}, 6, levelBad, "No worker runs: 9 grants wait, the oldest 6 s."},
		"no need":     {deliveries.SinkStatus{Sink: pay, State: deliveries.SinkNoWorker}, 0, levelWait, "No worker runs. Nothing waits."},
		"paused": {deliveries.SinkStatus{Sink: tell, State: deliveries.SinkPaused, Waiting: 2, Pause: deliveries.SinkPause{Paused: true, By: "key:wei", Why: "upgrade"}},
			2, levelWait, "Paused by key:wei: “upgrade”. 2 grants wait."},
		"unread": {deliveries.SinkStatus{Sink: tell, State: deliveries.SinkUnread, Unread: []deliveries.UnreadShard{{}}}, 0, levelBad, "1 of 1 shards could not be read."},
	} {
		if c.oldest > 0 {
			c.sink.Oldest = &c.oldest
		}
		j := judgeSink(&c.sink)
		text, err := tongues[0].say(j.Say)
		require.NoError(t, err)
		require.Equal(t, []string{string(c.level), c.say}, []string{string(j.Level), text}, name)
	}
}
