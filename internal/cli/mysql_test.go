package cli

import (
	"database/sql"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// TestLedgerOnMariaDB runs a campaign from its creation to the audit. The ledger is a MariaDB with a password.
func TestLedgerOnMariaDB(t *testing.T) {
	d := setup(t, options{uninitialized: true})
	t.Parallel()
	server := testkit.NewMariaDB(t, testkit.MariaDBOptions{})
	name := server.Database(t)
	admin, err := sql.Open("mysql", server.AdminDSN(""))
	require.NoError(t, err)
	_, err = admin.ExecContext(t.Context(), "ALTER USER hongbao@'%' IDENTIFIED BY '"+password+"'")
	require.NoError(t, err)
	require.NoError(t, admin.Close())

	d.set("LEDGER_DRIVER", "mysql", "LEDGER_DSN", server.DSN(name))
	d.refused(1, []string{"campaign", "show", "rain"}, "MySQL refuses access, check the DSN", "Access denied")
	d.set("LEDGER_DSN", strings.Replace(server.DSN(name), "@", ":"+password+"@", 1))
	d.refused(1, []string{"campaign", "show", "rain"}, "innodb_doublewrite is OFF: a power loss could tear pages")
	d.set("UNSAFE_ALLOW", "innodb_doublewrite") // testkit's is quick
	d.ok("init")
	d.campaign("rain", 20, 2_000)
	for i := range 5 {
		d.ok("grab", "rain", fmt.Sprintf("u%d", i))
	}
	worker := d.start("work")
	var s campaigns.Shown
	testkit.Eventually(t, 30*time.Second, func() bool {
		s = d.show("rain")
		return s.Ledger.Granted > 0 && s.Ledger.Granted == s.Redis.GrantedAmount
	}, "what was granted is settled")
	require.Equal(t, hongbao.Amount(2_000), s.Ledger.Funded)
	worker.Signal(syscall.SIGTERM)
	require.Zero(t, worker.wait(30*time.Second).code)
	require.Contains(t, d.ok("audit"), "rain")
}
