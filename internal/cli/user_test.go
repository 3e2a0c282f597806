package cli

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// The data of a user over all campaigns: wins that are paid, and wins that only Redis has; a dropped dead letter, one that
// waits, and the balance. Pages have together what one page has, from the stores and from a server. The journal has each
// read without the user's id, and the address of a caller over HTTP.
func TestUserShow(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	for _, id := range []string{"fog", "hail", "rain"} {
		d.campaign(id, 10, 1_000)
	}
	d.ok("grab", "hail", "u1")
	d.buried(configs.SinkBalance)
	w := d.start("work")
	d.ok("grab", "rain", "u1", "--request-id", "r1")
	d.ok("grab", "rain", "u2")
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.ok("grab", "fog", "u1")

	whole := decided[find.UserData](t, d.ok("user", "show", "u1", "--json"))
	require.Equal(t, 3, whole.Campaigns)
	require.Len(t, whole.Wins, 3)
	fog, hail, rain := whole.Wins[0], whole.Wins[1], whole.Wins[2]
	require.Equal(t, []any{"fog", true, false, "hail", true, false, "rain", true, true, "r1"}, []any{fog.Campaign, fog.Redis,
		fog.Ledger, hail.Campaign, hail.Redis, hail.Ledger, rain.Campaign, rain.Redis, rain.Ledger, rain.RequestID})
	require.Len(t, whole.Balances, 1)
	require.Equal(t, rain.Amount, whole.Balances[0].Balance)
	require.Len(t, whole.Letters, 1)
	d.ok("dead", "drop", whole.Letters[0].ID, "--by", "ann", "--why", "the account is closed")
	whole = decided[find.UserData](t, d.ok("user", "show", "u1", "--json"))
	require.Empty(t, whole.Letters)
	require.Len(t, whole.Resolved, 1)
	require.Equal(t, "dropped", whole.Resolved[0].Decision)

	at, _, _ := d.server("operator")
	at.requireSame(d, "user", "show", "u1", "--json")
	at.requireSame(d, "user", "show", "u2")
	page := decided[find.UserData](t, at.requireSame(d, "user", "show", "u1", "--limit", "1", "--json").out)
	require.Equal(t, "fog", string(page.Next))
	rest := decided[find.UserData](t, at.requireSame(d, "user", "show", "u1", "--after", "fog", "--json").out)
	require.Equal(t, whole.Wins, append(page.Wins, rest.Wins...))
	require.Empty(t, rest.Balances)

	journal := d.ok("journal", "--json")
	require.NotContains(t, journal, `"u1"`)
	require.Contains(t, journal, access.Hash("u1"))
	require.Contains(t, journal, `"127.0.0.1"`)
	viewer, _, _ := d.server("viewer")
	r := viewer.run("user", "show", "u1")
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "role")
}
