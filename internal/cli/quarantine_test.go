package cli

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A grant that contradicts the ledger is not paid. Its campaign is paused, and the audit reports the grant (B39, B40,
// B42).
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
		{"other amount", "amount", func(r hongbao.Receipt) []string {
			return grantEntry("rain", r.Packet+1, "999999",
				"thief")
		}, true},
		{"unknown packet", "packet", func(hongbao.Receipt) []string { return grantEntry("rain", 999, "1", "thief") }, true},
		{"unknown campaign", "campaign", func(hongbao.Receipt) []string { return grantEntry("nowhere", 1, "1", "thief") },
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{postgres: true})
			d.campaign("rain", 10, 1000)
			a := d.answer("rain", "u1")
			require.Equal(t, hongbao.OutcomeGranted, a.Outcome)
			w := d.start("work")
			d.quiet()
			d.plant("rain", c.fields(a.Receipts[0])...)
			if !c.paused { // the grant waits: this may be the wrong ledger
				w.says(`"code":"unknown_campaign"`)
				w.says("entry parked")
				require.Empty(t, decided[payments.QuarantinePage](t, d.ok("quarantine", "list", "--json")).Grants)
				d.ok("quarantine", "campaign", "nowhere", "--by", "ann", "--why", "forged")
			}
			w.says("grant went to quarantine")
			w.says("ALARM")
			d.quiet()
			want := "granted\n"
			if c.paused {
				require.Equal(t, store.StatePaused, d.show("rain").Redis.State)
				require.Equal(t, "paused\n", d.ok("grab", "rain", "u2"))
				d.ok("campaign", "resume", "rain", "--by", "ann", "--why", "test")
			}
			require.Contains(t, d.ok("grab", "rain", "u2"), want)
			d.quiet()
			w.stop(syscall.SIGTERM)
			r := d.audit(3)
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

// The ledger does not have a campaign, and the balance system is remote. The campaign's grants wait, with an alarm,
// until a person sends them to quarantine. No credit is sent.
func TestRemoteGrantsOfNoCampaignGoToQuarantine(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	b := newBlindBank(t)
	d.set("SETTLEMENT_KIND", "remote", "REMOTE_URL", b.URL, "REMOTE_RETENTION", "24h", "REMOTE_QUERYABLE", "false",
		"REMOTE_CLAIM_TIME", "2s", "REMOTE_TIMEOUT", "1s", "REMOTE_HEADER_TIMEOUT", "900ms")
	w := d.start("work")
	d.plant("rain", grantEntry("nowhere", 1, "1", "thief")...)
	w.says(`"code":"unknown_campaign"`)
	w.says("entry parked")
	require.Empty(t, decided[payments.QuarantinePage](t, d.ok("quarantine", "list", "--json")).Grants)
	require.Contains(t, d.ok("grab", "rain", "u1"), "granted")
	d.ok("quarantine", "campaign", "nowhere", "--by", "ann", "--why", "forged")
	w.says("grant went to quarantine")
	d.quiet()
	w.stop(syscall.SIGTERM)
	list := decided[payments.QuarantinePage](t, d.ok("quarantine", "list", "--json")).Grants
	require.Len(t, list, 1)
	require.Equal(t, ledger.NoCampaign, list[0].Reason)
	_, _, posts := b.has()
	require.Equal(t, 1, posts, "only the other one")
}

// Entries that can't be parsed become dead letters of both sinks, and the audit reports them. Other grants are
// delivered (B38, F26).
func TestPoisonEntriesEndAsDeadLetters(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 100, 1000)
	w := d.start("work")
	require.Equal(t, 50, d.crowdOf("rain", 0, 50))
	d.plant("rain", "3", "grant rain SEQ 1 1700000000000 CNY")            // the grants are missing
	d.plant("rain", "0", "grant rain SEQ 1 1700000000000 CNY\n1 1 u - -") // no such version
	d.plant("rain", grantEntry("rain", 1, "1e9", "u")...)
	d.plant("rain", grantEntry("rain", 1, "-5", "u")...)
	d.plant("rain", grantEntry("rain", 1, "1", "a\x00b")...)
	d.plant("rain", "no number", "x")
	require.Equal(t, 50, d.crowdOf("rain", 50, 60))
	d.quiet()
	w.stop(syscall.SIGTERM)
	for _, sink := range []string{"balance", "kafka"} {
		n, err := d.rdb.XLen(t.Context(), d.store.Home("rain").Keys.Dead(sink)).Result()
		require.NoError(t, err)
		require.EqualValues(t, 6, n, sink)
	}
	r := d.audit(3)
	require.EqualValues(t, 100, r.Total.Settled)
	require.EqualValues(t, 100, r.Total.Published)
	require.EqualValues(t, 6, r.Found[audit.UnreadableEntry], "%v", r.Found)
	require.EqualValues(t, 12, r.Found[audit.DeadLetter], "%v", r.Found)
}

// A worker stops a shard at an entry of a newer version, and logs it. It continues on other shards. No entry is
// skipped.
func TestNewerEntryStopsItsShardOnly(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2})
	ids := [2]string{}
	for i := 0; ids[0] == "" || ids[1] == ""; i++ {
		id := fmt.Sprintf("rain-%d", i)
		ids[d.store.Home(id).Index()] = id
	}
	for _, id := range ids {
		d.campaign(id, 100, 1000)
	}
	w := d.start("work")
	w.says(`"working"`)
	newer := grantEntry(ids[0], 1, "1", "u")
	newer[0] = "4"
	d.plant(ids[0], newer...)
	w.says("shard is broken")
	require.Equal(t, 100, d.crowdOf(ids[0], 0, 100))
	require.Equal(t, 100, d.crowdOf(ids[1], 0, 100))
	testkit.Eventually(t, 20*time.Second, func() bool {
		g, err := d.rdb.XInfoGroups(t.Context(), d.store.Shard(1).Keys.Events()).Result()
		return err == nil && len(g) == 1 && g[0].Pending+g[0].Lag == 0
	}, "the other shard continues")
	require.EqualValues(t, 1000, d.show(ids[1]).Ledger.Granted)
	require.Zero(t, d.show(ids[0]).Ledger.Granted)
	w.Signal(syscall.SIGTERM)
	r := w.wait(20 * time.Second)
	require.Equal(t, 1, r.code, "a shard was broken")
	require.Contains(t, r.err, "newer build")
	n, err := d.rdb.XLen(t.Context(), d.store.Shard(0).Keys.Dead("balance")).Result()
	require.NoError(t, err)
	require.Zero(t, n, "it is no dead letter")
}
