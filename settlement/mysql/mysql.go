// Package mysql names a ledger on MySQL 8.0.16, on MariaDB 10.6, or on a newer version, to package settlement.
package mysql

import (
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/settlement"
)

// Config configures New.
type Config struct {
	// DSN is user@tcp(host:port)/database?tls=..., as go-sql-driver/mysql defines it. It may contain a password and is
	// never logged. Of the parameters it may have only tls, serverPubKey, allowNativePasswords, allowCleartextPasswords
	// and connectionAttributes, because the ledger sets the others.
	DSN string
	// UnsafeAllow names unsafe settings of the server that Migrate and Open shall accept: innodb_flush_log_at_trx_commit,
	// innodb_doublewrite, sync_binlog. The ledger may then lose payments that it has confirmed, so this is for tests only.
	UnsafeAllow []string
}

// New returns the database for settlement.Config. It does not connect; Migrate and Open report an invalid Config.
func New(config Config) settlement.Database { return mysql.Database(config) }
