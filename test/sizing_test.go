package test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger"
)

// docs/sizing.md and its Chinese version count the connections to the database with the default of ledger.conns.
func TestSizingDocsCountConnections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/sizing.md")
	require.NoError(t, err)
	chinese := page(t, "docs/zh/sizing.md")
	conns := ledger.DefaultConfig().Conns
	require.Contains(t, string(text), fmt.Sprintf("`balance`, a command | `ledger.conns` | %d |", conns))
	for _, c := range []struct{ workers, servers, commands int }{{4, 2, 1}, {16, 6, 1}} {
		require.Contains(t, string(text), fmt.Sprintf("| (%d + %d + %d) x %d | %d |", c.workers, c.servers, c.commands, conns,
			(c.workers+c.servers+c.commands)*conns))
		require.Contains(t, chinese, fmt.Sprintf("| (%d + %d + %d) × %d | %d |", c.workers, c.servers, c.commands, conns,
			(c.workers+c.servers+c.commands)*conns))
	}
	require.Contains(t, string(text), fmt.Sprintf("6 pods with `ledger.dsn` and 4 workers, each with `ledger.conns` %d | %d at most |",
		conns, 10*conns))
}
