package cli

import (
	"bytes"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
)

// Invalid arguments are refused before the command connects to a server: this test has none.
func TestEndsRefuseWrongArguments(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"close --help`":            {"campaign", "close"},
		"refund --help`":           {"campaign", "refund"},
		"unknown flag: --all":      {"campaign", "refund", "--all"}, // B51
		"campaign \"{1}\"":         {"campaign", "close", "{1}"},
		"campaign \"*\"":           {"campaign", "refund", "*", "--amount", "1"},
		"campaign \"Rain\"":        {"campaign", "reveal", "Rain"},
		"--missing is 0 or more":   {"campaign", "refund", "rain", "--amount", "1", "--missing", "-1"},
		"12.50 is 1250":            {"campaign", "refund", "rain", "--amount", "12.50"},
		"invalid argument \"1e3\"": {"campaign", "refund", "rain", "--amount", "1e3"},
		"invalid argument \"-1\"":  {"campaign", "refund", "rain", "--amount", "-1"},
		"to 9007199254740991":      {"campaign", "refund", "rain", "--amount", "9007199254740992"},
		"--wait is 0 or more":      {"campaign", "refund", "rain", "--amount", "1", "--wait", "-1s"},
		"/no/such/file":            {"campaign", "verify", "/no/such/file"},
		"one FILE":                 {"campaign", "verify"},
		"a CAMPAIGN and a USER":    {"receipts", "rain"},
		"user \"a b\"":             {"receipts", "rain", "a b"},
		"campaign \"1 or 1=1\"":    {"receipts", "1 or 1=1", "u"},
		"one campaign ID, got 2":   {"campaign", "close", "rain", "snow"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			r := runProgram(t, []string{"HONGBAO_REDIS_ADDRS=127.0.0.1:1"}, args...)
			require.Equal(t, 2, r.code, "%s%s", r.out, r.err)
			require.Contains(t, r.err, says)
			require.Empty(t, r.out)
		})
	}
}

// The times of a close and a refund are in the campaign's zone, with UTC beside them.
func TestEndingForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, writeClosing(&out, &campaigns.Ending{Campaign: "rain", Currency: "CNY", TimeZone: "Asia/Shanghai",
		Closed:   &campaigns.Closed{Time: noon.Add(time.Hour), Event: "0-12035", Granted: 12_034, GrantedAmount: 123_456, Left: 1, LeftAmount: 5},
		Refunded: &campaigns.Refunded{Time: noon.Add(5 * time.Hour), Packets: 1, Sponsor: "acme"}, Amount: 5, Next: "hongbao campaign reveal rain"}))
	require.Equal(t, `campaign rain was closed at 2026-02-17 21:00:00 (Asia/Shanghai, 13:00:00 UTC) by event 0-12035
granted 12,034 packets, 1,234.56 CNY
left 1 packet, 0.05 CNY
campaign rain was refunded at 2026-02-18 01:00:00 (Asia/Shanghai, 17:00:00 UTC): 1 packet, 0.05 CNY, to sponsor acme
next: hongbao campaign reveal rain
`, out.String())
}

// A campaign in the ledger that was never loaded can't be closed, refunded or revealed, and each error names the next
// command.
func TestEndsOfACampaignThatWasNeverLoaded(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1000))
	d.refused(1, []string{"campaign", "close", "rain", "--early"}, "hongbao campaign cancel rain")
	for _, args := range [][]string{{"close", "typo", "--early"}, {"close", "typo"}, {"refund", "typo", "--amount", "1"}} {
		d.refused(1, append([]string{"campaign"}, args...), `campaign "typo"`, "hongbao campaign list")
	}
	d.refused(1, []string{"campaign", "refund", "rain", "--amount", "1000"}, "hongbao campaign cancel rain")
	d.refused(1, []string{"campaign", "reveal", "rain"}, "hongbao campaign close rain")
	d.refused(1, []string{"campaign", "reveal", "snow"}, "hongbao campaign list")
	d.refused(1, []string{"receipts", "snow", "u1"}, "hongbao campaign list")
	r := d.run("receipts", "rain", "u1")
	require.Zero(t, r.code)
	require.Contains(t, r.err, "the ledger may not have all")
	d.ok("campaign", "load", "rain")
	require.Contains(t, d.ok("campaign", "close", "rain", "--early"), "left 10 packets, 10.00 CNY")
	require.Equal(t, "closed", d.show("rain").Redis.State)
	worker := d.start("work")
	require.Contains(t, d.ok("campaign", "refund", "rain", "--amount", "1000", "--wait", "30s"),
		"10 packets, 10.00 CNY, to sponsor acme")
	worker.Kill()
	shown := d.show("rain")
	require.Equal(t, "refunded", shown.Redis.State)
	require.EqualValues(t, 1000, shown.Ledger.Refunded)
	require.NotContains(t, d.ok("campaign", "show", "rain", "--json"), "seed", "the seed is secret until the campaign is revealed")
	require.NotEmpty(t, d.ok("campaign", "reveal", "rain"))
	require.Contains(t, d.ok("audit", "--wait", "10s"), "agrees")
}

// A day after the end of its window, `hongbao status` names a campaign until it is refunded, on the stores and with
// --server.
func TestStatusNamesLateRefunds(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	d.campaign("snow", 10, 1000)
	db, err := sql.Open("sqlite", d.ledgerFile())
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE campaign SET spec = json_set(spec, '$.to', $1) WHERE id = 'snow'`, "2026-02-17T20:00:00Z")
	require.NoError(t, errors.Join(err, db.Close()))
	at, _, _ := d.server("viewer")
	out := at.requireSame(d, "status").out
	require.Contains(t, out, "campaign snow: its window ended at 2026-02-17T20:00:00Z, and it is not refunded; "+
		"`hongbao campaign refund snow` says what to do\n")
	require.NotContains(t, out, "campaign rain")
	require.Contains(t, at.requireSame(d, "status", "--json").out, `"unrefunded":[{"campaign":"snow","ends":"2026-02-17T20:00:00.000Z"}]`)
	require.Contains(t, d.refused(exitFailed, []string{"campaign", "refund", "snow"}).err, "`hongbao campaign close snow` first")
}
