package mysql

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

var limits = db.Limits{Conns: 8, ConnectTimeout: 5 * time.Second, LockTimeout: 10 * time.Second,
	Timeout: 30 * time.Second}

// open opens a new, empty database on testkit's server, which runs with an unsafe setting to be faster.
func open(t *testing.T) *store {
	t.Helper()
	d := Database{DSN: testkit.MariaDB(t), UnsafeAllow: []string{"innodb_doublewrite"}}
	opened, err := d.Open(t.Context(), limits, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	return opened.(*store)
}

func TestNumbered(t *testing.T) {
	t.Parallel()
	s := numbered(`SELECT a FROM t WHERE b = $2 AND c = $1 AND d > $2`)
	require.Equal(t, `SELECT a FROM t WHERE b = ? AND c = ? AND d > ?`, s.text)
	require.Equal(t, []any{"two", "one", "two"}, s.args([]any{"one", "two"}))
}

func TestDSN(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"hongbao@tcp(h:3306)/hongbao":                    "",
		"hongbao:p@ss/w?rd@tcp(h:3306)/hongbao?tls=true": "",
		"hongbao@unix(/run/mysqld.sock)/hongbao":         "",
		"hongbao:hunter2@tcp(h:3306": "is not a connection string of " +
			"go-sql-driver/mysql",
		"hongbao:hunter2@tcp(h:3306)/":                                         "names no database",
		"hongbao:hunter2@tcp(h:3306)/db?multiStatements=false":                 `parameter "multiStatements" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?tls=true&clientFoundRows=true":         `parameter "clientFoundRows" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?innodb_flush_log_at_trx_commit=0":      `"innodb_flush_log_at_trx_commit" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?sql_mode=%27%27&allowAllFiles=true":    `parameter "allowAllFiles" is not allowed`,
		"hongbao:hunter2@tcp(h:3306)/db?tls=no-such-config&serverPubKey=nope%": "is not a connection string",
	} {
		err := Database{DSN: dsn}.Check()
		if want == "" {
			require.NoError(t, err, dsn)
			continue
		}
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c, err := driverConfig("u:p@tcp(h:1)/db?tls=true", &db.Limits{ConnectTimeout: 5 * time.Second,
		LockTimeout: 1500 * time.Millisecond, Timeout: 20 * time.Second})
	require.NoError(t, err)
	require.Equal(t, []any{"u", "p", "tcp", "h:1", "db", "true"}, []any{c.User, c.Passwd, c.Net, c.Addr, c.DBName,
		c.TLSConfig})
	require.Equal(t, []time.Duration{5 * time.Second, 20 * time.Second, 20 * time.Second},
		[]time.Duration{c.Timeout, c.ReadTimeout, c.WriteTimeout})
	require.Equal(t, []bool{true, true, true}, []bool{c.InterpolateParams, c.MultiStatements, c.CheckConnLiveness})
	require.NotContains(t, []bool{c.ClientFoundRows, c.ParseTime, c.RejectReadOnly, c.AllowAllFiles,
		c.AllowOldPasswords, c.ColumnsWithAlias, c.AllowFallbackToPlaintext}, true)
	require.Equal(t, time.UTC, c.Loc)
	require.Equal(t, 16<<20, c.MaxAllowedPacket)
	require.Equal(t, "utf8mb4_bin", c.Collation)
	require.Equal(t, "2", c.Params["innodb_lock_wait_timeout"])
	require.Equal(t, "20", c.Params["wait_timeout"])
}

func TestSession(t *testing.T) {
	t.Parallel()
	opened := open(t)
	require.Equal(t, limits.Conns, opened.db.Stats().MaxOpenConnections)
	got := map[string]string{}
	ask := func(x db.Txn) error {
		return x.Query(t.Context(), `SHOW SESSION VARIABLES`, nil, func(s db.Scan) error {
			var name, value string
			err := s(&name, &value)
			got[name] = value
			return err
		})
	}
	require.NoError(t, opened.Read(t.Context(), ask))
	want := map[string]string{
		"sql_mode":                 "PIPES_AS_CONCAT,STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
		"foreign_key_checks":       "ON",
		"unique_checks":            "ON",
		"autocommit":               "ON",
		"innodb_lock_wait_timeout": "10",
		"lock_wait_timeout":        "10",
		"wait_timeout":             "30",
		"character_set_client":     "utf8mb4",
		"collation_connection":     "utf8mb4_bin",
	}
	if testkit.OnMySQL() {
		want["max_execution_time"] = "30000"
	} else {
		want["check_constraint_checks"], want["max_statement_time"] = "ON", "30.000000"
	}
	for name, want := range want {
		require.Equal(t, want, got[name], name)
	}
}

// Statements that are longer than one piece are sent in several texts, and are still one transaction.
func TestLongTransaction(t *testing.T) {
	t.Parallel()
	opened := open(t)
	write := func(stmts ...db.Stmt) error {
		return opened.Write(t.Context(), func(db.Txn) ([]db.Stmt, error) { return stmts, nil })
	}
	require.NoError(t, write(db.Stmt{SQL: `CREATE TABLE pieces (id varchar(9) PRIMARY KEY, body longtext NOT NULL)`}))
	inserts := func(changed []int64, ids ...string) (stmts []db.Stmt) {
		for i, id := range ids {
			stmts = append(stmts, db.Stmt{SQL: `INSERT INTO pieces (id, body) VALUES ($1, $2)`,
				Args: []any{id, strings.Repeat("x", piece/2+1)}, Changed: &changed[i]})
		}
		return stmts
	}
	changed := make([]int64, 5)
	require.NoError(t, write(inserts(changed, "c0", "c1", "c2", "c3", "c4")...))
	require.Equal(t, []int64{1, 1, 1, 1, 1}, changed)
	rows := func() (n int) {
		require.NoError(t, opened.db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pieces`).Scan(&n))
		return n
	}
	require.Equal(t, 5, rows())
	err := write(inserts(changed, "d0", "d1", "d2", "d3", "c4")...) // the last one fails after others were sent
	require.ErrorIs(t, err, db.ErrAgain)
	require.Equal(t, 5, rows())
}
