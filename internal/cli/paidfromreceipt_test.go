package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// An entry was deleted before a worker read it, but its user knows that they won (issue 8, point 15). The alarm fires
// and the audit reports the grant. The recommended replays pay and publish the grant from its receipt, once, even if
// they are repeated.
func TestToldUserIsPaidFromHisReceipt(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	for _, user := range []string{"u1", "u2", "u3"} {
		require.Contains(t, d.ok("grab", "rain", user), "granted\n")
	}
	events := d.store.Shard(0).Keys.Events()
	entries, err := d.rdb.XRange(t.Context(), events, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 3)
	require.EqualValues(t, 1, d.rdb.XDel(t.Context(), events, entries[1].ID).Val(), "the fault fired")
	w := d.start("work")
	w.says("events_lost")
	w.says("`hongbao replay NAME --to balance`")

	r := d.run("audit", "--wait", "30s")
	require.Equal(t, exitFound, r.code, r.out)
	for _, kind := range []model.DifferenceKind{audit.Lost, audit.MissingInTopic} {
		require.Contains(t, r.out, string(kind)+": 1.")
	}
	require.Contains(t, r.out, "`hongbao replay NAME --to balance --missing`")
	require.Contains(t, r.out, "`hongbao replay NAME --to kafka`")
	require.Contains(t, d.ok("replay", "repair", "--to", "balance", "--dry-run"),
		"1 of them have no entry any more: the replay read them from receipts.\n")

	before := d.show("rain").Ledger.Granted
	for i, name := range []string{"repair", "repair", "again"} {
		report := decided[model.ReplayReport](t, d.ok("replay", name+"-topic", "--to", "kafka", "--json"))
		paid := decided[model.ReplayReport](t, d.ok("replay", name, "--to", "balance", "--json"))
		once := int64(0)
		if i == 0 {
			once = 1
		}
		require.Equal(t, []int64{once, once, once, once},
			[]int64{report.FromReceipts, report.Delivered, paid.FromReceipts, paid.Delivered}, "run %d", i)
	}
	require.Greater(t, d.show("rain").Ledger.Granted, before)
	receipts := d.ok("receipts", "rain", "u2")
	require.Contains(t, receipts, "1 receipt of user u2")
	testkit.Eventually(t, 30*time.Second, func() bool { return d.run("audit", "--wait", "10s").code == 0 },
		"the audit agrees")
	require.Equal(t, 1, strings.Count(d.ok("tail", "--campaign", "rain"), `"user":"u2"`), "the topic has it once")
	w.Kill()
}
