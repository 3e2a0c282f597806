package cli

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis has lost a campaign that was partly paid, and a person has accepted the loss (issue 8, point 17). Each command
// that can't continue names `hongbao campaign refund-lost`, which refunds the rest, once.
func TestLostCampaignIsEndedFromTheLedger(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	d.campaign("rain", 10, 1000)
	d.ok("grab", "rain", "u1")
	d.ok("grab", "rain", "u2")
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool { return d.show("rain").Ledger.Granted > 0 }, "it pays")
	d.ok("audit", "--wait", "30s")
	paid := int64(d.show("rain").Ledger.Granted)
	left := fmt.Sprint(1000 - paid)
	d.refused(1, []string{"campaign", "refund-lost", "rain"}, "`hongbao campaign close rain`",
		"`hongbao campaign refund rain`")
	w.Signal(syscall.SIGTERM)
	require.Zero(t, w.wait(time.Minute).code)

	require.NoError(t, d.rdb.FlushAll(t.Context()).Err())
	const end = "`hongbao campaign refund-lost rain`"
	require.Contains(t, d.run("recover").out, end)
	require.Contains(t, d.acceptLoss("no file is left"), end)
	act := []string{"campaign", "refund-lost", "rain", "--amount", left, "--by", "ann", "--why", "no file is left"}
	for _, command := range [][]string{
		{"campaign", "resume", "rain", "--by", "ann", "--why", "test"}, {"campaign", "pause", "rain", "--by", "ann", "--why", "test"},
		{"campaign", "load", "rain"},
		{"campaign", "close", "rain", "--early"},
		{"campaign", "refund", "rain"}, {"campaign", "refund", "rain", "--amount", left},
	} {
		d.refused(1, command, end)
	}
	require.Contains(t, d.ok("receipts", "rain", "u1"), "1 receipt of user u1 in campaign rain (from ledger)")
	w = d.start("work")
	require.Contains(t, d.refusedAudit("--wait", "30s"), end[:len(end)-len("rain`")]+"ID`")

	r := d.refused(2, act[:3], "nothing was moved")
	require.Equal(t, fmt.Sprintf("campaign rain: funded 10 packets, 10.00 CNY\nthe ledger has paid 2 packets, %s\nRedis "+
		"has only a stub of it, in state frozen\n"+
		"would be refunded: 8 packets, %s, to sponsor acme\nnext: hongbao campaign refund-lost rain --amount %s --expect %s --by NAME "+
		"--why TEXT\n",
		money.Text(hongbao.Amount(paid), "CNY"), money.Text(hongbao.Amount(1000-paid), "CNY"), left, digestIn(r.out)), r.out)
	d.refused(2, act[:5], "--by and --why")
	d.refused(2, act, "--expect is missing")
	d.refused(1, append(act, "--expect", "0123456789ab"), "nothing was done")
	act = append(act, "--expect", digestIn(r.out))
	d.refused(1, []string{"campaign", "refund-lost", "rain", "--amount", "1", "--by", "ann", "--why", "x", "--expect",
		digestIn(r.out)}, "nothing was moved")
	require.Zero(t, d.show("rain").Ledger.Refunded)

	said := d.ok(act...)
	require.Contains(t, said, "to sponsor acme, by ann: no file is left\n")
	shown := d.show("rain")
	require.Equal(t, []any{"refunded", left}, []any{shown.Redis.State, fmt.Sprint(int64(shown.Ledger.Refunded))})
	require.Equal(t, said, d.ok(act...))
	require.Equal(t, said, d.ok(act[:3]...))
	require.Contains(t, d.ok("grab", "rain", "u3"), "ended\n")
	require.Contains(t, d.ok("receipts", "rain", "u1"), "1 receipt of user u1 in campaign rain (from ledger)")
	audited := d.ok("audit", "--wait", "30s")
	require.Contains(t, audited, "agrees")
	require.Contains(t, audited, `Campaign rain: Redis had lost something of the campaign, and ann ended it from the ledger: "no file is left".`)
	require.NotEmpty(t, d.ok("campaign", "reveal", "rain"))
	w.Kill()
}

// refusedAudit returns the output of an audit that must find differences.
func (d *deployment) refusedAudit(args ...string) string {
	d.t.Helper()
	return d.refused(exitFound, append([]string{"audit"}, args...)).out
}

// digestIn returns the value of --expect in the output.
func digestIn(out string) string {
	_, rest, _ := strings.Cut(out, "--expect ")
	digest, _, _ := strings.Cut(rest, " ")
	return digest
}
