package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/audit"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// B40, B39, B42: what contradicts the ledger is not paid, its campaign is paused, and the audit names it.
func TestAlteredGrantsGoToQuarantine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		fields     func(r hongbao.Receipt) []string
		paused     bool
	}{
		{"same packet, other user", "same", func(r hongbao.Receipt) []string {
			return grantEntry("rain", r.Packet, fmt.Sprint(int64(r.Amount)), "thief")
		}, true},
		{"other amount", "amount", func(r hongbao.Receipt) []string { return grantEntry("rain", r.Packet+1, "999999", "thief") }, true},
		{"unknown packet", "packet", func(hongbao.Receipt) []string { return grantEntry("rain", 999, "1", "thief") }, true},
		{"unknown campaign", "campaign", func(hongbao.Receipt) []string { return grantEntry("nowhere", 1, "1", "thief") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: true})
			d.campaign("rain", 10, 1000)
			a := d.answer("rain", "u1")
			require.Equal(t, hongbao.Granted, a.Outcome)
			w := d.start("work")
			d.quiet()
			d.plant("rain", c.fields(a.Receipts[0])...)
			if !c.paused { // it waits: the ledger may be the wrong one
				w.says(`"code":"unknown_campaign"`)
				w.says("entry parked")
				require.Equal(t, "[]\n", d.ok("quarantine", "list", "--json"))
				d.ok("quarantine", "campaign", "nowhere", "--by", "ann", "--why", "forged")
			}
			w.says("grant went to quarantine")
			w.says("ALARM")
			d.quiet()
			want := "granted\n"
			if c.paused {
				require.Equal(t, campaign.Paused, d.show("rain").Redis.State)
				require.Equal(t, "paused\n", d.ok("grab", "rain", "u2"))
				d.ok("campaign", "resume", "rain")
			}
			require.Contains(t, d.ok("grab", "rain", "u2"), want)
			d.quiet()
			w.stop(syscall.SIGTERM)
			r := d.audit(1)
			require.EqualValues(t, 1, r.Found[audit.InQuarantine], "%v", r.Differences)
			require.EqualValues(t, 2, r.Total.Settled, "nothing of it was paid")
			named := false
			for _, f := range r.Differences {
				named = named || f.Kind == audit.InQuarantine && f.Event != "" && f.Detail != ""
			}
			require.True(t, named, "%v", r.Differences)
		})
	}
}

// B41, I6: an entry in due form that somebody wrote after its campaign's close, with the shard's seq raised for it: a packet that
// nobody got, its planned amount, a new user. B39: the same on a shard that is not the campaign's. No sink gets either, not by a
// replay before the refund, and the refund is what the close tells.
func TestGrantsAfterTheCloseOrElsewhereAreNoGrants(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"after the close": false, "on another shard": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{shards: 2, kafka: true})
			d.campaign("rain", 10, 1000)
			require.Equal(t, 4, d.crowdOf("rain", 0, 4))
			d.ok("campaign", "close", "rain", "--early")
			home := d.space.Home("rain")
			e, err := shards.Of(d.rdb, home).CloseOf(t.Context(), "rain")
			require.NoError(t, err)
			nobodys, err := d.rdb.LIndex(t.Context(), home.Stock("rain"), 0).Result()
			require.NoError(t, err)
			fields := grantEntry("rain", 0, "", "")
			fields[len(fields)-1] = nobodys + " thief - -"
			at := home
			if elsewhere {
				at = d.space.Shard(1 - home.Index())
			}
			d.plantOn(at, fields...)
			w := d.start("work")
			d.quiet()
			d.ok("replay", "again", "--to", "balance", "--json")
			d.ok("replay", "again-kafka", "--to", "kafka", "--json")
			amount := fmt.Sprint(int64(e.Close.LeftAmount))
			require.Contains(t, d.ok("campaign", "refund", "rain", "--amount", amount, "--wait", "20s"), "6 packets")
			w.says("ALARM: a forged entry")
			w.stop(syscall.SIGTERM)
			require.Equal(t, e.Close.LeftAmount, d.show("rain").Ledger.Refunded)
			r := d.audit(1)
			require.EqualValues(t, 4, r.Total.Settled)
			require.EqualValues(t, 4, r.Total.Published)
			require.EqualValues(t, 2, r.Found[audit.DeadLetter], "one for each sink: %v", r.Differences)
			require.Positive(t, r.Found[audit.Unfounded], "%v", r.Differences)
		})
	}
}

// B38, F26: entries that can't be read end as dead letters of both sinks, the others flow, and the audit names them.
func TestPoisonEntriesEndAsDeadLetters(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 100, 1000)
	w := d.start("work")
	require.Equal(t, 50, d.crowdOf("rain", 0, 50))
	d.plant("rain", grantEntry("rain", 1, "1", "u")[:12]...) // g is missing
	d.plant("rain", append(grantEntry("rain", 1, "1", "u"), "x", "y")...)
	d.plant("rain", grantEntry("rain", 1, "1e9", "u")...)
	d.plant("rain", grantEntry("rain", 1, "-5", "u")...)
	d.plant("rain", grantEntry("rain", 1, "1", "a\x00b")...)
	d.plant("rain", "v", "no number")
	require.Equal(t, 50, d.crowdOf("rain", 50, 60))
	d.quiet()
	w.stop(syscall.SIGTERM)
	for _, sink := range []string{"balance", "kafka"} {
		n, err := d.rdb.XLen(t.Context(), d.space.Home("rain").Dead(sink)).Result()
		require.NoError(t, err)
		require.EqualValues(t, 6, n, sink)
	}
	r := d.audit(1)
	require.EqualValues(t, 100, r.Total.Settled)
	require.EqualValues(t, 100, r.Total.Published)
	require.EqualValues(t, 6, r.Found[audit.UnreadableEntry], "%v", r.Found)
	require.EqualValues(t, 12, r.Found[audit.DeadLetter], "%v", r.Found)
}

// An entry of a newer build stops its shard, and says so; the other shards go on; nothing is skipped.
func TestNewerEntryStopsItsShardOnly(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2})
	ids := [2]string{}
	for i := 0; ids[0] == "" || ids[1] == ""; i++ {
		id := fmt.Sprintf("rain-%d", i)
		ids[d.space.Home(id).Index()] = id
	}
	for _, id := range ids {
		d.campaign(id, 100, 1000)
	}
	w := d.start("work")
	w.says(`"working"`)
	newer := grantEntry(ids[0], 1, "1", "u")
	newer[1] = "3"
	d.plant(ids[0], newer...)
	w.says("shard is broken")
	require.Equal(t, 100, d.crowdOf(ids[0], 0, 100))
	require.Equal(t, 100, d.crowdOf(ids[1], 0, 100))
	testkit.Eventually(t, 20*time.Second, func() bool {
		g, err := d.rdb.XInfoGroups(t.Context(), d.space.Shard(1).Events()).Result()
		return err == nil && len(g) == 1 && g[0].Pending+g[0].Lag == 0
	}, "the other shard goes on")
	require.EqualValues(t, 1000, d.show(ids[1]).Ledger.Granted)
	require.Zero(t, d.show(ids[0]).Ledger.Granted)
	w.signal(syscall.SIGTERM)
	r := w.wait(20 * time.Second)
	require.Equal(t, 1, r.code, "a shard was broken")
	require.Contains(t, r.err, "newer build")
	n, err := d.rdb.XLen(t.Context(), d.space.Shard(0).Dead("balance")).Result()
	require.NoError(t, err)
	require.Zero(t, n, "it is no dead letter")
}

// The pause that belongs to a quarantine is not lost when Redis can't take it (here it is out of memory): the grant comes again until its
// campaign is paused, from the same worker or from one that starts after this one was killed.
func TestPauseAfterQuarantineIsNotLost(t *testing.T) {
	t.Parallel()
	for name, killed := range map[string]bool{"the same worker": false, "the next worker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("needs a server")
			}
			server := testkit.NewRedis(t, testkit.RedisOptions{})
			d := setup(t, options{redis: server, postgres: true, lease: time.Second})
			d.campaign("rain", 10, 1000)
			a := d.answer("rain", "u1")
			w := d.start("work")
			d.quiet()
			w.stop(syscall.SIGTERM)
			d.plant("rain", grantEntry("rain", a.Receipts[0].Packet, fmt.Sprint(int64(a.Receipts[0].Amount)), "thief")...)
			state := func() string {
				s, err := d.rdb.HGet(t.Context(), d.space.Home("rain").Campaign("rain"), "state").Result()
				require.NoError(t, err)
				return s
			}
			before := state()
			require.NoError(t, d.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
			w = d.start("work")
			w.says("grant went to quarantine")
			w.says("sink is down")
			require.Equal(t, before, state(), "the fault fired: the pause did not get through")
			if killed {
				w.kill()
			}
			require.NoError(t, d.rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
			if killed {
				w = d.start("work")
			}
			testkit.Eventually(t, 30*time.Second, func() bool { return state() == campaign.Paused }, "the campaign is paused")
			d.quiet()
			w.stop(syscall.SIGTERM)
			r := d.audit(1)
			require.EqualValues(t, 1, r.Found[audit.InQuarantine], "once, however often it came: %v", r.Differences)
			require.EqualValues(t, 1, r.Total.Settled)
			require.Zero(t, r.Total.DeadLetters, "it took no attempt")
		})
	}
}
