// Package postgres names a ledger on PostgreSQL, version 13 or newer, to package settlement.
package postgres

import (
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/settlement"
)

// Config configures New.
type Config struct {
	// DSN is a connection string of libpq (URL or key=value). It may contain a password and is never logged. Its user owns
	// the tables, or has the rights that docs/operations.md lists.
	DSN string
	// UnsafeAllow names unsafe settings of the server that Migrate and Open shall accept: fsync, full_page_writes,
	// synchronous_commit. The ledger may then lose payments that it has confirmed, so this is for tests only.
	UnsafeAllow []string
}

// New returns the database for settlement.Config. It does not connect; Migrate and Open report an invalid Config.
func New(config Config) settlement.Database { return postgres.Database(config) }
