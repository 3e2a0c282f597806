package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// sinkState is the status of a sink in `hongbao sink list`.
func (d *deployment) sinkState(sink string) deliveries.SinkStatus {
	d.t.Helper()
	var list struct{ Sinks []deliveries.SinkStatus }
	require.NoError(d.t, json.Unmarshal([]byte(d.ok("sink", "list", "--json")), &list))
	for _, s := range list.Sinks {
		if s.Sink == sink {
			return s
		}
	}
	d.t.Fatalf("no sink %s in %v", sink, list)
	return deliveries.SinkStatus{}
}

// doneBy counts the events that a sink has finished.
func (d *deployment) doneBy(sink string) (n int64) {
	d.t.Helper()
	for i := range d.store.Len() {
		bits, err := d.rdb.BitCount(d.t.Context(), d.store.Shard(i).Keys.Done(sink, 0), nil).Result()
		require.NoError(d.t, err)
		n += bits
	}
	return n
}

// A sink is paused while two workers run under load. It gets nothing more, and the other sink gets everything. No
// attempt is counted. After the resume every grant is settled once.
func TestPausedSinkGetsNothing(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2, postgres: true, kafka: true, lease: 15 * time.Second})
	d.set("TRIMMER_RETENTION", "0s")
	for _, id := range []string{"rain", "snow"} { // their homes are different shards
		d.campaign(id, 4000, 1_000_000)
	}
	workers := []*program{d.start("work"), d.start("work")}
	for _, w := range workers {
		w.says(`"working"`)
	}
	type crowd struct {
		got int
		err error
	}
	crowds := make(chan crowd, 2)
	for _, id := range []string{"rain", "snow"} {
		go func() {
			got, err := d.grabs(id, 0, 4000)
			crowds <- crowd{got, err}
		}()
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return d.doneBy("balance") > 200 }, "some are settled")
	require.Contains(t, d.ok("sink", "pause", "balance", "--by", "ann", "--why", "the bank is closed"), "balance is paused")
	for _, w := range workers {
		testkit.Eventually(t, 30*time.Second, func() bool {
			return strings.Count(w.Err.String(), "the sink was paused") >= 2
		}, "each shard of the worker")
	}
	settled := d.doneBy("balance")
	for range 2 {
		c := <-crowds
		require.NoError(t, c.err)
		require.Equal(t, 4000, c.got)
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return d.doneBy("kafka") == 8000 }, "the other sink continues")
	require.Equal(t, settled, d.doneBy("balance"), "nothing was settled meanwhile")
	s := d.sinkState("balance")
	require.Equal(t, 8000-settled, s.Waiting)
	require.True(t, s.Pause.Paused)
	require.Equal(t, []any{2, "ann", "the bank is closed"}, []any{s.Pause.PausedShards, s.Pause.By, s.Pause.Why})
	require.WithinDuration(t, time.Now(), s.Pause.At, time.Minute)
	require.Equal(t, s.Pending, s.Parked, "workers have nothing pending")
	require.False(t, d.sinkState("kafka").Pause.Paused)
	require.Contains(t, d.ok("status"), `balance is paused by "ann" since `)
	require.Regexp(t, `^balance was paused already, by "ann" since 20\S+Z: "the bank is closed"\n`+
		`Nothing was changed: that pause stays. The journal has your reason, too.\n$`,
		d.ok("sink", "pause", "balance", "--by", "bob", "--why", "lunch"))
	require.Contains(t, d.ok("journal", "--limit", "1", "--json"), `"why":"lunch"`)
	for i := range d.store.Len() {
		rows, err := d.rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: d.store.Shard(i).Keys.Events(),
			Group: "balance", Start: "-", End: "+", Count: 1000}).Result()
		require.NoError(t, err)
		for _, row := range rows {
			require.Equal(t, "_retry/0", row.Consumer)
			require.Zero(t, row.RetryCount, "no attempt was taken")
		}
	}
	require.NotContains(t, workers[0].Err.String()+workers[1].Err.String(), "INCIDENT", "the trimmer has lost nothing")
	require.Contains(t, d.ok("sink", "resume", "balance", "--by", "ann", "--why", "it is open"), "balance is resumed")
	d.quiet()
	for _, w := range workers {
		w.says("the sink was resumed")
		w.stop(syscall.SIGTERM)
	}
	require.EqualValues(t, 8000, d.doneBy("balance"))
	d.agrees(8000)
}

// A sink can be paused without a ledger, on a frozen shard, and before the first worker runs.
func TestPauseNeedsRedisOnly(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.set("LEDGER_DRIVER", "postgres", "LEDGER_DSN", "postgres://u@127.0.0.1:2/d")
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Shard(0).Keys.Meta(), "frozen", "1").Err())
	d.ok("sink", "pause", "balance", "--by", "ann", "--why", "drill")
	require.NoError(t, d.rdb.HDel(t.Context(), d.store.Shard(0).Keys.Meta(), "frozen").Err())
	require.True(t, d.sinkState("balance").Pause.Paused)
	d.ok("sink", "resume", "balance", "--by", "ann", "--why", "over")
	require.Equal(t, "balance was not paused: nothing was changed\n",
		d.ok("sink", "resume", "balance", "--by", "bob", "--why", "sure"))
	s := d.sinkState("balance")
	require.Equal(t, []any{false, 0, "over"}, []any{s.Pause.Paused, s.Pause.PausedShards, s.Pause.Why})
	d.refused(2, []string{"sink", "pause", "pigeon", "--by", "ann", "--why", "x"}, "deployment.sinks")
	d.refused(2, []string{"sink", "pause", "balance", "--by", "ann"}, "--why")
}

// A campaign is paused for a sink. The sink's grants of this campaign wait, those of another campaign are settled, and
// `hongbao status` shows the pause. After the resume the waiting grants are settled.
func TestCampaignPausedForASink(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.set("CONSUMER_BACKOFF", "20ms", "CONSUMER_MAX_BACKOFF", "1s")
	for _, id := range []string{"rain", "snow"} {
		d.campaign(id, 5, 1000)
	}
	why := []string{"--campaign", "rain", "--by", "ann", "--why", "no accounts"}
	pause, resume := append([]string{"sink", "pause", "balance"}, why...), append([]string{"sink", "resume", "balance"}, why...)
	require.Equal(t, "campaign rain is paused at balance\n", d.ok(pause...))
	require.Regexp(t, `^campaign rain was paused at balance already, by "ann" since 20\S+Z: "no accounts"\nNothing was changed: `,
		d.ok(pause...))
	w := d.start("work")
	w.says(`"working"`)
	for _, id := range []string{"rain", "snow"} {
		require.Equal(t, 5, d.crowdOf(id, 0, 5))
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		s := d.sinkState("balance")
		return d.doneBy("balance") == 5 && s.Waiting == 5
	}, "snow is settled, rain waits")
	s := d.sinkState("balance")
	require.False(t, s.Pause.Paused)
	require.Len(t, s.Campaigns, 1)
	require.Equal(t, []string{"rain", "ann", "no accounts"}, []string{s.Campaigns[0].Campaign, s.Campaigns[0].By, s.Campaigns[0].Why})
	require.WithinDuration(t, time.Now(), s.Campaigns[0].At, time.Minute)
	for _, command := range []string{"status", "sink list"} {
		require.Regexp(t, `balance: campaign rain is paused by "ann" since \S+: "no accounts"`, d.run(strings.Fields(command)...).out)
	}
	require.Equal(t, "campaign rain is resumed at balance\n", d.ok(resume...))
	d.quiet()
	require.EqualValues(t, 10, d.doneBy("balance"))
	require.Empty(t, d.sinkState("balance").Campaigns)
	require.NotContains(t, d.ok("status"), "campaign rain")
	w.stop(syscall.SIGTERM)
	d.refused(2, []string{"sink", "resume", "balance", "--campaign", "", "--by", "ann", "--why", "x"}, "--campaign is empty")
	d.refused(2, []string{"sink", "resume", "balance", "--campaign", "no id", "--by", "ann", "--why", "x"}, "--campaign is 1 to 64")
}

// A mistyped campaign id is an error and changes nothing. Otherwise a person would believe that the campaign was paused
// or resumed.
func TestMistypedCampaignOfASink(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 5, 1000)
	cmd := func(what, campaign string) []string {
		return []string{"sink", what, "balance", "--campaign", campaign, "--by", "ann", "--why", "drill"}
	}
	require.Equal(t, "campaign rain was not paused at balance: nothing was changed\n", d.ok(cmd("resume", "rain")...))
	d.refused(1, cmd("pause", "rian"), "campaign rian is not in Redis", "check the id")
	d.refused(1, cmd("resume", "rian"), "campaign rian is not in Redis and was never paused", "hongbao sink list")
	require.Empty(t, d.sinkState("balance").Campaigns)
	d.ok(cmd("pause", "rain")...)
	d.refused(1, cmd("resume", "rian"), "campaign rian is not in Redis and was never paused", "hongbao sink list")
	require.Len(t, d.sinkState("balance").Campaigns, 1)
	require.Equal(t, "campaign rain is resumed at balance\n", d.ok(cmd("resume", "rain")...))
	require.Equal(t, "campaign rain was not paused at balance: nothing was changed\n", d.ok(cmd("resume", "rain")...))
	require.NoError(t, d.rdb.Del(t.Context(), d.store.Home("rain").Keys.Campaign("rain")).Err())
	require.Equal(t, "campaign rain is paused at balance\n", d.ok(cmd("pause", "rain")...), "its letters may outlive it")
}

// One of two shards is frozen. `hongbao sink list` and `hongbao status` show the other shard, and name the frozen one.
func TestSinksBesideAFrozenShard(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2})
	for _, id := range []string{"rain", "snow"} { // their homes are different shards
		d.campaign(id, 5, 1000)
		got, err := d.grabs(id, 0, 5)
		require.NoError(t, err)
		require.Equal(t, 5, got)
	}
	home := d.store.Home("rain").Index()
	frozen := d.store.Home("snow").Index()
	require.NotEqual(t, home, frozen)
	d.ok("sink", "pause", "balance", "--by", "ann", "--why", "drill")
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Shard(frozen).Keys.Meta(), "frozen", "1").Err())
	named := fmt.Sprintf("shard %d: ", frozen)
	for _, command := range [][]string{{"sink", "list", "--json"}, {"status", "--json"}} {
		code := 5 // a server does not work
		if command[0] == "status" {
			code = 3 // grants wait, and no worker is alive
		}
		r := d.refused(code, command, "sink balance: 1 of 2 shards", named, "frozen")
		var s deliveries.Status
		require.NoError(t, json.Unmarshal([]byte(r.out), &s))
		require.Len(t, s.Sinks, 1)
		x := s.Sinks[0]
		require.Equal(t, []any{int64(5), true, 1}, []any{x.Waiting, x.Pause.Paused, x.Pause.PausedShards})
		require.Len(t, x.Shards, 1)
		require.Equal(t, home, x.Shards[0].Shard)
		require.Len(t, x.Unread, 1)
		require.Equal(t, frozen, x.Unread[0].Shard)
		require.Contains(t, x.Unread[0].Why, "frozen")
	}
	r := d.refused(5, []string{"sink", "list"}, named)
	require.Regexp(t, `balance +unread +5 `, r.out)
	require.NotContains(t, r.out, "shards only", "each readable shard has the pause")
	r = d.refused(3, []string{"status"}, named, "no worker is alive")
	require.Regexp(t, fmt.Sprintf(`balance +%d +5 +5 `, home), r.out)
}
