package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The audit still prints an acknowledged difference, but does not count it until the acknowledgement expires.
func TestAcknowledgeDifferences(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	require.NoError(t, d.rdb.RPop(t.Context(), d.store.Home("rain").Keys.Stock("rain")).Err())
	report := d.audit(3)
	require.NotEmpty(t, report.Differences)
	file := filepath.Join(t.TempDir(), "difference.json")
	acknowledge := func(until string) []string {
		return []string{"audit", "acknowledge", file, "--until", until, "--by", "ann", "--why", "TICKET-7"}
	}
	for i := range report.Differences {
		require.Len(t, d.audit(3).Acknowledged, i)
		text, err := json.Marshal(report.Differences[i])
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		for range 2 {
			require.Contains(t, d.ok(acknowledge("1h")...), "is acknowledged until")
		}
	}
	require.Len(t, d.audit(0).Acknowledged, len(report.Differences))
	require.Contains(t, d.ok("audit"), "TICKET-7")
	kept, _, err := d.store.LastAudit(t.Context())
	require.NoError(t, err)
	require.Zero(t, kept.Differences, "audit_differs does not fire")
	require.Contains(t, d.ok("journal"), "acknowledge_difference")

	require.NoError(t, os.WriteFile(file, []byte(`{"kind":"double_credit","where":"ledger","detail":"x"}`), 0o600))
	d.refused(2, acknowledge("1h"), "double_credit can't be acknowledged")
	require.NoError(t, os.WriteFile(file, []byte(`{"kind":"lost","where":"ledger","detail":"x"}`), 0o600))
	d.refused(1, acknowledge("-1h"), "within the next 366 days")
	d.refused(1, acknowledge("9000h"), "within the next 366 days")
	require.NoError(t, os.WriteFile(file, []byte(`{"kind":"lost","typo":1}`), 0o600))
	d.refused(2, acknowledge("1h"), "one difference", "typo")
	d.refused(2, []string{"audit", "acknowledge", file, "--until", "1h"}, "--by and --why are required")
}
