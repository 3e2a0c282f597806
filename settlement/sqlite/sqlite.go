// Package sqlite names a ledger in a file of SQLite to package settlement. It needs no server, and serves the processes
// of one machine.
package sqlite

import (
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/settlement"
)

// New returns the database for settlement.Config: the file at a plain path on a local disk. Migrate creates the file,
// and only its owner may read it.
func New(path string) settlement.Database { return sqlite.Database{Path: path} }
