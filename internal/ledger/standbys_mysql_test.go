package ledger

import (
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// mariadbPair is a MariaDB or MySQL with a replica.
type mariadbPair struct {
	primary, replica *testkit.MariaDBServer
	database         string
	front            *address
}

// pairOfMariaDB starts a pair whose primary waits for its replica for some milliseconds; 0 means that it is
// asynchronous.
func pairOfMariaDB(timeout int64) func(t *testing.T) replicated {
	return func(t *testing.T) replicated {
		settings := func(id string) map[string]string {
			s := map[string]string{"server_id": id, "log_bin": "binlog", "innodb_doublewrite": "on"}
			if testkit.OnMySQL() {
				s["gtid_mode"], s["enforce_gtid_consistency"] = "on", "on"
				s["plugin_load_add"] = "semisync_source.so;semisync_replica.so"
			} else {
				s["binlog_format"] = "row"
			}
			return s
		}
		p := &mariadbPair{primary: testkit.NewMariaDB(t, testkit.MariaDBOptions{Settings: settings("1")})}
		p.replica = testkit.NewMariaDB(t, testkit.MariaDBOptions{Settings: settings("2")})
		host, port, err := net.SplitHostPort(p.primary.Addr)
		require.NoError(t, err)
		change := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', "+
			"MASTER_USE_GTID = slave_pos", host, port)
		source, replica := "master", "slave"
		if testkit.OnMySQL() {
			change = fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = 'root', "+
				"SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1", host, port)
			source, replica = "source", "replica"
		}
		if timeout > 0 {
			p.do(t, p.replica, "SET GLOBAL rpl_semi_sync_"+replica+"_enabled = ON")
			p.do(t, p.primary, "SET GLOBAL rpl_semi_sync_"+source+"_wait_point = 'AFTER_SYNC'",
				fmt.Sprintf("SET GLOBAL rpl_semi_sync_%s_timeout = %d", source, timeout))
		}
		p.do(t, p.replica, change, "START REPLICA")
		p.database, err = p.primary.CreateDatabase(t.Context())
		require.NoError(t, err)
		if timeout > 0 {
			p.do(t, p.primary, "SET GLOBAL rpl_semi_sync_"+source+"_enabled = ON")
			testkit.Eventually(t, 20*time.Second, func() bool {
				return p.status(t, p.primary, "Rpl_semi_sync_"+source+"_clients") == "1"
			}, "the replica confirms")
		}
		p.front = newAddress(t, p.primary.Addr)
		return p
	}
}

func (p *mariadbPair) do(t *testing.T, server *testkit.MariaDBServer, statements ...string) {
	t.Helper()
	execute(t, mariadb(t, server.AdminDSN("")), statements...)
}

func (p *mariadbPair) status(t *testing.T, server *testkit.MariaDBServer, name string) (value string) {
	t.Helper()
	var same string
	row := mariadb(t, server.AdminDSN("")).QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE '"+name+"'")
	err := row.Scan(&same, &value)
	require.NoError(t, err, name)
	return value
}

func (p *mariadbPair) version() string {
	if testkit.OnMySQL() {
		return "MySQL"
	}
	return "MariaDB"
}

func (p *mariadbPair) config() Config {
	c := pairConfig(testMariaDB("hongbao@tcp(" + p.front.addr + ")/" + p.database))
	c.Timeout = 2 * time.Second
	return c
}

func (p *mariadbPair) cut(t *testing.T)  { p.do(t, p.replica, "STOP REPLICA IO_THREAD") }
func (p *mariadbPair) kill(t *testing.T) { require.NoError(t, p.primary.Kill()) }

func (p *mariadbPair) demote(t *testing.T) {
	p.do(t, p.primary, "SET GLOBAL read_only = ON") // waits for running commits
}

func (p *mariadbPair) promote(t *testing.T) {
	testkit.Eventually(t, time.Minute, func() bool { return p.applied(t) }, "the replica has applied what it has received")
	p.do(t, p.replica, "STOP REPLICA")
	target := p.replica.Addr
	p.front.target.Store(&target)
}

// applied reports whether the replica waits for more events.
func (p *mariadbPair) applied(t *testing.T) bool {
	t.Helper()
	rows, err := mariadb(t, p.replica.AdminDSN("")).QueryContext(t.Context(), "SHOW REPLICA STATUS")
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	require.True(t, rows.Next(), "%v", rows.Err())
	row := make([]sql.NullString, len(columns))
	dest := make([]any, len(columns))
	for i := range row {
		dest[i] = &row[i]
	}
	require.NoError(t, errors.Join(rows.Scan(dest...), rows.Err()))
	for i, name := range columns {
		if strings.HasSuffix(name, "_SQL_Running_State") {
			return strings.Contains(row[i].String, "read all relay log")
		}
	}
	t.Fatalf("no state of the SQL thread in %v", columns)
	return false
}

func (p *mariadbPair) promoted() Config {
	c := testMariaDB(p.replica.DSN(p.database))
	return c
}
